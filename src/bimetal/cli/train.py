"""`bimetal train`: one run from a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bimetal.cli._console import JsonFlag, print_json, print_text

AllowCode = Annotated[
    bool, typer.Option("--allow-code", help="Let the recipe run local Python files, such as ./my_reward.py.")
]


def command(
    recipe: Annotated[Path, typer.Argument(help="The recipe, a TOML file.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[key=value]...", help="Changes to it.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and print what would happen.")
    ] = False,
    allow_code: AllowCode = False,
    json: JsonFlag = False,
) -> None:
    """Run a recipe: stages of SFT, RL or a hybrid, to the end of its budget.

    Example: bimetal train recipes/smollm2_reasoning.toml seed=1 stage.0.optimizer.learning_rate=1e-5
    """
    from bimetal.cli._progress import ProgressSink
    from bimetal.core.catalogue import LocalCode
    from bimetal.studies.forecast import forecast
    from bimetal.studies.runs import open_recipe, start

    code = LocalCode.ALLOWED if allow_code else LocalCode.REFUSED
    resolved = open_recipe(recipe, overrides or ())
    if dry_run:
        plan = forecast(resolved, base=recipe.parent, code=code)
        if json:
            print_json(plan.to_json())
        else:
            print_text(plan.to_text())
        return
    outcome = start(
        resolved, base=recipe.parent, code=code, sinks=lambda run: [ProgressSink(run.recipe.name)]
    )
    report(outcome.folder, outcome.step, outcome.progress, finished=outcome.finished, json=json)
    if outcome.interrupted:
        raise KeyboardInterrupt


def report(folder: Path, step: int, progress: float, *, finished: bool, json: bool) -> None:
    """Say how a run ended and what to do next."""
    if json:
        print_json({"folder": str(folder), "step": step, "progress": progress, "finished": finished})
    elif finished:
        print_text(
            f"finished after {step} steps; model in {folder / 'model'}, metrics in {folder / 'metrics.jsonl'}"
        )
    else:
        print_text(
            f"stopped at step {step}, {progress:.0%} of the budget; continue with: bimetal resume {folder}"
        )
