"""Options that `bimetal eval` and `bimetal generate` share, and how answers are shown."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bimetal.core.errors import unknown_name

if TYPE_CHECKING:
    from bimetal.core.types import Split as SplitName
    from bimetal.evaluation.sample import Observe

Domain = Annotated[list[str] | None, typer.Option("--domain", help="A domain; may be given several times.")]
Suite = Annotated[
    str, typer.Option("--suite", "--recipe", help="A TOML file whose [domain.*] tables hold the options.")
]
Data = Annotated[str, typer.Option("--data", help="A file of problems: JSONL, CSV or Parquet.")]
Problems = Annotated[int, typer.Option("--problems", min=1, help="Problems per domain.")]
Samples = Annotated[int, typer.Option("--samples", min=1, help="Answers per problem.")]
Temperature = Annotated[float, typer.Option("--temperature", min=0.0, help="0 is greedy.")]
TopP = Annotated[
    float, typer.Option("--top-p", min=0.0, max=1.0, help="Nucleus to draw from; 1 is everything.")
]
TopK = Annotated[int, typer.Option("--top-k", min=0, help="Likeliest tokens to draw from; 0 is all.")]
MaxTokens = Annotated[
    int | None,
    typer.Option("--max-tokens", min=1, help="Tokens after which an answer is cut; 128 or the recipe's."),
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Names the noise; equal seeds pair two models.")]
Split = Annotated[str, typer.Option("--split", help="selection or test; train for a look at its problems.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, mps, cuda or cuda:1.")]
Workers = Annotated[int, typer.Option("--workers", min=1, help="Processes that judge answers.")]
TIME_LIMIT_SECONDS = 5.0
"""Of one check, as in a recipe's default."""


def progress(label: str) -> Observe:
    """A counter on standard error, where that is a terminal."""
    from bimetal.cli._console import printable

    def show(done: int, planned: int) -> None:
        if sys.stderr.isatty():
            end = "\n" if done == planned else ""
            sys.stderr.write(f"\r{printable(label)}: {done} of {planned} answers{end}")
            sys.stderr.flush()

    return show


def recipe_of(suite: str, run: Path | None) -> Path | None:
    """The file with the domains' options: the one that was named, else the run's own."""
    return Path(suite) if suite else run / "recipe.toml" if run is not None else None


def split_of(text: str, allowed: Sequence[str]) -> SplitName:
    """The split of this name.

    Raises:
        UnknownNameError: It is not allowed here.
    """
    from bimetal.core.types import Split as SplitName

    if text not in allowed:
        raise unknown_name("split", text, allowed)
    return SplitName(text)
