"""`bimetal eval`: a model's accuracy, pass@k and maj@k by domain, with intervals and differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bimetal.cli._answers import (
    TIME_LIMIT_SECONDS,
    Data,
    Device,
    Domain,
    MaxTokens,
    Problems,
    Samples,
    Seed,
    Split,
    Suite,
    Temperature,
    TopK,
    TopP,
    Workers,
    progress,
    recipe_of,
    split_of,
)
from bimetal.cli._console import JsonFlag, print_error, print_json, print_table, print_text
from bimetal.core.errors import CheckpointError, ConfigError

if TYPE_CHECKING:
    from bimetal.config.schema import DomainOptions
    from bimetal.core.types import Split as SplitName
    from bimetal.evaluation.intervals import Estimate
    from bimetal.evaluation.paired import Paired
    from bimetal.evaluation.result import SuiteResult
    from bimetal.studies.problems import Problems as FoundProblems


def command(
    model: Annotated[
        str, typer.Argument(help="lab/nano, a model folder, a hub id, or a finished run's folder.")
    ],
    *,
    domain: Domain = None,
    suite: Suite = "",
    data: Data = "",
    problems: Problems = 200,
    split: Split = "test",
    samples: Samples = 1,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    max_tokens: MaxTokens = None,
    seed: Seed = 0,
    against: Annotated[
        str, typer.Option(help="Another model or run, or an evaluation's .json, to compare with.")
    ] = "",
    name: Annotated[str, typer.Option(help="Name of the evaluation in a run folder's eval/.")] = "eval",
    output: Annotated[Path | None, typer.Option(help="Also write the evaluation to this .json file.")] = None,
    device: Device = "auto",
    workers: Workers = 1,
    json: JsonFlag = False,
) -> None:
    """Measure a model on held-out problems: strict and lenient accuracy, pass@k, maj@k, with intervals.

    A run folder brings its own domains; its evaluation is kept in the run's eval/NAME.json.

    Example: bimetal eval runs/quickstart --domain lab_table --samples 4 --temperature 0.7 --against lab/nano
    """
    from bimetal.evaluation.paired import paired
    from bimetal.evaluation.result import SuiteResult
    from bimetal.evaluation.sample import Plan
    from bimetal.rollout.backend import Sampling
    from bimetal.studies.answering import Setting, judging, measured, named
    from bimetal.studies.problems import answer_tokens, domain_tables

    subject = named(model)
    recipe = recipe_of(suite, subject.run)
    sampling = Sampling(
        temperature=temperature, top_p=top_p, top_k=top_k, max_tokens=max_tokens or answer_tokens(recipe)
    )
    setting = Setting(
        suite=name,
        split=split_of(split, ("selection", "test")),
        plan=Plan(sampling=sampling, samples=samples),
        seed=seed,
        device=device,
    )
    other = stored(Path(against)) if against.endswith(".json") else named(against) if against else None
    tables = domain_tables(domain or (), recipe)
    found = gathered(tables, recipe, data=data, split=setting.split, problems=problems)
    results: list[SuiteResult] = []
    with judging(found, workers=workers, time_limit_seconds=TIME_LIMIT_SECONDS) as judge:
        for one in (other, subject):
            if isinstance(one, SuiteResult):
                results.append(one)
            elif one is not None:
                shown = progress(one.label)
                results.append(measured(one, found, judge=judge, setting=setting, observe=shown))
    result = results[-1]
    files, lost = kept(result, subject.run, name=name, output=output)
    difference = paired(results[0], result) if other is not None else None
    if json:
        print_json(as_json(result, difference, files))
    else:
        show(result, difference, files)
    if lost is not None:
        # What took long to compute is shown before the error is told.
        raise lost


def kept(
    result: SuiteResult, run: Path | None, *, name: str, output: Path | None
) -> tuple[list[Path], CheckpointError | None]:
    """The files that the evaluation was written to, and the first failure to write one."""
    from bimetal.evaluation.result import save

    writers = [lambda: save(result, run, name=name)] if run is not None else []
    if output is not None:
        writers.append(lambda: written(result, output))
    files, lost = list[Path](), None
    for write in writers:
        try:
            files.append(write())
        except CheckpointError as error:
            lost = lost or error
    return files, lost


def gathered(
    tables: Mapping[str, DomainOptions], recipe: Path | None, *, data: str, split: SplitName, problems: int
) -> FoundProblems:
    """The problems of a data file, or those the domains make and the recipe holds out; a note where few."""
    from bimetal.studies.problems import generated, held_out_rows, read

    if data and not tables:
        raise ConfigError(
            "--data: nothing would judge the answers; name a domain, as in --domain exact_answer"
        )
    if data:
        found = read(Path(data), tables, count=problems)
    else:
        rows = held_out_rows(recipe, tables, split)
        found = generated(tables, split, count=problems, rows=rows)
    for domain, prompts in found.prompts.items():
        if len(prompts) < problems:
            print_error(f"note: {domain} has {len(prompts)} problems, {problems} were asked for")
    return found


def stored(path: Path) -> SuiteResult:
    """An evaluation out of a file.

    Raises:
        ConfigError: There is no such file.
        DataError: It holds no evaluation.
    """
    from bimetal.evaluation.result import SuiteResult

    if not path.is_file():
        raise ConfigError(f"--against: found no file {path}; name an evaluation's .json, a model or a run")
    return SuiteResult.from_json(path.read_bytes(), source=str(path))


def written(result: SuiteResult, path: Path) -> Path:
    """Write an evaluation to a file of any name, and return the name."""
    from bimetal.core.files import write_atomic

    write_atomic(path, result.to_json().encode("utf-8"))
    return path


def as_json(result: SuiteResult, difference: Paired | None, files: Sequence[Path]) -> dict[str, object]:
    """The numbers for machines; the counts behind them are in the files."""
    return {
        "model": result.label,
        "suite": result.suite,
        "split": result.split.value,
        "seed": result.seed,
        "samples": result.samples,
        "sampling": asdict(result.sampling),
        "summary": result.summary().to_json(),
        "difference": None if difference is None else difference.to_json(),
        "files": [str(path) for path in files],
    }


def show(result: SuiteResult, difference: Paired | None, files: Sequence[Path]) -> None:
    """The numbers for people."""
    from bimetal.evaluation.summary import covers_sentence

    summary = result.summary()
    print_text(f"{result.label}: accuracy in % on the {result.split} split, seed {result.seed}")
    domains = summary.domains.items()
    rows = [(n, str(d.n), _with_interval(d.accuracy), _with_interval(d.lenient)) for n, d in domains]
    whole = (_with_interval(summary.accuracy), _with_interval(summary.lenient))
    print_table(("domain", "n", "accuracy", "lenient"), [*rows, ("average", str(summary.accuracy.n), *whole)])
    print_text()
    if result.samples > 1:
        most = result.samples
        print_table(
            ("domain", f"pass@{most}", f"maj@{most}"),
            [(n, _with_interval(d.pass_at[most]), _with_interval(d.maj_at.get(most))) for n, d in domains],
        )
        print_text()
    shapes = [
        (n, *map(_percent, (d.unparseable, d.truncated, d.unknown)), _length(d.tokens)) for n, d in domains
    ]
    print_table(("domain", "no answer", "cut off", "unknown", "tokens"), shapes)
    if difference is not None:
        print_text(f"\n{difference.after} minus {difference.before}, in points over the same problems")
        differences = [*difference.domains.items(), ("average", difference.overall)]
        print_table(
            ("domain", "n", "difference"), [(n, str(e.n), _with_interval(e, "+.1f")) for n, e in differences]
        )
    print_text(f"\n{covers_sentence()}")
    for path in files:
        print_text(f"written to {path}")


def _length(estimate: Estimate) -> str:
    return "-" if estimate.value is None else f"{estimate.value:.0f}"


def _percent(estimate: Estimate) -> str:
    return "-" if estimate.value is None else f"{100 * estimate.value:.1f}"


def _with_interval(estimate: Estimate | None, shape: str = ".1f") -> str:
    if estimate is None or estimate.value is None:
        return "-"
    if estimate.low is None or estimate.high is None:
        return f"{100 * estimate.value:{shape}} (no interval: {estimate.reason})"
    return f"{100 * estimate.value:{shape}} [{100 * estimate.low:{shape}},{100 * estimate.high:{shape}}]"
