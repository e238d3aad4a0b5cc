"""What the run knows about every prompt."""

from __future__ import annotations

import json
import resource
from math import sqrt
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bimetal.core.errors import CheckpointError
from bimetal.core.types import (
    Draft,
    Finish,
    Group,
    Message,
    Origin,
    Prompt,
    PromptId,
    Segment,
    Status,
    Trace,
    TraceId,
    Verdict,
)
from bimetal.data.ledger import Entry, Ledger, read_ledger, write_ledger

A = PromptId("a")
RIGHT = Verdict(status=Status.CORRECT, reward=1.0)
HALF = Verdict(status=Status.WRONG, reward=0.5)
NOTHING = Verdict(status=Status.UNPARSEABLE, reward=0.0)
UNKNOWN = Verdict(status=Status.UNKNOWN, reward=None, reason="timeout")
FREE, HINTED, WHOLE = Draft(), Draft(prefix_fraction=0.5), Draft(prefix_fraction=1.0)
GUIDED = Draft(guidance="look at the tens")


def group(*judged: tuple[Draft, Verdict | None], prompt_id: PromptId = A) -> Group:
    prompt = Prompt(id=prompt_id, domain="d", messages=(Message(role="user", content="x"),))
    segments = (
        Segment(origin=Origin.PROMPT, token_ids=(1, 2, 3)),
        Segment(origin=Origin.DEMONSTRATION, token_ids=(4,)),
        Segment(origin=Origin.POLICY, token_ids=(5, 6)),
    )
    traces = tuple(
        Trace(
            id=TraceId(str(member)),
            prompt_id=prompt_id,
            domain="d",
            visit=0,
            member=member,
            draft=draft,
            contexts=(segments,),
            finish=Finish.STOP,
            verdict=verdict,
        )
        for member, (draft, verdict) in enumerate(judged)
    )
    return Group(prompt=prompt, visit=0, traces=traces)


def test_only_judged_free_rollouts_are_attempts():
    ledger = Ledger()
    ledger.observe(
        [
            group((FREE, RIGHT), (FREE, HALF), (FREE, NOTHING), (FREE, UNKNOWN), (FREE, None)),
            group((HINTED, RIGHT), (WHOLE, RIGHT), (GUIDED, NOTHING), (HINTED, UNKNOWN)),
        ]
    )
    # 5 + 4 traces of two policy tokens each
    assert ledger.of(A) == Entry(visits=2, attempts=3, passes=1, unknown=2, assisted=3, generated_tokens=18)
    assert ledger.of(PromptId("b")) == Entry()
    assert list(ledger.entries) == [A]


def test_the_posterior_mean_is_laplace():
    assert Entry().mean == 0.5
    assert Entry(attempts=8, passes=2).mean == pytest.approx(0.3, rel=1e-12)  # (2 + 1) / (8 + 2)


def test_the_posterior_interval_agrees_with_the_distributions_that_have_closed_forms():
    assert Entry().interval() == pytest.approx((0.025, 0.975), abs=1e-9)  # uniform
    # One pass of one: density 2x, so x = sqrt(p). Two failures of two: P(X < x) = 1 - (1 - x)^3.
    assert Entry(attempts=1, passes=1).interval() == pytest.approx((sqrt(0.025), sqrt(0.975)), abs=1e-9)
    failed = (1 - 0.95 ** (1 / 3), 1 - 0.05 ** (1 / 3))
    assert Entry(attempts=2).interval(0.9) == pytest.approx(failed, abs=1e-9)
    with pytest.raises(ValueError, match="coverage is between 0 and 1; got 1"):
        Entry().interval(1.0)


@given(st.integers(0, 400), st.integers(0, 400))
def test_the_interval_is_symmetric_and_holds_the_mean(passes: int, fails: int):
    entry = Entry(attempts=passes + fails, passes=passes)
    mirrored = Entry(attempts=passes + fails, passes=fails)
    low, high = entry.interval()
    assert 0.0 <= low < entry.mean < high <= 1.0
    assert mirrored.interval() == pytest.approx((1 - high, 1 - low), abs=1e-8)


