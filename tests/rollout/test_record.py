"""Tests of bimetal.rollout.record: what is read is what was written, through real JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rollout.scene import trace

from bimetal.core.types import (
    Draft,
    Finish,
    Origin,
    PromptId,
    Segment,
    Status,
    Stream,
    Trace,
    TraceId,
    Verdict,
)
from bimetal.rollout.record import trace_from_json, trace_to_json, verdict_from_json, verdict_to_json

# Every code point, lone surrogates and NULs among them.
TEXTS = st.text(st.characters(codec=None), max_size=20)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def segments(draw):
    ids = draw(st.lists(st.integers(0, 2**31), max_size=6).map(tuple))
    logprobs = st.lists(NUMBERS, min_size=len(ids), max_size=len(ids)).map(tuple)
    return Segment(
        origin=draw(st.sampled_from(Origin)),
        token_ids=ids,
        logprobs=draw(st.none() | logprobs),
        version=draw(st.none() | st.integers(0, 2**40)),
        temperature=draw(st.floats(0.1, 2.0)),
    )


TRACES = st.builds(
    Trace,
    id=TEXTS.map(TraceId),
    prompt_id=TEXTS.map(PromptId),
    domain=TEXTS,
    visit=st.integers(0, 1000),
    member=st.integers(0, 1000),
    draft=st.builds(
        Draft,
        prefix_fraction=st.floats(0.0, 1.0),
        demonstration=st.integers(0, 9),
        guidance=st.none() | TEXTS,
    ),
    contexts=st.lists(st.lists(segments(), max_size=3).map(tuple), min_size=1, max_size=2).map(tuple),
    finish=st.sampled_from(Finish),
    text=TEXTS,
    stream=st.sampled_from(Stream),
)

VERDICTS = st.builds(
    Verdict,
    status=st.sampled_from([Status.WRONG, Status.UNPARSEABLE]),
    reward=st.floats(0.0, 1.0),
    reason=TEXTS,
    parts=st.dictionaries(TEXTS, NUMBERS, max_size=3),
    extracted=st.none() | TEXTS,
    verifier=TEXTS,
    seconds=NUMBERS,
    detail=TEXTS,
) | st.builds(Verdict, status=st.just(Status.UNKNOWN), reward=st.none(), detail=TEXTS)


@given(TRACES)
def test_a_trace_comes_back_bit_for_bit(one):
    text = json.dumps(trace_to_json(one), allow_nan=False)
    assert text.isascii()
    assert repr(trace_from_json(json.loads(text))) == repr(one)


@given(VERDICTS)
def test_a_verdict_comes_back_bit_for_bit(one):
    text = json.dumps(verdict_to_json(one), allow_nan=False)
    again = verdict_from_json(json.loads(text))
    assert again == one
    assert repr(dict(again.parts)) == repr(dict(one.parts))


def test_a_trace_of_another_schema_version_is_refused():
    row = trace_to_json(trace("a")) | {"schema_version": 99}
    with pytest.raises(ValueError, match="schema version 99; this version reads 1"):
        trace_from_json(row)
