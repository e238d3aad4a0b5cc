"""Single runs: start one from a recipe, continue one from its folder, and say beforehand what it would do."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bimetal.config.load import load_recipe
from bimetal.config.schema import Recipe
from bimetal.config.toml import options_as_toml
from bimetal.core.budget import Currency
from bimetal.core.catalogue import LocalCode
from bimetal.core.errors import CheckpointError, ConfigError
from bimetal.core.files import write_atomic, writing
from bimetal.data.corpus import Corpus, write_set_aside
from bimetal.studies.held_out import evaluate_held_out
from bimetal.studies.local_code import FOLDER as CODE
from bimetal.studies.local_code import with_kept_code
from bimetal.studies.manifest import Manifest, manifest_of, read_manifest
from bimetal.studies.problems import BAD_ROWS
from bimetal.trainer.loop import train
from bimetal.trainer.prepare import Parts, assemble, load_parts
from bimetal.trainer.report import Sink
from bimetal.trainer.run import Run

RECIPE, MANIFEST, LOCK = "recipe.toml", "manifest.json", ".lock"
_BEFORE_THE_RECIPE = frozenset({MANIFEST, BAD_ROWS, CODE, LOCK, f".{MANIFEST}.part", f".{RECIPE}.part"})
"""What a start that was killed before it wrote the recipe may have left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a call ended: ``finished`` is false after Ctrl-C (then ``interrupted``) or the wall-time cap."""

    folder: Path
    finished: bool
    step: int
    progress: float
    spent: Mapping[Currency, int | float]
    interrupted: bool = False


def open_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe with every path absolute, so that the copy in the run folder reproduces the run.

    Raises:
        ConfigError: The recipe cannot work.
    """
    return with_absolute_paths(load_recipe(path, overrides), path.resolve().parent)


def start(
    recipe: Recipe,
    *,
    base: Path | None = None,
    code: LocalCode = LocalCode.REFUSED,
    sinks: Callable[[Run], Sequence[Sink]] | None = None,
) -> Outcome:
    """Run a recipe from its beginning.

    Args:
        recipe: As ``open_recipe`` gives it.
        base: The folder its local files start from, the recipe's; the current one unless stated.
        code: Whether the recipe may run local files.
        sinks: Makes the views of the run.

    Raises:
        ConfigError: The run folder holds a run, or the recipe cannot work.
    """
    folder = Path(recipe.output).resolve()
    if folder.is_dir() and any(path.name not in _BEFORE_THE_RECIPE for path in folder.iterdir()):
        raise ConfigError(
            f"run folder {folder} is not empty; continue it with `bimetal resume {folder}`, delete it, or "
            "give "
            'another one with output="..."'
        )
    base = Path.cwd() if base is None else base.resolve()
    parts = load_parts(recipe, base=base, code=code)
    with closing(parts.pool), _alone(folder):
        with writing(folder):
            kept = with_kept_code(recipe, base=base, folder=folder)
        if parts.work.bad_rows:
            write_set_aside(Corpus(prompts=(), bad_rows=parts.work.bad_rows), folder / BAD_ROWS)
        write_atomic(folder / MANIFEST, manifest_of(parts).to_bytes())
        # The recipe comes last: a folder without it is no run.
        write_atomic(folder / RECIPE, options_as_toml(kept).encode("utf-8"))
        return _go(parts, folder, sinks, begin=lambda _: "")


def resume(
    folder: Path,
    *,
    budget: int | None = None,
    inexact: bool = False,
    code: LocalCode = LocalCode.REFUSED,
    sinks: Callable[[Run], Sequence[Sink]] | None = None,
) -> Outcome:
    """Continue a run exactly: the result is that of a run that was never interrupted.

    Args:
        folder: The run folder.
        budget: A larger amount of the recipe's currency; the run folder's recipe has it from then on.
        inexact: Accept another machine, library version or data; the promise of exactness is gone then.
        code: Whether the recipe may run local files.
        sinks: Makes the views of the run.

    Raises:
        ConfigError: The folder holds no run, or the budget is no larger one.
        CheckpointError: The folder holds something that no run writes, no checkpoint is intact, or the
            machine or data differ and ``inexact`` is not set.
    """
    folder = folder.resolve()
    recipe = _extended(_recipe_of(folder), budget)
    refuse_links(folder)
    parts = load_parts(recipe, base=folder, code=code)
    with closing(parts.pool), _alone(folder):
        differences = read_manifest(folder / MANIFEST).differences(manifest_of(parts))
        if differences and not inexact:
            raise CheckpointError(
                "the run would not continue exactly: "
                + "; ".join(differences)
                + ". Pass --inexact to go on anyway"
            )

        def begin(run: Run) -> str:
            found = run.restore()
            if differences or budget is not None:
                # What was begun under other conditions is begun anew.
                run.journal.forget_from(run.position.batch)
                write_atomic(folder / RECIPE, options_as_toml(recipe).encode("utf-8"))
            return f"continues at step {run.position.step}" if found else "no checkpoint yet; begins again"

        return _go(parts, folder, sinks, begin=begin)


