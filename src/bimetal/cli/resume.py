"""`bimetal resume`: continue a run exactly."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from bimetal.cli._console import JsonFlag
from bimetal.cli.train import AllowCode, report


def command(
    run: Annotated[Path, typer.Argument(help="The run folder.")],
    budget: Annotated[
        float | None, typer.Option(min=1, help="A larger budget, in the recipe's currency.")
    ] = None,
    inexact: Annotated[
        bool, typer.Option("--inexact", help="Go on although machine, versions or data differ.")
    ] = False,
    allow_code: AllowCode = False,
    json: JsonFlag = False,
) -> None:
    """Continue a run that was stopped or killed; the result is that of a run that never was.

    Example: bimetal resume runs/smollm2_reasoning --budget 4e15
    """
    from bimetal.cli._progress import ProgressSink
    from bimetal.core.catalogue import LocalCode
    from bimetal.core.errors import ConfigError
    from bimetal.studies.runs import resume

    if budget is not None and not math.isfinite(budget):
        raise ConfigError(f"--budget must be a finite number; got {budget}")
    outcome = resume(
        run,
        budget=None if budget is None else int(budget),
        inexact=inexact,
        code=LocalCode.ALLOWED if allow_code else LocalCode.REFUSED,
        sinks=lambda made: [ProgressSink(made.recipe.name, start=made.budget.progress)],
    )
    report(outcome.folder, outcome.step, outcome.progress, finished=outcome.finished, json=json)
    if outcome.interrupted:
        raise KeyboardInterrupt
