"""The main job: a model learns by SFT and a hybrid, next to a control that spends the same on SFT alone.

Four models answer the same final problems: before, after the SFT stage, at the end, and the control. The
control starts from the same weights and trains by SFT until it has used as many counted FLOPs as the
whole run, generation included.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from pathlib import Path

from bimetal.config.load import overridden, read_toml, resolve
from bimetal.config.schema import BudgetOptions, Recipe
from bimetal.core.budget import Currency
from bimetal.core.catalogue import LocalCode
from bimetal.core.errors import ConfigError, DataError
from bimetal.core.files import write_atomic
from bimetal.core.types import JsonValue, Split
from bimetal.evaluation.intervals import Estimate
from bimetal.evaluation.page import Report, html_page
from bimetal.evaluation.paired import paired
from bimetal.evaluation.picture import Labels, Point, curve_png, curve_svg_for_page
from bimetal.evaluation.result import SuiteResult, save
from bimetal.studies.held_out import measured, problems_of
from bimetal.studies.runs import RECIPE, Outcome, resume, start
from bimetal.trainer.prepare import Parts, load_parts
from bimetal.trainer.report import Sink
from bimetal.trainer.run import Run

FINAL_PROBLEMS = 400
"""Held-out problems per domain that the four models answer."""

METRICS = "metrics.jsonl"
BEFORE, AFTER_SFT, AFTER, CONTROL = "before", "after_sft", "after", "sft_same_budget"
LABELS = {BEFORE: "before", AFTER_SFT: "after SFT", AFTER: "after hybrid", CONTROL: "SFT, same budget"}

Sinks = Callable[[Run], Sequence[Sink]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quickstart:
    """What the main job found; ``summary`` is what ``summary.json`` holds."""

    folder: Path
    results: Mapping[str, SuiteResult]
    summary: Mapping[str, JsonValue]


def quickstart(
    folder: Path,
    *,
    overrides: Sequence[str] = (),
    problems: int = FINAL_PROBLEMS,
    sinks: Sinks | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> Quickstart:
    """Run the main job in this folder, or go on with one that was interrupted there; ``note`` tells people.

    Raises:
        ConfigError: An override cannot work, or the extra ``plots`` is not installed.
        DataError: The run was stopped before its end; call again to go on.
    """
    if find_spec("matplotlib") is None:
        raise ConfigError(
            "the report's picture needs matplotlib; found none; run: pip install 'bimetal[plots]'"
        )
    folder = folder.resolve()
    recipe = packaged_recipe(folder, overrides)
    main = _finished(recipe, sinks)
    note("the control: SFT alone, until it has spent as much as the whole run")
    control = _finished(control_recipe(recipe, main), sinks)
    parts = load_parts(recipe, base=folder, code=LocalCode.REFUSED)
    with closing(parts.pool):
        results = _evaluated(parts, main, control, problems, note=note)
    summary = summarize(recipe, main, parts, results)
    write_atomic(folder / "summary.json", (json.dumps(summary, indent=1) + "\n").encode("ascii"))
    write_report(folder, results, main, overrides)
    return Quickstart(folder=folder, results=results, summary=summary)


def packaged_recipe(folder: Path, overrides: Sequence[str] = ()) -> Recipe:
    """The quick start's recipe, writing into this folder."""
    with resources.as_file(resources.files("bimetal.studies").joinpath("quickstart.toml")) as path:
        table = overridden(read_toml(path), overrides)
    return resolve({**table, "output": str(folder)}, source="quickstart.toml")


def control_recipe(recipe: Recipe, main: Outcome) -> Recipe:
    """SFT alone, with what the whole run spent as its budget.

    It has the first stage's options, and the last stage's course of the learning rate: a control that never
    came down from its peak would be a weak one.
    """
    first, last = recipe.stage[0], recipe.stage[-1]
    optimizer = first.optimizer.model_copy(update={"schedule": last.optimizer.schedule})
    stage = first.model_copy(update={"share": 1.0, "optimizer": optimizer})
    budget = BudgetOptions(currency="flops", amount=float(main.spent[Currency.FLOPS]))
    return recipe.model_copy(
        update={
            "name": f"{recipe.name}-control",
            "output": str(main.folder / "control"),
            "budget": budget,
            "stage": (stage,),
        }
    )


