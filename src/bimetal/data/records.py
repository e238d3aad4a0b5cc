"""Rows on disk <-> prompts and demonstrations: a source of a recipe becomes a `Corpus`.

This is the only module that imports `datasets`, inside the functions that need it.
"""

# pyright: reportUnknownParameterType=false
# (pyarrow's classes are compiled and have no types)
from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Literal

import pyarrow as pa

from bimetal.config.data import DataOptions, SourceOptions
from bimetal.core.errors import ConfigError, DataError, boundary
from bimetal.data.assemble import Loaded, assemble
from bimetal.data.corpus import BadRow, Corpus
from bimetal.data.readers import SUFFIXES, Row, arrow_rows, kind_of, nearest_names, read_rows
from bimetal.data.rows import load_rows

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
"""An id of the hub: owner and name."""

LISTED_BAD_ROWS = 5
"""How many bad rows a message lists; the rest is counted."""

_SPLIT_NAMES = ("train", "test", "validation", "valid", "val", "dev", "eval")
_BATCH_ROWS = 1000


def load_source(
    options: SourceOptions, *, base: Path, on_bad_rows: Literal["stop", "set_aside"] = "stop"
) -> Corpus:
    """Load one source.

    Args:
        options: The source as the recipe has it.
        base: The recipe's folder, where relative paths start.
        on_bad_rows: Whether a row that cannot be used is an error or is returned in ``bad_rows``.

    Raises:
        DataError: The source cannot be read, is empty, lacks a column, or has bad rows that stop the run.
        ConfigError: The recipe contradicts itself.
    """
    return load_data(DataOptions(sources=(options,), on_bad_rows=on_bad_rows), base=base)


def load_data(options: DataOptions, *, base: Path) -> Corpus:
    """Load and join all sources of a recipe, in order; ids are unique over all of them.

    Args:
        options: The `[data]` section.
        base: The recipe's folder, where relative paths start.

    Raises:
        DataError: As for `load_source`.
        ConfigError: As for `load_source`.
    """
    corpus = assemble([_load(source, base) for source in options.sources])
    if corpus.bad_rows and (options.on_bad_rows == "stop" or not corpus.prompts):
        raise DataError(_complaint(corpus))
    return corpus


def _load(options: SourceOptions, base: Path) -> Loaded:
    rows: list[Row] = []
    bad: list[BadRow] = []
    for row in islice(_open(options, base), options.limit):
        if isinstance(row, BadRow):
            bad.append(row)
        else:
            rows.append(row)
    if not rows and not bad:
        raise DataError(
            f"{options.path}: holds no rows. Check that this is the right file and that it is complete"
        )
    if not rows:
        return Loaded(records=(), bad_rows=tuple(bad), formats=(), weight=options.weight)
    return load_rows(rows, bad, options=options)


def _complaint(corpus: Corpus) -> str:
    total = len(corpus.bad_rows)
    lines = [
        f"  {row.file} {row.unit} {row.row}: {row.reason}\n    the row: {row.excerpt[:160]}"
        for row in corpus.bad_rows[:LISTED_BAD_ROWS]
    ]
    more = [f"  and {total - LISTED_BAD_ROWS} more"] if total > LISTED_BAD_ROWS else []
    if corpus.prompts:
        fix = (
            'Correct them, or set data.on_bad_rows = "set_aside" to have them left out and written to a file'
        )
    else:
        fix = "No usable row is left. Check the format and the columns of the recipe"
    which = "row cannot" if total == 1 else "rows cannot"
    return "\n".join([f"{total} {which} be used:", *lines, *more, fix])


