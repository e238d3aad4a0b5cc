"""Files on disk -> rows with their places. Nothing here knows what a prompt is.

A row that cannot be read becomes a `BadRow`; a file that cannot be read at all is a `DataError`.
Nothing is ever unpickled: binary cells stay bytes, and a field that is bytes is refused later.
"""

from __future__ import annotations

import csv
import difflib
import gzip
import io
import json
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bimetal.core.errors import DataError
from bimetal.data.corpus import BadRow, Place

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
"""The kinds of file that are read; the text ones may be compressed (.gz)."""

JSON_COLUMNS = b"bimetal.json_columns"
"""Key of a Parquet file's metadata that names the columns whose cells are JSON text."""

EXCERPT_CHARACTERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row as it was read: ``Row(place=Place(...), values={"question": "...", "answer": "..."})``."""

    place: Place
    values: Mapping[str, object]


def shown(value: object, characters: int = 80) -> str:
    """A value for a message: ASCII, control characters escaped, cut to a length."""
    try:
        text = json.dumps(value, default=lambda other: f"<{type(other).__name__}>")
    except RecursionError:
        return "<nested too deeply to be shown>"
    return text if len(text) <= characters else text[:characters] + "..."


def bad_row(place: Place, reason: str, *, excerpt: object) -> BadRow:
    """The record of a row that cannot be used."""
    return BadRow(
        file=place.file,
        row=place.number,
        unit=place.unit,
        reason=reason,
        excerpt=shown(excerpt, EXCERPT_CHARACTERS),
    )


def kind_of(path: Path) -> str:
    """The suffix that says how to read a file, ``.gz`` taken off; empty where it is none of ours."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return suffixes[-1] if suffixes and suffixes[-1] in SUFFIXES else ""


def read_rows(path: Path, name: str) -> Iterator[Row | BadRow]:
    """The rows of one file, in order.

    Args:
        path: The file.
        name: What messages call it.

    Raises:
        DataError: The file as a whole cannot be read.
    """
    kind = kind_of(path)
    if not kind:
        raise DataError(
            f"{name}: this kind of file is not read; it ends in {path.suffix or 'nothing'!r}. "
            f"Convert it to one of: {', '.join(SUFFIXES)}"
        )
    if kind == ".parquet":
        return _parquet(path, name)
    content = _content(path, name)
    if kind in (".csv", ".tsv"):
        return _table(content, name, delimiter="," if kind == ".csv" else "\t")
    if kind == ".json" and content.lstrip()[:1] == b"[":
        return _json_array(content, name)
    return _json_lines(content, name)


def _content(path: Path, name: str) -> bytes:
    try:
        content = path.read_bytes()
        if path.suffix.lower() == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:  # of a truncated file, and of a damaged one
        raise DataError(f"{name}: cannot be read: {error}. Check that the file is complete") from error
    return content.removeprefix(b"\xef\xbb\xbf")


def _json_lines(content: bytes, name: str) -> Iterator[Row | BadRow]:
    # Only a line feed ends a line: JSON strings may hold other Unicode line separators.
    for number, line in enumerate(content.split(b"\n"), start=1):
        if not line.strip():
            continue
        place = Place(file=name, unit="line", number=number)
        try:
            value = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as error:
            raw = line.decode("utf-8", "backslashreplace")
            yield bad_row(
                place, f"not UTF-8: {error.reason} at byte {error.start}; save as UTF-8", excerpt=raw
            )
        except (ValueError, RecursionError) as error:
            yield bad_row(place, f"not JSON: {error}; one JSON object per line", excerpt=line.decode("utf-8"))
        else:
            yield _object(place, value)


def _json_array(content: bytes, name: str) -> Iterator[Row | BadRow]:
    try:
        values = cast("list[object]", json.loads(content.decode("utf-8")))
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: not UTF-8: {error.reason} at byte {error.start}; save as UTF-8") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{name}: not a JSON array: {error}; check that the file is complete") from error
    for number, value in enumerate(values, start=1):
        yield _object(Place(file=name, unit="row", number=number), value)


