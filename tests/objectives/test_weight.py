"""Detached weights: values by hand, no gradient, garbage outside the members."""

from __future__ import annotations

import pytest
from tests.objectives.tables import INF, NAN, a_batch, log, said

from bimetal.objectives.weight import one, probability, uncertainty

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
