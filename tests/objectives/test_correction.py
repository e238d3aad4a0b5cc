"""Corrections: values by hand on both sides of every border, no gradient, garbage outside the members."""

from __future__ import annotations

import math

import pytest
from tests.objectives.tables import INF, NAN, a_batch, log, said

from bimetal.objectives.correction import (
    banded,
    capped,
    correction_named,
    old_over_sampler,
    sequence_old_over_sampler,
)
from bimetal.objectives.ratio import MAX_LOG_RATIO, over_old

BATCH = a_batch(
    {"k": [[1, 1, 1, 0], [1, 0, 0, 0]]},
    old_logprobs=log([[0.5, 0.2, 0.9, NAN], [0.6, INF, NAN, NAN]]),
    sampler_logprobs=log([[0.25, 0.4, 0.9, INF], [0.2, NAN, -INF, NAN]]),
)
POLICY = said(log([[0.1, 0.1, 0.1, NAN], [0.1, INF, NAN, NAN]]))


def asked(weight):
    found = weight(BATCH, POLICY, BATCH.members["k"])
    assert not found.requires_grad
    assert bool(found.isfinite().all())
    return [found[0, :3].tolist(), found[1, :1].tolist()]


def near(rows):
    return [pytest.approx(row, rel=1e-12) for row in rows]


def test_old_over_sampler_does_not_ask_the_policy():
    # 0.5 / 0.25, 0.2 / 0.4, 0.9 / 0.9; 0.6 / 0.2
    assert asked(old_over_sampler) == near([[2.0, 0.5, 1.0], [3.0]])


def test_the_sequences_ratio_is_the_product_over_its_members():
    # 2 * 0.5 * 1 = 1; 3
    assert asked(sequence_old_over_sampler) == near([[1.0, 1.0, 1.0], [3.0]])


def test_capped_holds_the_ratio_at_its_bounds():
    assert asked(capped(old_over_sampler, high=1.5)) == near([[1.5, 0.5, 1.0], [1.5]])
    assert asked(capped(old_over_sampler, low=0.8, high=2.5)) == near([[2.0, 0.8, 1.0], [2.5]])
    assert asked(capped(old_over_sampler, high=math.inf)) == asked(old_over_sampler)


def test_banded_drops_what_lies_outside_and_keeps_the_borders():
    assert asked(banded(old_over_sampler, low=0.75, high=2.5)) == near([[2.0, 0.0, 1.0], [0.0]])
    one = asked(old_over_sampler)[0]
    assert asked(banded(old_over_sampler, low=one[1], high=one[0]))[0] == one


def test_a_ratio_of_the_policy_is_detached():
    # 0.1 / 0.5, 0.1 / 0.2, 0.1 / 0.9; 0.1 / 0.6
    assert asked(capped(over_old, high=0.3)) == near([[0.2, 0.3, 1 / 9], [1 / 6]])
    assert asked(banded(over_old, low=0.15, high=0.3)) == near([[0.2, 0.0, 0.0], [1 / 6]])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("none", [[1.0, 1.0, 1.0], [1.0]]),
        ("decoupled", [[2.0, 0.5, 1.0], [3.0]]),
        ("truncated", [[1.5, 0.5, 1.0], [1.5]]),
        ("truncated_sequence", [[1.0, 1.0, 1.0], [1.5]]),
        ("banded", [[0.0, 0.0, 1.0], [0.0]]),
    ],
)
def test_corrections_by_name(name, expected):
    assert asked(correction_named(name, low=0.75, high=1.5)) == near(expected)


def test_far_apart_both_stay_finite():
    batch = a_batch({"k": [[1, 1]]}, old_logprobs=[[0.0, 0.0]], sampler_logprobs=[[-15.0, -900.0]])
    token = old_over_sampler(batch, POLICY, batch.members["k"])[0].tolist()
    assert token == pytest.approx([math.exp(15), math.exp(MAX_LOG_RATIO)], rel=1e-12)
    whole = sequence_old_over_sampler(batch, POLICY, batch.members["k"])[0].tolist()
    assert whole == pytest.approx([math.exp(MAX_LOG_RATIO)] * 2, rel=1e-12)


@pytest.mark.parametrize("weight", [old_over_sampler, sequence_old_over_sampler])
def test_a_missing_field_names_the_need(weight):
    batch = a_batch({"k": [[1]]}, old_logprobs=[[-1.0]])
    with pytest.raises(ValueError, match="sampler_logprobs"):
        weight(batch, said([[-1.0]]), batch.members["k"])
    with pytest.raises(ValueError, match="old_logprobs"):
        weight(a_batch({"k": [[1]]}), said([[-1.0]]), batch.members["k"])
