"""Traces and credit -> a batch: every field at the position that predicts its token."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from bimetal.core.batch import ORIGIN_CODES
from bimetal.core.types import (
    Credit,
    Draft,
    Finish,
    Origin,
    PromptId,
    Segment,
    SegmentWeight,
    Signals,
    Trace,
    TraceId,
)
from bimetal.data.collate import Row, collate

HEAD = Segment(origin=Origin.PROMPT, token_ids=(10, 11, 12))
SHOWN = Segment(origin=Origin.DEMONSTRATION, token_ids=(20, 21), logprobs=(-0.1, -0.2))
WRITTEN = Segment(origin=Origin.POLICY, token_ids=(30, 31, 32), logprobs=(-1.0, -2.0, -3.0), temperature=0.5)
TOOL = Segment(origin=Origin.ENVIRONMENT, token_ids=(40,))


def a_row(name: str, *segments: Segment, credit: Credit | None = None, group: int = 0, **fields) -> Row:
    trace = Trace(
        id=TraceId(name), prompt_id=PromptId("p"), domain="d", visit=0, member=0, draft=Draft(),
        contexts=(segments,), finish=Finish.STOP,
    )  # fmt: skip
    given = credit or Credit(trace_id=trace.id, **fields)
    return Row(trace=trace, credit=dataclasses.replace(given, trace_id=trace.id), group=group)


def a_batch(*rows: Row, signals: Signals | None = None, terms=("on", "off")):
    return collate(rows, terms=terms, signals=signals or Signals(), dtype=torch.float64)


def test_position_t_holds_what_concerns_the_token_predicted_there():
    batch = a_batch(a_row("a", HEAD, SHOWN, WRITTEN))
    # ids 10 11 12 | 20 21 | 30 31 32: eight tokens, seven of them predicted
    assert batch.input_ids.tolist() == [[10, 11, 12, 20, 21, 30, 31]]
    assert batch.targets.tolist() == [[11, 12, 20, 21, 30, 31, 32]]
    assert batch.mask.tolist() == [[False, False, True, True, True, True, True]]
    codes = [ORIGIN_CODES[o] for o in (Origin.PROMPT, Origin.DEMONSTRATION, Origin.POLICY)]
    assert batch.origin.tolist() == [[codes[0]] * 2 + [codes[1]] * 2 + [codes[2]] * 3]
    assert batch.temperature.tolist() == [[1.0] * 4 + [0.5] * 3]
    assert batch.sampler_logprobs.tolist() == [[0, 0, 0, 0, -1.0, -2.0, -3.0]]
    assert batch.author_logprobs.tolist() == [[0, 0, -0.1, -0.2, 0, 0, 0]]


def test_members_and_weights_stand_on_the_segment_that_credit_names():
    weights = (
        SegmentWeight(term="off", segment=1, weight=0.5),
        SegmentWeight(term="on", segment=2, weight=(1.0, 0.0, 3.0)),
    )
    batch = a_batch(a_row("a", HEAD, SHOWN, WRITTEN, weights=weights))
    assert batch.members["off"].tolist() == [[False, False, True, True, False, False, False]]
    assert batch.weights["off"].tolist() == [[0, 0, 0.5, 0.5, 0, 0, 0]]
    # A weight of 0 keeps its token a member.
    assert batch.members["on"].tolist() == [[False] * 4 + [True] * 3]
    assert batch.weights["on"].tolist() == [[0, 0, 0, 0, 1.0, 0.0, 3.0]]


def test_a_term_that_nobody_is_routed_to_has_no_members():
    batch = a_batch(a_row("a", HEAD, WRITTEN))
    assert not bool(batch.members["off"].any())


def test_rows_are_padded_on_the_right_and_groups_numbered():
    batch = a_batch(a_row("a", HEAD, WRITTEN), a_row("b", HEAD, TOOL, group=3))
    assert batch.attention.tolist() == [[True] * 5, [True] * 3 + [False] * 2]
    assert batch.input_ids[1].tolist() == [10, 11, 12, 0, 0]
    assert batch.mask[1].tolist() == [False, False, True, False, False]
    assert batch.temperature[1].tolist() == [1.0] * 5
    assert batch.group.tolist() == [0, 3]
    assert batch.trace_ids == ("a", "b")


def test_one_advantage_is_spread_over_the_response_and_one_per_token_is_kept():
    batch = a_batch(
        a_row("a", HEAD, SHOWN, TOOL, advantage=0.25), a_row("b", HEAD, WRITTEN, advantage=(1.0, 2.0, 3.0))
    )
    assert batch.advantages.tolist() == [[0, 0, 0.25, 0.25, 0.25], [0, 0, 1.0, 2.0, 3.0]]


def test_returns_and_signals_stand_on_response_tokens_and_are_absent_where_nobody_has_any():
    rows = (a_row("a", HEAD, WRITTEN, returns=(0.1, 0.2, 0.3)), a_row("b", HEAD, TOOL))
    signals = Signals(
        values={TraceId("a"): (1.0, 2.0, 3.0)},
        old_logprobs={TraceId("a"): (-1.0, -2.0, -3.0), TraceId("b"): (-4.0,)},
    )
    batch = a_batch(*rows, signals=signals)
    # Row b has one response token, and nobody computed its return or value: NaN, which no term may read.
    torch.testing.assert_close(
        batch.returns, torch.tensor([[0, 0, 0.1, 0.2, 0.3], [0, 0, math.nan, 0, 0]]).double(), equal_nan=True
    )
    torch.testing.assert_close(
        batch.old_values,
        torch.tensor([[0, 0, 1.0, 2.0, 3.0], [0, 0, math.nan, 0, 0]]).double(),
        equal_nan=True,
    )
    assert batch.old_logprobs.tolist() == [[0, 0, -1.0, -2.0, -3.0], [0, 0, -4.0, 0, 0]]
    assert batch.reference_logprobs is None
    bare = a_batch(*(a_row(n, HEAD, TOOL) for n in "ab"))
    assert (bare.returns, bare.old_values, bare.old_logprobs) == (None, None, None)


def test_a_signal_that_only_traces_of_other_steps_have_is_nan_and_not_absent():
    signals = Signals(old_logprobs={TraceId("elsewhere"): (-1.0,)})
    batch = a_batch(a_row("a", HEAD, TOOL), signals=signals)
    assert [math.isnan(x) for x in batch.old_logprobs[0].tolist()] == [False, False, True]
    assert batch.reference_logprobs is None


def test_author_and_sampler_log_probabilities_are_all_there_or_absent():
    silent = dataclasses.replace(WRITTEN, logprobs=None)
    batch = a_batch(a_row("a", HEAD, WRITTEN), a_row("b", HEAD, silent))
    assert batch.sampler_logprobs is None
    assert batch.author_logprobs is None


@pytest.mark.parametrize(
    ("row", "match"),
    [
        (a_row("a", HEAD, WRITTEN, weights=(SegmentWeight(term="of", segment=1),)), "'of', segment 1"),
        (a_row("a", HEAD, WRITTEN, weights=(SegmentWeight(term="on", segment=2),)), "segment 2"),
        (a_row("a", HEAD, WRITTEN, weights=(SegmentWeight(term="on", segment=0),)), "prompt tokens"),
        (a_row("a", HEAD, WRITTEN, advantage=(1.0,)), "1 numbers for 3 tokens"),
        (a_row("a", HEAD, WRITTEN, returns=(1.0, 2.0)), "2 numbers for 3 tokens"),
        (a_row("a", Segment(origin=Origin.PROMPT, token_ids=(1,))), "a prompt token and one token more"),
    ],
)
def test_credit_that_does_not_fit_its_trace_is_refused(row, match):
    with pytest.raises(ValueError, match=match):
        a_batch(row)


def test_weights_per_token_must_fit_their_segment():
    weights = (SegmentWeight(term="on", segment=1, weight=(1.0, 2.0)),)
    with pytest.raises(ValueError, match="2 weights for 3 tokens of 'on'"):
        a_batch(a_row("a", HEAD, WRITTEN, weights=weights))


def test_no_rows_are_refused():
    with pytest.raises(ValueError, match="at least one trace"):
        collate([], terms=(), signals=Signals())


def test_a_trace_without_a_response_is_a_row_without_members():
    batch = a_batch(a_row("a", HEAD), a_row("b", HEAD, WRITTEN))
    assert batch.mask[0].tolist() == [False] * 5
    assert batch.attention[0].tolist() == [True, True, False, False, False]


def test_a_response_needs_a_prompt_token_before_it():
    with pytest.raises(ValueError, match="prompt token"):
        a_batch(a_row("a", WRITTEN, weights=(SegmentWeight(term="on", segment=0),)))


def test_numbers_take_the_dtype_that_is_asked_for():
    row = a_row("a", HEAD, WRITTEN, advantage=0.1)
    assert collate([row], terms=("on",), signals=Signals()).advantages.dtype is torch.float32
    assert a_batch(row).advantages.dtype is torch.float64


def test_rows_of_a_batch_are_cut_to_the_longest_of_them():
    batch = a_batch(a_row("a", HEAD, WRITTEN), a_row("b", HEAD, TOOL, advantage=0.5, group=1))
    part = batch.rows([1])
    assert part.input_ids.tolist() == [[10, 11, 12]]
    assert part.advantages.tolist() == [[0, 0, 0.5]]
    assert part.group.tolist() == [1]
    assert part.trace_ids == ("b",)
    assert batch.rows([1, 0]).trace_ids == ("b", "a")
    assert batch.size == 2
