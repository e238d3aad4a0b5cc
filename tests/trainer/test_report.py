"""Tests of bimetal.trainer.report."""

from __future__ import annotations

import json
import math

import pytest

from bimetal.core.errors import CheckpointError
from bimetal.trainer.report import JsonLines, Line, Sink, finite


def line(step, **metrics):
    return Line(step=step, stage="sft", batch=step, metrics=metrics, times={"time/update_seconds": 0.5})


@pytest.fixture
def lines(tmp_path):
    found = JsonLines(tmp_path / "metrics.jsonl")
    for step in (1, 2, 3):
        found.line(line(step, x=1 / step))
    return found


def read(lines):
    return [json.loads(row) for row in lines.path.read_text("ascii").splitlines()]


def test_a_line_is_one_json_object_with_times_apart(lines):
    assert isinstance(lines, Sink)
    assert read(lines)[2] == {
        "step": 3, "stage": "sft", "batch": 3, "metrics": {"x": 1 / 3}, "times": {"time/update_seconds": 0.5},
    }  # fmt: skip


def test_the_file_is_cut_to_whole_lines_and_goes_on_from_there(lines):
    lines.path.write_bytes(lines.path.read_bytes()[:-5])
    lines.cut_to(2)
    lines.line(line(7))
    assert [row["step"] for row in read(lines)] == [1, 2, 7]


def test_a_file_that_is_shorter_than_the_checkpoint_says_is_an_error(lines):
    lines.path.write_bytes(lines.path.read_bytes()[:-5])
    with pytest.raises(CheckpointError, match="saved after 3 lines; found 2"):
        lines.cut_to(3)
    assert len(lines.path.read_bytes().splitlines()) == 3


def test_a_file_that_is_not_there_has_no_lines(tmp_path):
    lines = JsonLines(tmp_path / "metrics.jsonl")
    lines.cut_to(0)
    assert not lines.path.exists()
    with pytest.raises(CheckpointError, match="found 0"):
        lines.cut_to(1)


def test_what_is_not_finite_is_null():
    found = finite({"a": 1, "b": math.inf, "c": math.nan, "d": None, "e": 0.25})
    assert found == {"a": 1.0, "b": None, "c": None, "d": None, "e": 0.25}


def test_a_number_json_cannot_hold_is_never_written(lines):
    with pytest.raises(ValueError, match="not JSON compliant"):
        lines.line(line(4, x=math.nan))


def test_a_line_that_cannot_be_written_says_what_to_do(tmp_path):
    with pytest.raises(CheckpointError, match="then resume the run"):
        JsonLines(tmp_path / "nowhere" / "metrics.jsonl").line(line(1))