def _go(
    parts: Parts,
    folder: Path,
    sinks: Callable[[Run], Sequence[Sink]] | None,
    *,
    begin: Callable[[Run], str],
) -> Outcome:
    """Train to the end; ``begin`` puts the run where it starts and says so."""
    run = assemble(parts, folder=folder, evaluate=evaluate_held_out)
    try:
        opening = begin(run)
        # Views are made of a run that is where it starts, so that a bar begins at the right share.
        run.sinks = sinks(run) if sinks is not None else ()
        if opening:
            run.note(opening)
        with _interruptible() as asked:
            finished = train(run, should_stop=asked)
            interrupted = asked() and not finished
    finally:
        run.backend.close()
        for sink in run.sinks:
            sink.close()
    return Outcome(
        folder=folder,
        finished=finished,
        step=run.position.step,
        progress=run.budget.progress,
        interrupted=interrupted,
        spent={c: run.budget.spent(c) for c in Currency},
    )


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep other processes from writing into this run folder; the lock ends with the process.

    Raises:
        ConfigError: Another process is at work there.
        CheckpointError: The folder cannot be written.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK).open("wb")
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"another process is training in {folder}; wait for it or stop it, or give another output"
            ) from error
        yield


@contextmanager
def _interruptible() -> Iterator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a question the loop asks; the second one interrupts as usual."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = signal.getsignal(signal.SIGINT)

    def ask(number: int, frame: object) -> None:
        del number, frame
        asked.set()
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, ask)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def refuse_links(folder: Path) -> None:
    """Refuse a run folder that holds links or devices: what is written through one lands outside of it.

    Raises:
        CheckpointError: It holds one.
    """
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent) / name for name in (*folders, *files)):
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise CheckpointError(
                    f"{path}: is a link or a device; a run folder holds plain files and folders only. "
                    "Put what it leads to in its place, if you trust it"
                )


def _extended(recipe: Recipe, budget: int | None) -> Recipe:
    """The recipe with a larger budget."""
    if budget is None:
        return recipe
    if budget < recipe.budget.amount:
        raise ConfigError(
            f"budget {budget:g} {recipe.budget.currency}: is smaller than the run's "
            f"{recipe.budget.amount:g}; "
            "a run can only be given more"
        )
    amount = recipe.budget.model_copy(update={"amount": float(budget)})
    return recipe.model_copy(update={"budget": amount})


def _recipe_of(folder: Path) -> Recipe:
    path = folder / RECIPE
    if not folder.is_dir() or not path.is_file() or path.is_symlink():
        raise ConfigError(f"{folder} is no run folder; found no file {RECIPE} in it")
    return load_recipe(path)


def with_absolute_paths(recipe: Recipe, base: Path) -> Recipe:
    """The recipe with paths of data and models seen from ``base`` made absolute; other names stay."""
    document = json.loads(recipe.model_dump_json())
    document["output"] = str(Path(recipe.output).resolve())
    for source in document["data"]["sources"]:
        source["path"] = _absolute(source["path"], base)
    document["model"]["name"] = _absolute(document["model"]["name"], base)
    return Recipe.model_validate(document)


def _absolute(name: str, base: Path) -> str:
    path = Path(name).expanduser()
    return str((base / path).resolve()) if not path.is_absolute() and (base / path).exists() else name


__all__ = [
    "MANIFEST",
    "RECIPE",
    "Manifest",
    "Outcome",
    "open_recipe",
    "refuse_links",
    "resume",
    "start",
    "with_absolute_paths",
]
