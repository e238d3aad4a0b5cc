"""Local files that a recipe runs, kept in the run folder: the run goes on with what it began with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bimetal.config.schema import Recipe
from bimetal.core.catalogue import Kind, is_local_file
from bimetal.core.errors import ConfigError
from bimetal.core.files import write_atomic

FOLDER = "code"


def local_files(recipe: Recipe) -> Iterator[tuple[Kind, str]]:
    """Kind and name of every catalogue entry of the recipe that is a local file."""
    for kind, table in _tables(json.loads(recipe.model_dump_json())):
        if is_local_file(table["name"]):
            yield kind, table["name"]


def with_kept_code(recipe: Recipe, *, base: Path, folder: Path) -> Recipe:
    """The recipe with its local files copied below the run folder, where it names them from now on.

    Raises:
        ConfigError: Two different files have the same name.
        CheckpointError: The disk is full or not writable.
    """
    document = json.loads(recipe.model_dump_json())
    kept: dict[str, bytes] = {}
    for _, table in _tables(document):
        if not is_local_file(table["name"]):
            continue
        path, colon, attribute = _parts(table["name"])
        content = (base / path).read_bytes()
        if kept.setdefault(path.name, content) != content:
            raise ConfigError(f"two local files are called {path.name!r}; a run keeps both, so rename one")
        table["name"] = f"./{FOLDER}/{path.name}{colon}{attribute}"
    for name, content in kept.items():
        (folder / FOLDER).mkdir(exist_ok=True)
        write_atomic(folder / FOLDER / name, content)
    return Recipe.model_validate(document)


def without_folders(document: dict[str, Any]) -> dict[str, Any]:
    """A recipe's document in which local files have no folder, so that it is the same before and after."""
    for _, table in _tables(document):
        if is_local_file(table["name"]):
            table["name"] = file_name(table["name"])
    return document


def file_name(name: str) -> str:
    """The name of a local entry without its folder.

    >>> file_name("./rewards/mine.py:score")
    'mine.py:score'
    """
    path, colon, attribute = _parts(name)
    return f"{path.name}{colon}{attribute}"


def _parts(name: str) -> tuple[Path, str, str]:
    path, dot, rest = name.rpartition(".py")
    return Path(path + dot), rest[:1], rest[1:]


def _tables(document: Mapping[str, Any]) -> Iterator[tuple[Kind, dict[str, Any]]]:
    """Every table that names a catalogue entry."""
    for table in document["domain"].values():
        yield "domains", table
    yield "backends", document["backend"]
    for stage in document["stage"]:
        yield "methods", stage["method"]
        yield "curricula", stage["curriculum"]
