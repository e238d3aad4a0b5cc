"""Files on disk to rows: what is wrong with a file or a row, and where."""

from __future__ import annotations

import csv
import gzip
import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bimetal.core.errors import DataError
from bimetal.data.corpus import BadRow
from bimetal.data.readers import Row, read_rows, without_padding


def read(folder: Path, name: str, content: bytes) -> list[Row | BadRow]:
    (folder / name).write_bytes(content)
    return list(read_rows(folder / name, f"data/{name}"))


def values(rows: list[Row | BadRow]) -> list[object]:
    return [row.values if isinstance(row, Row) else row.reason for row in rows]


def test_json_lines_end_at_a_line_feed_only(tmp_path: Path):
    content = '\ufeff{"a": "x\u2028y"}\r\n\n  \n{"a": 2}'.encode()
    rows = read(tmp_path, "a.jsonl", content)
    assert values(rows) == [{"a": "x\u2028y"}, {"a": 2}]
    # The blank lines count: the second object stands in line 4.
    assert [str(row.place) for row in rows if isinstance(row, Row)] == [
        "data/a.jsonl line 1",
        "data/a.jsonl line 4",
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"a": "\xff"}', "not UTF-8: invalid start byte at byte 7; save as UTF-8"),
        (b'{"a": ', "not JSON: Expecting value"),
        (b"[1]", "not a JSON object; a row is an object with named fields"),
        (b"17", "not a JSON object"),
        (b"[" * 100_000, "not JSON: "),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON: Exceeds the limit"),
    ],
)
def test_a_bad_json_line_is_a_bad_row_and_the_next_one_is_read(tmp_path: Path, line: bytes, said: str):
    bad, good = read(tmp_path, "a.jsonl", line + b'\n{"a": 1}\n')
    assert isinstance(bad, BadRow)
    assert (bad.file, bad.unit, bad.row) == ("data/a.jsonl", "line", 1)
    assert bad.reason.startswith(said)
    assert len(bad.excerpt) <= 503
    assert bad.excerpt.isascii()
    assert isinstance(good, Row)


def test_a_json_file_is_an_array_or_json_lines(tmp_path: Path):
    assert values(read(tmp_path, "a.json", b' [{"a": 1}, 2]')) == [
        {"a": 1},
        "not a JSON object; a row is an object with named fields",
    ]
    assert values(read(tmp_path, "b.json", b'{"a": 1}\n{"a": 2}\n')) == [{"a": 1}, {"a": 2}]
    with pytest.raises(
        DataError, match=r"data/c\.json: not a JSON array: .*; check that the file is complete"
    ):
        read(tmp_path, "c.json", b'[{"a": 1},')
    with pytest.raises(DataError, match=r"data/d\.json: not UTF-8: invalid start byte at byte 2"):
        read(tmp_path, "d.json", b'["\xff"]')


def test_compressed_text_is_read_and_a_truncated_one_named(tmp_path: Path):
    packed = gzip.compress(b'{"a": 1}\n')
    assert values(read(tmp_path, "a.jsonl.gz", packed)) == [{"a": 1}]
    with pytest.raises(
        DataError, match=r"data/b\.jsonl\.gz: cannot be read: .*Check that the file is complete"
    ):
        read(tmp_path, "b.jsonl.gz", packed[:-9])
    spoiled = packed[:10] + bytes([packed[10] ^ 0xFF]) + packed[11:]
    with pytest.raises(DataError, match=r"data/c\.jsonl\.gz: cannot be read"):
        read(tmp_path, "c.jsonl.gz", spoiled)


def test_tables_have_line_numbers_quotes_and_missing_cells(tmp_path: Path):
    rows = read(tmp_path, "a.csv", b'q,a\n"two\nlines",1\n\nx,\ny\nz,"a ""b"", c"\n')
    assert values(rows) == [
        {"q": "two\nlines", "a": "1"},
        {"q": "x"},
        "1 cells where the first line names 2 columns; check quotes",
        {"q": "z", "a": 'a "b", c'},
    ]
    assert [row.place.number if isinstance(row, Row) else row.row for row in rows] == [2, 5, 6, 7]
    assert values(read(tmp_path, "a.tsv", b"q\ta\nx,y\t2\n")) == [{"q": "x,y", "a": "2"}]


def test_a_long_cell_and_a_nul_are_read_and_the_limit_of_csv_stays_what_it_was(tmp_path: Path):
    before = csv.field_size_limit()
    long = "x" * 300_000
    assert values(read(tmp_path, "a.csv", f"q\n{long}\na\0b\n".encode())) == [{"q": long}, {"q": "a\0b"}]
    assert csv.field_size_limit() == before