def _object(place: Place, value: object) -> Row | BadRow:
    if isinstance(value, dict):
        return Row(place=place, values=cast("dict[str, object]", value))
    return bad_row(place, "not a JSON object; a row is an object with named fields", excerpt=value)


def _table(content: bytes, name: str, *, delimiter: str) -> Iterator[Row | BadRow]:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        reason = f"not UTF-8: {error.reason} at byte {error.start}"
        raise DataError(f"{name} line {line}: {reason}; save the file as UTF-8") from error
    lines = _cells(text, name, delimiter=delimiter)
    _, header = next(lines, (0, []))
    repeated = sorted({column for column in header if header.count(column) > 1})
    if repeated:
        raise DataError(f"{name} line 1: column {repeated[0]!r} stands there twice; rename one of them")
    for number, cells in lines:
        place = Place(file=name, unit="line", number=number)
        if len(cells) != len(header):
            reason = f"{len(cells)} cells where the first line names {len(header)} columns; check quotes"
            yield bad_row(place, reason, excerpt=cells)
        else:
            # A table cannot tell an empty text from nothing; nothing is what people mean.
            values = {column: cell for column, cell in zip(header, cells, strict=True) if cell != ""}
            yield Row(place=place, values=values)


def _cells(text: str, name: str, *, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of every record that is not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    records: list[tuple[int, list[str]]] = []
    # The limit is a setting of the csv module, 131072 by default: too short for a long chain of thought.
    before = csv.field_size_limit(sys.maxsize)
    try:
        start = 1
        for cells in reader:
            if cells:
                records.append((start, cells))
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{name} line {reader.line_num}: {error}; check the quotes around it") from error
    finally:
        csv.field_size_limit(before)
    return iter(records)


def _parquet(path: Path, name: str) -> Iterator[Row | BadRow]:
    try:
        with pq.ParquetFile(path) as file:
            metadata = cast("Mapping[bytes, bytes]", file.schema_arrow.metadata or {})
            columns = cast("list[str]", json.loads(metadata.get(JSON_COLUMNS, b"[]")))
            values = [row for batch in file.iter_batches() for row in batch.to_pylist()]
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        size = path.stat().st_size if path.exists() else 0
        raise DataError(
            f"{name}: not a complete Parquet file of {size} bytes: {reason}. Copy or export it again"
        ) from error
    return arrow_rows(values, name, json_columns=columns)


def arrow_rows(
    values: Iterable[Mapping[str, object]], name: str, *, json_columns: Sequence[str] = ()
) -> Iterator[Row | BadRow]:
    """Rows out of Arrow, structs stripped of the nulls that pad them, JSON columns decoded."""
    for number, raw in enumerate(values, start=1):
        place = Place(file=name, unit="row", number=number)
        row = {column: without_padding(value) for column, value in raw.items() if value is not None}
        try:
            decoded = {column: json.loads(str(row[column])) for column in json_columns if column in row}
        except (ValueError, RecursionError) as error:
            yield bad_row(
                place, f"a cell of the columns {list(json_columns)} is not JSON: {error}", excerpt=row
            )
        else:
            yield Row(place=place, values=row | decoded)


def without_padding(value: object) -> object:
    """Structs without the nulls that Arrow pads them with, arrays as lists; empty texts and zeros stay."""
    if isinstance(value, np.ndarray | np.generic):
        return without_padding(value.tolist())
    if isinstance(value, Mapping):
        items = cast("Mapping[str, object]", value).items()
        return {name: without_padding(item) for name, item in items if item is not None}
    if isinstance(value, list | tuple):
        return [without_padding(item) for item in cast("Sequence[object]", value)]
    return value


def nearest_names(folder: Path, name: str) -> str:
    """What to say about a missing file: the nearest name in its folder, or what the folder holds."""
    if not folder.is_dir():
        return f"the folder {folder.name!r} does not exist either"
    names = sorted(entry.name for entry in folder.iterdir())
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"the folder holds: {', '.join(names[:10]) or 'nothing'}{', ...' if len(names) > 10 else ''}"
