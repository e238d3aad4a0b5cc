"""`bimetal audit`: what this installation promises, checked on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bimetal.cli._console import JsonFlag, print_json, print_progress, print_table, print_text

if TYPE_CHECKING:
    from bimetal.testing.audit import Finding


def command(
    recipe: Annotated[
        Path | None, typer.Argument(help="A recipe whose model is checked too; lab/nano unless given.")
    ] = None,
    *,
    method: Annotated[
        list[str] | None,
        typer.Option(help="A method or variant; may be given several times."),
    ] = None,
    inject: Annotated[
        str, typer.Option(help="A fault to put in, to see the audit fail; --inject list names them.")
    ] = "",
    skip_resume: Annotated[
        bool, typer.Option("--skip-resume", help="Leave out the runs that are killed and resumed.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Check methods, the step, the model's template and exact resume. Exit code 1 if a promise is broken.

    Example: bimetal audit; bimetal audit --inject drop-microbatches --method sft
    """
    from bimetal.testing.faults import FAULTS

    if inject == "list":
        print_table(("fault", "what is wrong"), [(f.name, f.what) for f in FAULTS.values()])
        return
    findings = _findings(recipe, method or (), inject=inject, skip_resume=skip_resume)
    failed = [finding for finding in findings if not finding.ok]
    if json:
        print_json(
            {
                "ok": not failed,
                "fault": inject or None,
                "findings": [asdict(one) | {"ok": one.ok} for one in findings],
            }
        )
    else:
        _show(findings, failed)
    if failed:
        raise typer.Exit(1)


def _findings(
    recipe: Path | None, methods: list[str] | tuple[str, ...], *, inject: str, skip_resume: bool
) -> list[Finding]:
    """Every finding, in order; what is being checked is told on standard error."""
    import tempfile

    from bimetal.studies.quickstart import packaged_recipe
    from bimetal.studies.runs import open_recipe
    from bimetal.testing.audit import audit_method, audit_step, chosen
    from bimetal.testing.audit_model import audit_recipe
    from bimetal.testing.faults import NO_FAULT, fault
    from bimetal.testing.kill import audit_resume

    wrong = fault(inject) if inject else NO_FAULT
    candidates = chosen(methods)
    with tempfile.TemporaryDirectory(prefix="bimetal-audit-") as work:
        resolved = packaged_recipe(Path(work)) if recipe is None else open_recipe(recipe)
        findings = list(audit_step(wrong))
        for number, candidate in enumerate(candidates, start=1):
            print_progress(f"method {candidate.name} ({number} of {len(candidates)})")
            findings += audit_method(candidate, wrong)
        print_progress(f"model {resolved.model.name}")
        findings += audit_recipe(resolved, wrong, base=Path.cwd() if recipe is None else recipe.parent)
        if not skip_resume and not inject:
            print_progress("runs that are killed and resumed")
            findings += audit_resume(Path(work) / "resume")
    return findings


def _show(findings: list[Finding], failed: list[Finding]) -> None:
    """A line per subject, then what is wrong."""
    subjects = dict.fromkeys(finding.subject for finding in findings)
    rows = []
    for subject in subjects:
        own = [finding for finding in findings if finding.subject == subject]
        kept = sum(finding.ok for finding in own)
        rows.append(
            (
                "ok" if kept == len(own) else "FAIL",
                subject,
                f"{kept} of {len(own)}",
                f"{sum(f.seconds for f in own):.1f}",
            )
        )
    print_table(("", "subject", "checks", "seconds"), rows)
    for finding in failed:
        print_text(f"\nFAIL {finding.subject}, {finding.check}: {finding.detail}")
    kept = len(findings) - len(failed)
    print_text(f"\n{kept} of {len(findings)} checks passed.")