def ledger_of_two() -> Ledger:
    ledger = Ledger()
    ledger.observe(
        [group((FREE, RIGHT), (FREE, NOTHING)), group((FREE, RIGHT), prompt_id=PromptId("b\ud800\\u00e4"))]
    )
    return ledger


def test_the_state_is_json_and_comes_back():
    ledger = ledger_of_two()
    again = Ledger()
    again.load_state_dict(json.loads(json.dumps(ledger.state_dict())))
    assert again.entries == ledger.entries
    assert list(again.entries) == list(ledger.entries)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 2}, "must be of version 1 .* found version 2"),
        ({"columns": ["visits"]}, "must be of version 1"),
        ({"entries": None}, "holds no entries"),
        ({"entries": {"a": [1, 2]}}, "the entry of 'a' must be 6 counts"),
        ({"entries": {"a": [1, 2, 3, 0, 0, 0]}}, "passes at most attempts"),
        ({"entries": {"a": [1, -2, 0, 0, 0, 0]}}, "must be 6 counts"),
        ({"entries": {"a": [1, True, 0, 0, 0, 0]}}, "must be 6 counts"),
        ({"entries": {"a": "x"}}, "must be 6 counts"),
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(change: dict[str, object], said: str):
    ledger = ledger_of_two()
    before = ledger.entries
    with pytest.raises(CheckpointError, match=said):
        ledger.load_state_dict(ledger.state_dict() | change)
    assert ledger.entries == before


def test_the_file_holds_counts_and_posterior_and_comes_back(tmp_path: Path):
    path = tmp_path / "ledger.parquet"
    plain = Ledger(
        {A: Entry(visits=1, attempts=8, passes=2, generated_tokens=40), PromptId("b"): Entry(visits=1)}
    )
    for ledger in (ledger_of_two(), plain, Ledger()):
        assert write_ledger(ledger, path) == path
        assert read_ledger(path).entries == ledger.entries
        assert [entry.name for entry in tmp_path.iterdir()] == ["ledger.parquet"]
    write_ledger(plain, path)
    first, second = pq.read_table(path).to_pylist()
    assert (first["prompt_id"], first["passes"], first["pass_rate"]) == (
        "a",
        2,
        pytest.approx(0.3, rel=1e-12),
    )
    assert second["pass_rate_low"] == pytest.approx(0.025, abs=1e-9)


def test_a_ledger_that_cannot_be_written_leaves_the_old_one(tmp_path: Path):
    path = tmp_path / "ledger.parquet"
    write_ledger(ledger_of_two(), path)
    (tmp_path / "ledger.parquet.tmp").mkdir()
    with pytest.raises(CheckpointError, match=r"ledger\.parquet: cannot be written: "):
        write_ledger(Ledger(), path)
    assert read_ledger(path).entries == ledger_of_two().entries


def test_a_full_disk_leaves_the_old_ledger_and_no_rest(tmp_path: Path):
    path = tmp_path / "ledger.parquet"
    write_ledger(ledger_of_two(), path)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(CheckpointError, match=r"cannot be written: .* Free some space, then resume"):
            write_ledger(Ledger(), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert read_ledger(path).entries == ledger_of_two().entries
    assert [entry.name for entry in tmp_path.iterdir()] == ["ledger.parquet"]


def test_a_damaged_file_is_refused(tmp_path: Path):
    path = tmp_path / "ledger.parquet"
    with pytest.raises(CheckpointError, match=r"ledger\.parquet: cannot be read"):
        read_ledger(path)
    write_ledger(ledger_of_two(), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(CheckpointError, match=r"ledger\.parquet: cannot be read"):
        read_ledger(path)
