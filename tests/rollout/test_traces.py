"""Tests of bimetal.rollout.traces."""

from __future__ import annotations

import json
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from tests.rollout.scene import CORRECT, prompt, trace

from bimetal.core.errors import CheckpointError
from bimetal.core.types import Credit, Group
from bimetal.rollout.traces import TraceWriter

HOSTILE = "\ud800\x00\u202e" + "a" * 100_000


def group(*texts, verdict=CORRECT):
    traces = tuple(trace(f"p#0.{n}", text=text, verdict=verdict) for n, text in enumerate(texts))
    return Group(prompt=prompt("p"), visit=0, traces=traces)


def added(writer, groups, advantage=0.5, batch=0):
    credits = {t.id: Credit(trace_id=t.id, advantage=advantage) for g in groups for t in g.traces}
    writer.add(groups, credits, stage="rl", batch=batch)


def rows(folder, batches):
    return pq.read_table(folder / f"batch-{batches:08d}.parquet").to_pylist()


def test_a_row_holds_what_a_person_wants_to_know(tmp_path):
    writer = TraceWriter(tmp_path)
    added(writer, [group("1")], advantage=(1.0, 0.0), batch=4)
    writer.flush(5)
    (row,) = rows(tmp_path, 5)
    expected = {
        "id": "p#0.0", "prompt_id": "p", "domain": "d", "stage": "rl", "batch": 4, "prompt": "p?",
        "text": "1", "status": "correct", "reward": 1.0, "reason": "ok", "policy_tokens": 2, "finish": "stop",
    }  # fmt: skip
    assert {key: row[key] for key in expected} == expected
    assert row["advantage"] == 0.5  # (1 + 0) / 2
    assert [s["origin"] for s in json.loads(row["segments"])] == ["prompt", "policy"]
    assert json.loads(row["parts"]) == {"strict": 1.0}


def test_hostile_text_is_written_and_can_be_read(tmp_path):
    writer = TraceWriter(tmp_path)
    verdict = replace(CORRECT, extracted=HOSTILE, detail=HOSTILE, reason="\udfff")
    added(writer, [group(HOSTILE, verdict=verdict)])
    writer.flush(1)
    (row,) = rows(tmp_path, 1)
    assert row["text"] == "\\ud800\x00\u202e" + "a" * 100_000
    assert row["extracted"] == row["detail"] == row["text"]
    assert row["reason"] == "\\udfff"


def test_a_trace_nobody_judged_has_no_verdict(tmp_path):
    writer = TraceWriter(tmp_path)
    added(writer, [group("1", verdict=None)])
    writer.flush(1)
    (row,) = rows(tmp_path, 1)
    assert (row["status"], row["reward"], row["parts"]) == (None, None, None)


def test_nothing_new_writes_nothing(tmp_path):
    writer = TraceWriter(tmp_path)
    writer.flush(1)
    added(writer, [group("1")])
    writer.flush(2)
    writer.flush(2)
    assert [p.name for p in tmp_path.iterdir()] == ["batch-00000002.parquet"]
    assert len(rows(tmp_path, 2)) == 1


def test_files_of_later_batches_are_cut_with_what_was_kept_and_other_files_stay(tmp_path):
    writer = TraceWriter(tmp_path)
    for batches in (2, 4):
        added(writer, [group("1")])
        writer.flush(batches)
    (tmp_path / "batch-x.parquet").write_text("mine")
    added(writer, [group("1")])
    writer.cut_after(2)
    writer.flush(9)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["batch-00000002.parquet", "batch-x.parquet"]


def test_a_folder_that_cannot_be_made_is_an_error_that_says_what_to_do(tmp_path):
    (tmp_path / "traces").write_text("a file")
    writer = TraceWriter(tmp_path / "traces")
    added(writer, [group("1")])
    with pytest.raises(CheckpointError, match="then resume the run"):
        writer.flush(1)
