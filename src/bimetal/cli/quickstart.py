"""`bimetal quickstart`: the main job on the embedded model and domains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bimetal.cli._console import JsonFlag, print_json, print_progress, print_table, print_text

if TYPE_CHECKING:
    from bimetal.core.types import JsonValue


def command(
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[key=value]...", help="Changes to it.")
    ] = None,
    folder: Annotated[Path, typer.Option(help="Run folder; an interrupted run there goes on.")] = Path(
        "runs/quickstart"
    ),
    problems: Annotated[int, typer.Option(min=2, help="Final problems per domain.")] = 400,
    json: JsonFlag = False,
) -> None:
    """Train lab/nano on five domains by SFT, then a hybrid of SFT and RL; compare with SFT of the same cost.

    Example: bimetal quickstart seed=1 --folder runs/quickstart-1
    """
    from bimetal.cli._progress import ProgressSink
    from bimetal.studies.quickstart import quickstart

    found = quickstart(
        folder,
        overrides=overrides or (),
        problems=problems,
        sinks=lambda run: [ProgressSink(run.recipe.name, start=run.budget.progress)],
        note=print_progress,
    )
    if json:
        print_json(found.summary)
        return
    _table(found.summary)
    print_text(f"report: {found.folder / 'report.html'}")
    print_text(f"numbers: {found.folder / 'summary.json'}")


def _table(summary: dict[str, JsonValue] | object) -> None:
    """Accuracy of the four models by domain, with paired differences and their intervals."""
    from typing import Any, cast

    document = cast("dict[str, Any]", summary)
    arms = ("before", "after_sft", "after", "sft_same_budget")
    lines = [*document["domains"].items(), ("average", document["average"])]
    print_table(
        ("domain", "before", "after SFT", "after hybrid", "SFT, same budget"),
        [[name, *(f"{one[arm]:.3f}" for arm in arms)] for name, one in lines],
    )
    print_text()
    print_table(
        ("domain", "hybrid - SFT stage", "hybrid - SFT, same budget"),
        [[name, _interval(one["diff_vs_sft"]), _interval(one["diff_vs_control"])] for name, one in lines],
    )
    count = next(iter(document["domains"].values()))["n"]
    print_text(
        f"{count} held-out problems per domain; intervals are 95 %, paired, over problems only: one training "
        f"seed. Training took {document['train_seconds']:.0f} s."
    )


def _interval(difference: dict[str, object]) -> str:
    low, high = difference["ci"]  # type: ignore[misc]
    if difference["value"] is None or low is None or high is None:
        return "-"
    return f"{difference['value']:+.3f} [{low:+.3f}, {high:+.3f}]"
