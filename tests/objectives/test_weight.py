"""Detached weights: values by hand, no gradient, garbage outside the members."""

from __future__ import annotations

import math

import pytest
from tests.objectives.tables import INF, NAN, a_batch, log, said

from bimetal.objectives.weight import (
    one,
    over_reference,
    probability,
    sequence_over_reference,
    statistic,
    uncertainty,
)

BATCH = a_batch({"k": [[1, 1, 1, 0, 0]]})


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        (one, [1.0, 1.0, 1.0]),
        (probability, [0.2, 0.5, 1.0]),
        (uncertainty, [0.16, 0.25, 0.0]),  # 0.2 * 0.8, 0.5 * 0.5, 1 * 0
    ],
)
def test_weights_are_detached_numbers_of_the_members(weight, expected):
    policy = said(log([[0.2, 0.5, 1.0, NAN, INF]]))
    found = weight(BATCH, policy, BATCH.members["k"])
    assert not found.requires_grad
    assert found[0, :3].tolist() == pytest.approx(expected, rel=1e-12, abs=1e-15)
    assert bool(found.isfinite().all())


def test_uncertainty_is_the_same_for_p_and_one_minus_p_and_at_most_a_quarter():
    batch = a_batch({"k": [[1] * 5]})
    low, high = said(log([[0.01, 0.1, 0.3, 0.45, 0.5]])), said(log([[0.99, 0.9, 0.7, 0.55, 0.5]]))
    first = uncertainty(batch, low, batch.members["k"])[0].tolist()
    assert first == pytest.approx(uncertainty(batch, high, batch.members["k"])[0].tolist(), rel=1e-12)
    assert max(first) == first[-1] == pytest.approx(0.25, rel=1e-12)


def test_a_probability_that_rounding_pushed_above_one_counts_as_one():
    batch = a_batch({"k": [[1]]})
    policy = said([[1e-9]])
    assert probability(batch, policy, batch.members["k"]).tolist() == [[1.0]]
    assert uncertainty(batch, policy, batch.members["k"]).tolist() == [[0.0]]


# Ratios to the reference of 0.5, 2 and 8 in the first row, 4 in the second; garbage outside the members.
MEMBERS = {"k": [[0, 1, 1, 1], [1, 0, 0, 0]]}
REFERENCE = log([[NAN, 0.4, 0.25, 0.0625], [0.125, INF, NAN, NAN]])
POLICY = log([[INF, 0.2, 0.5, 0.5], [0.5, NAN, NAN, INF]])


def test_a_token_over_its_reference_is_held_between_two_bounds():
    batch = a_batch(MEMBERS, reference_logprobs=REFERENCE)
    found = over_reference(0.75, 3.0)(batch, said(POLICY), batch.members["k"])
    assert not found.requires_grad
    # 0.5 -> 0.75, 2 stays, 8 -> 3; 4 -> 3
    assert found[0, 1:].tolist() == pytest.approx([0.75, 2.0, 3.0], rel=1e-12)
    assert float(found[1, 0]) == pytest.approx(3.0, rel=1e-12)
    assert bool(found.isfinite().all())


@pytest.mark.parametrize(
    ("power", "high", "first", "second"),
    [
        (1.0, 16.0, 2.0, 4.0),  # (0.5 * 2 * 8) ** (1/3) = 8 ** (1/3) = 2
        (2.0, 16.0, 4.0, 16.0),  # the square of both
        (2.0, 5.0, 4.0, 5.0),  # held at 5
        (0.0, 16.0, 1.0, 1.0),
    ],
)
def test_a_sequence_over_its_reference_is_a_power_of_the_geometric_mean(power, high, first, second):
    batch = a_batch(MEMBERS, reference_logprobs=REFERENCE)
    found = sequence_over_reference(power, high=high)(batch, said(POLICY), batch.members["k"])
    assert not found.requires_grad
    assert found[0].tolist() == pytest.approx([first] * 4, rel=1e-12)
    assert found[1].tolist() == pytest.approx([second] * 4, rel=1e-12)


@pytest.mark.parametrize(
    "weight", [over_reference(0.0, math.inf), sequence_over_reference(1.0, high=math.inf)]
)
def test_a_ratio_to_the_reference_beyond_reason_stays_finite(weight):
    batch = a_batch({"k": [[1]]}, reference_logprobs=[[-200.0]])
    assert float(weight(batch, said([[-1.0]]), batch.members["k"])) == pytest.approx(math.exp(20), rel=1e-12)


def test_weights_over_the_reference_ask_for_it():
    batch = a_batch({"k": [[1]]})
    with pytest.raises(ValueError, match="reference_logprobs"):
        over_reference(0.0, 1.0)(batch, said([[-1.0]]), batch.members["k"])


def test_a_statistic_as_a_weight_is_detached_and_looks_at_members_only():
    batch = a_batch({"k": [[1, 0, 1]]})
    policy = said([[-1.0, NAN, -2.0]], flexibility=[[0.25, INF, 1.0]])
    found = statistic("flexibility")(batch, policy, batch.members["k"])
    assert not found.requires_grad
    assert found.tolist() == [[0.25, 0.0, 1.0]]