def test_broken_tables_are_named_with_their_line(tmp_path: Path):
    with pytest.raises(DataError, match=r"data/a\.csv line 1: column 'q' stands there twice; rename one"):
        read(tmp_path, "a.csv", b"q,q\n1,2\n")
    with pytest.raises(
        DataError, match=r"data/b\.csv line 3: not UTF-8: .* at byte 5; save the file as UTF-8"
    ):
        read(tmp_path, "b.csv", b"q\nok\n\xff\n")
    with pytest.raises(DataError, match=r"data/c\.csv line 2: unexpected end of data; check the quotes"):
        read(tmp_path, "c.csv", b'q\n"open')


def test_an_empty_table_has_no_rows(tmp_path: Path):
    assert read(tmp_path, "a.csv", b"") == []
    assert read(tmp_path, "a.jsonl", b"\n") == []


def test_parquet_rows_lose_the_nulls_that_pad_structs_and_nothing_else(tmp_path: Path):
    table = pa.Table.from_pylist([{"a": {"x": 0, "y": ""}, "b": [None, 1]}, {"a": {"z": False}, "b": None}])
    pq.write_table(table, tmp_path / "a.parquet")
    rows = list(read_rows(tmp_path / "a.parquet", "a.parquet"))
    assert values(rows) == [{"a": {"x": 0, "y": ""}, "b": [None, 1]}, {"a": {"z": False}}]


def test_numpy_values_become_plain_ones():
    assert without_padding({"a": np.array([1, 2]), "b": np.float64(0.5), "c": (np.int64(3),), "d": None}) == {
        "a": [1, 2],
        "b": 0.5,
        "c": [3],
    }


def test_a_truncated_parquet_file_is_named_with_its_size(tmp_path: Path):
    pq.write_table(pa.table({"a": list(range(1000))}), tmp_path / "a.parquet")
    whole = (tmp_path / "a.parquet").read_bytes()
    with pytest.raises(
        DataError, match=r"data/a\.parquet: not a complete Parquet file of 50 bytes: .*Copy or export"
    ):
        read(tmp_path, "a.parquet", whole[:50])
    with pytest.raises(DataError, match=r"data/b\.parquet: not a complete Parquet file of 0 bytes"):
        read(tmp_path, "b.parquet", b"")
    with pytest.raises(DataError, match=r"data/c\.parquet: not a complete Parquet file"):
        read(tmp_path, "c.parquet", whole[:8] + b"\0" * 40 + whole[48:])


def test_another_kind_of_file_is_refused_with_the_kinds_that_are_read(tmp_path: Path):
    with pytest.raises(
        DataError, match=r"data/a\.xlsx: this kind of file is not read; it ends in '\.xlsx'.*\.jsonl"
    ):
        read(tmp_path, "a.xlsx", b"PK")


class Trap:
    """Leaves a file behind where it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return Path.touch, (Path(self.path),)


@pytest.mark.filterwarnings("default")  # Arrow may warn that it does not load the type, and that is the point
def test_pickled_cells_and_pickled_column_types_are_never_unpickled(tmp_path: Path):
    trap = pickle.dumps(Trap(str(tmp_path / "sprung")))
    metadata = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": trap}
    schema = pa.schema([pa.field("a", pa.binary()), pa.field("b", pa.int64(), metadata=metadata)])
    pq.write_table(pa.table({"a": [trap], "b": [1]}, schema=schema), tmp_path / "a.parquet")
    assert values(list(read_rows(tmp_path / "a.parquet", "a"))) == [{"a": trap, "b": 1}]
    assert not (tmp_path / "sprung").exists()
    pickle.loads(trap)  # the trap works, so the line above means something
    assert (tmp_path / "sprung").exists()


def test_json_columns_of_a_parquet_file_are_decoded_and_a_broken_cell_is_a_bad_row(tmp_path: Path):
    table = pa.table({"a": ['{"x": null}', "{"], "b": ["1", "2"]})
    table = table.replace_schema_metadata({"bimetal.json_columns": json.dumps(["a"])})
    pq.write_table(table, tmp_path / "a.parquet")
    good, bad = read_rows(tmp_path / "a.parquet", "a")
    assert isinstance(good, Row)
    assert good.values == {"a": {"x": None}, "b": "1"}
    assert isinstance(bad, BadRow)
    assert "is not JSON" in bad.reason