def _open(options: SourceOptions, base: Path) -> Iterator[Row | BadRow]:
    """The rows of a file, a folder, a folder saved by `datasets`, or a hub id."""
    path = base / Path(options.path).expanduser()
    if path.is_file():
        _refuse_split(options, "a file")
        return read_rows(path, options.path)
    if path.is_dir():
        saved = (path / "dataset_info.json").is_file() or (path / "dataset_dict.json").is_file()
        return _saved(options, path) if saved else _folder(options, path)
    if HUB_ID.fullmatch(options.path) and not kind_of(Path(options.path)):
        return _hub(options, path)
    raise DataError(
        f"{options.path}: no such file or folder; {nearest_names(path.parent, path.name)} "
        "Relative paths start at the recipe's folder"
    )


def _refuse_split(options: SourceOptions, what: str) -> None:
    for name, value in (("split", options.split), ("subset", options.subset)):
        if value:
            raise ConfigError(f"{options.path}: {name} = {value!r} means nothing for {what}. Remove it")


def _folder(options: SourceOptions, folder: Path) -> Iterator[Row | BadRow]:
    files = sorted(entry for entry in folder.iterdir() if entry.is_file() and kind_of(entry))
    chosen = [entry for entry in files if entry.name.startswith(options.split)]
    if not chosen:
        wanted = f"whose name begins with {options.split!r}" if options.split else f"of {', '.join(SUFFIXES)}"
        raise DataError(f"{options.path}: no file {wanted}; {nearest_names(folder, options.split)}")
    splits = {name for name in _SPLIT_NAMES for entry in chosen if _begins_with_word(entry.name, name)}
    if len(splits) > 1:
        raise DataError(
            f"{options.path}: holds files of several splits: {', '.join(sorted(splits))}. "
            'Choose one, as in split = "train"'
        )
    kinds = sorted({kind_of(entry) for entry in chosen})
    if len(kinds) > 1:
        raise DataError(
            f"{options.path}: holds several kinds of file: {', '.join(kinds)}. Name one file instead"
        )
    return (row for entry in chosen for row in read_rows(entry, f"{options.path.rstrip('/')}/{entry.name}"))


def _begins_with_word(name: str, word: str) -> bool:
    return re.match(rf"{word}(?![a-z])", name.lower()) is not None


def _require_datasets(options: SourceOptions, missing: str) -> None:
    if importlib.util.find_spec("datasets") is None:
        raise DataError(
            f"{options.path}: {missing}, and reading it takes the package datasets, which is not installed. "
            "Install the extra bimetal[data]"
        )


def _saved(options: SourceOptions, folder: Path) -> Iterator[Row | BadRow]:
    _require_datasets(options, "is a folder saved by datasets")
    with boundary(DataError, f"{options.path}: load the folder saved by datasets"):
        import datasets

        loaded = datasets.load_from_disk(str(folder))
    if isinstance(loaded, Mapping):
        split = options.split or ("train" if len(loaded) > 1 else next(iter(loaded), ""))
        if split not in loaded:
            raise DataError(
                f"{options.path}: no split {split!r}; choose one of: {', '.join(map(str, loaded))}"
            )
        loaded = loaded[split]
    elif options.split:
        _refuse_split(options, "a folder that holds one split")
    return arrow_rows(_plain_rows(loaded.with_format("arrow").iter(_BATCH_ROWS)), options.path)


def _hub(options: SourceOptions, path: Path) -> Iterator[Row | BadRow]:
    _require_datasets(
        options, f"no such file or folder ({nearest_names(path.parent, path.name)}) but it may be a hub id"
    )
    split = options.split or "train"
    activity = (
        f"{options.path}: no such file or folder beside the recipe, so it was asked of the hub "
        f"(subset {options.subset or 'default'!r}, split {split!r})"
    )
    with boundary(DataError, activity):
        import datasets

        loaded = datasets.load_dataset(options.path, options.subset or None, split=split)
        batches = loaded.with_format("arrow").iter(_BATCH_ROWS)
    return arrow_rows(_plain_rows(batches), options.path)


def _plain_rows(batches: Iterable[pa.Table]) -> Iterator[Mapping[str, object]]:
    for batch in batches:
        yield from batch.to_pylist()
