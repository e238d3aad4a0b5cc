"""Writing a corpus in the canonical schema; what is written loads as the same prompts and demonstrations."""

# pyright: reportUnknownParameterType=false
# (pyarrow's classes are compiled and have no types)
from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pyarrow.parquet as pq

from bimetal.core.errors import DataError
from bimetal.core.types import JsonValue
from bimetal.data.corpus import Corpus, canonical_rows, json_line
from bimetal.data.readers import JSON_COLUMNS

_KINDS: Mapping[str, pa.DataType | None] = MappingProxyType(
    {
        "id": pa.string(),
        "domain": pa.string(),
        "messages": pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())])),
        "reference": None,
        "difficulty": pa.float64(),
        "demonstrations": None,
        "problem": pa.string(),
        "source": pa.string(),
        "stream": pa.string(),
        "meta": None,
    }
)
"""Column -> Arrow type; ``None`` where types differ from row to row, so that JSON text is the exact form."""


def write_canonical(corpus: Corpus, path: Path) -> Path:
    """Write the prompts and demonstrations to a ``.jsonl`` or ``.parquet`` file; its path.

    In Parquet, ``reference``, ``demonstrations`` and ``meta`` are JSON text, since their types differ from
    row to row; the file's metadata lists such columns, and the loader decodes them.

    Raises:
        DataError: The file name ends in something else.
    """
    if path.suffix == ".jsonl":
        path.write_text("".join(map(json_line, canonical_rows(corpus))), encoding="ascii", newline="\n")
        return path
    if path.suffix != ".parquet":
        raise DataError(f"{path.name}: the canonical schema is written to .jsonl or .parquet; choose one")
    rows = list(canonical_rows(corpus))
    arrays: dict[str, pa.Array] = {}
    as_json: list[str] = []
    for column, kind in _KINDS.items():
        cells = [row.get(column) for row in rows]
        native = _native(cells, kind)
        if native is None:
            as_json.append(column)
        arrays[column] = pa.array(_json_cells(cells), type=pa.string()) if native is None else native
    table = pa.table(arrays).replace_schema_metadata({JSON_COLUMNS: json.dumps(as_json)})
    pq.write_table(table, path)
    return path


def _native(cells: Sequence[JsonValue], kind: pa.DataType | None) -> pa.Array | None:
    """The cells as Arrow has them; ``None`` where only JSON text keeps them as they are."""
    if kind is None:
        return None
    try:
        return pa.array(cells, type=kind)
    except UnicodeError:  # a lone surrogate has no UTF-8, but it has a JSON escape
        return None


def _json_cells(cells: Sequence[JsonValue]) -> list[str | None]:
    return [None if cell is None else json_line(cell).rstrip("\n") for cell in cells]
