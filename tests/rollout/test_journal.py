"""Tests of bimetal.rollout.journal."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rollout.scene import CORRECT, WRONG, trace

from bimetal.core.errors import CheckpointError
from bimetal.core.types import TraceId
from bimetal.rollout.journal import Journal

A, B = trace("a#0.0"), trace("a#0.1", text="\ud800\x00")


def written(folder: Path) -> Path:
    """A journal with one call, its verdicts and its order; the file of the batch."""
    journal = Journal(folder)
    journal.open_batch(3)
    journal.record_call("round-0", [A, B])
    journal.record_verdicts({A.id: CORRECT})
    journal.record_verdicts({B.id: WRONG})
    journal.record_order([A.id, B.id])
    return folder / "batch-00000003.jsonl"


def opened(folder: Path, number: int = 3) -> Journal:
    journal = Journal(folder)
    journal.open_batch(number)
    return journal


def test_another_process_recalls_what_was_recorded(tmp_path):
    written(tmp_path)
    journal = opened(tmp_path)
    assert journal.recall("round-0") == (A, B)
    assert journal.recall("round-1") is None
    assert journal.verdicts() == {A.id: CORRECT, B.id: WRONG}
    journal.record_order([A.id, B.id])


def test_another_batch_recalls_nothing(tmp_path):
    written(tmp_path)
    journal = opened(tmp_path, 4)
    assert (journal.recall("round-0"), dict(journal.verdicts())) == (None, {})


def test_another_order_than_the_journals_is_refused(tmp_path):
    written(tmp_path)
    with pytest.raises(CheckpointError, match="in another order than the journal holds"):
        opened(tmp_path).record_order([B.id, A.id])


def test_wherever_the_file_is_cut_whole_lines_are_recalled_and_the_rest_is_dropped(tmp_path):
    data = written(tmp_path).read_bytes()
    ends = [n + 1 for n, byte in enumerate(data) if byte == ord("\n")]
    for cut in sorted(
        {0, 1, len(data) - 1, *(e + d for e in ends for d in (-1, 0, 1) if e + d <= len(data))}
    ):
        path = tmp_path / "batch-00000003.jsonl"
        path.write_bytes(data[:cut])
        journal = opened(tmp_path)
        whole = sum(end <= cut for end in ends)
        assert (journal.recall("round-0") is not None) == (whole >= 1)
        assert len(journal.verdicts()) == max(min(whole - 1, 2), 0)
        assert path.stat().st_size == ([0, *ends][whole])
        journal.record_verdicts({A.id: CORRECT})
        assert len(opened(tmp_path).verdicts()) >= 1


@given(place=st.integers(min_value=0), bit=st.integers(min_value=0, max_value=7))
def test_a_flipped_bit_never_changes_what_is_recalled(tmp_path_factory, place, bit):
    path = written(tmp_path_factory.mktemp("journal"))
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 1 << bit
    path.write_bytes(data)
    journal = opened(path.parent)
    assert journal.recall("round-0") in {None, (A, B)}
    assert dict(journal.verdicts()).items() <= {A.id: CORRECT, B.id: WRONG}.items()


def test_batches_before_one_are_forgotten_and_strange_files_are_left_alone(tmp_path):
    journal = Journal(tmp_path)
    for number in range(4):
        journal.open_batch(number)
        journal.record_order([])
    (tmp_path / "batch-notes.jsonl").write_text("mine")
    journal.forget_before(2)
    journal.forget_from(3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["batch-00000002.jsonl", "batch-notes.jsonl"]


def test_forgotten_verdicts_are_gone_and_traces_stay(tmp_path):
    written(tmp_path)
    opened(tmp_path).forget_verdicts()
    journal = opened(tmp_path)
    assert journal.recall("round-0") == (A, B)
    assert not journal.verdicts()
    journal.record_order([B.id, A.id])


@pytest.mark.parametrize(
    "row",
    [[], {}, {"kind": "call"}, {"kind": "call", "call": "round-0", "traces": [{"schema_version": 99}]},
     {"kind": "verdicts", "verdicts": {"a": {"status": "nosuch"}}}, {"kind": "verdicts", "verdicts": [1]}],
)  # fmt: skip
def test_a_whole_line_that_is_no_record_is_an_error(tmp_path, row):
    body = json.dumps(row).encode("ascii")
    (tmp_path / "batch-00000003.jsonl").write_bytes(b"%08x " % zlib.crc32(body) + body + b"\n")
    with pytest.raises(CheckpointError, match=r"batch-00000003.jsonl: cannot be used"):
        opened(tmp_path)


def test_nothing_is_recorded_before_a_batch_is_opened(tmp_path):
    with pytest.raises(ValueError, match="open_batch comes first"):
        Journal(tmp_path).record_order([TraceId("a")])