def summarize(
    recipe: Recipe, main: Outcome, parts: Parts, results: Mapping[str, SuiteResult]
) -> dict[str, JsonValue]:
    """The document of ``summary.json``."""
    summaries = {name: result.summary() for name, result in results.items()}
    against_sft, against_control = (paired(results[name], results[AFTER]) for name in (AFTER_SFT, CONTROL))
    domains = {
        name: {
            "n": one.n,
            **{arm: summaries[arm].domains[name].accuracy.value for arm in LABELS},
            "diff_vs_sft": _difference(against_sft.domains[name]),
            "diff_vs_control": _difference(against_control.domains[name]),
        }
        for name, one in summaries[AFTER].domains.items()
    }
    return {
        "model": parts.model.name,
        "method": recipe.stage[-1].method.name,
        "train_seconds": main.spent[Currency.WALL_SECONDS],
        "generated_tokens": main.spent[Currency.GENERATED_TOKENS],
        "trained_tokens": main.spent[Currency.TRAINED_TOKENS],
        "flops": main.spent[Currency.FLOPS],
        "distinct_problems": dict(parts.work.distinct),
        "domains": domains,
        "average": {
            **{arm: summaries[arm].accuracy.value for arm in LABELS},
            "diff_vs_sft": _difference(against_sft.overall),
            "diff_vs_control": _difference(against_control.overall),
        },
    }


def write_report(
    folder: Path, results: Mapping[str, SuiteResult], main: Outcome, overrides: Sequence[str]
) -> None:
    """``report.html``, and the picture for itself."""
    rows = learning_curve(folder / METRICS)
    labels = Labels(
        x="optimizer steps", y="accuracy on the selection split", marks=stage_marks(folder / METRICS)
    )
    write_atomic(folder / "learning_curve.png", curve_png(rows, labels))
    command = shlex.join(["bimetal", "quickstart", *overrides])
    report = Report(
        title="bimetal quickstart",
        arms={LABELS[name]: result for name, result in results.items()},
        main=LABELS[AFTER],
        differences=[(LABELS[AFTER], LABELS[AFTER_SFT]), (LABELS[AFTER], LABELS[CONTROL])],
        rerun=command,
        picture=curve_svg_for_page(rows, labels),
        caption="Greedy accuracy by domain while training; the hybrid stage follows the SFT stage.",
        facts={
            "training": f"{main.spent[Currency.WALL_SECONDS]:.0f} s, {main.spent[Currency.FLOPS]:.3g} FLOPs",
            "tokens": f"{main.spent[Currency.GENERATED_TOKENS]:,} generated, "
            f"{main.spent[Currency.TRAINED_TOKENS]:,} trained",
        },
    )
    write_atomic(folder / "report.html", html_page(report).encode("utf-8"))


def learning_curve(path: Path) -> list[tuple[float, dict[str, Point]]]:
    """Steps and accuracy by domain, from a run's metrics."""
    rows: list[tuple[float, dict[str, Point]]] = []
    for text in path.read_text(encoding="ascii").splitlines():
        line = json.loads(text)
        found = {
            name.split("/")[1]: Point(value)
            for name, value in line["metrics"].items()
            if name.startswith("evaluation/") and name.endswith("/accuracy") and value is not None
        }
        if found:
            rows.append((float(line["step"]), found))
    return rows


def stage_marks(path: Path) -> tuple[tuple[float, str], ...]:
    """The step at which each stage began, with its name."""
    first: dict[str, float] = {}
    for text in path.read_text(encoding="ascii").splitlines():
        line = json.loads(text)
        first.setdefault(line["stage"], float(line["step"]))
    return tuple((step, name) for name, step in first.items())


def _finished(recipe: Recipe, sinks: Sinks | None) -> Outcome:
    folder = Path(recipe.output)
    begun = (folder / RECIPE).exists()
    outcome = resume(folder, sinks=sinks) if begun else start(recipe, sinks=sinks)
    if not outcome.finished:
        raise DataError(
            f"stopped at {outcome.progress:.0%} of the budget; run the same command again to go on"
        )
    return outcome


def _evaluated(
    parts: Parts, main: Outcome, control: Outcome, count: int, *, note: Callable[[str], None]
) -> dict[str, SuiteResult]:
    """The four models' answers to the final problems, saved below ``eval/``."""
    domains = problems_of(parts, Split.TEST, count)
    first = parts.recipe.stage[0].name
    weights = {
        BEFORE: None,
        AFTER_SFT: main.folder / "stages" / first,
        AFTER: main.folder / "model",
        CONTROL: control.folder / "model",
    }
    results = {}
    for version, (name, path) in enumerate(weights.items()):
        note(f"final problems, model {LABELS[name]}: {sum(map(len, domains.values())):,} answers")
        parts.backend.load_weights(path, version)
        results[name] = measured(parts, domains, name=LABELS[name], split=Split.TEST)
        save(results[name], main.folder, name=name)
    return results


def _difference(estimate: Estimate) -> dict[str, JsonValue]:
    return {"value": estimate.value, "ci": [estimate.low, estimate.high]}


__all__ = ["Quickstart", "control_recipe", "learning_curve", "packaged_recipe", "quickstart"]
