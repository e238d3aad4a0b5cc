"""Preferences: which two make a pair, and the loss of two pairs that stand side by side in a batch."""

from __future__ import annotations

import math

import pytest
from tests.objectives.tables import INF, NAN, a_batch, a_group, a_trace, said, slope

from bimetal.core.types import Origin, SegmentWeight, Signals
from bimetal.objectives.preference import PairwiseMargin, best_and_worst, first_two, paired

MEMBERS = {"k": [[1, 1], [1, 0], [1, 0], [1, 1], [0, 0]]}
# Groups 3 and 5 are interleaved; rows 0 and 2 are preferred; row 4 is in no pair.
GROUPS = [3, 5, 5, 3, 3]


def two_pairs():
    batch = a_batch(
        MEMBERS,
        advantages=[[1, 1], [-1, NAN], [1, NAN], [-1, -1], [NAN, NAN]],
        group=GROUPS,
        reference_logprobs=[[-1, -1], [-2, INF], [-2, NAN], [-1, -1], [NAN, NAN]],
    )
    return batch, said([[-0.5, -1], [-1, NAN], [-1.5, INF], [-2, -1], [INF, NAN]])


def test_the_best_and_the_worst_known_trace_make_a_pair():
    a, b, c, d = (
        a_trace(name, reward=r, policy=1) for name, r in (("a", 0.5), ("b", None), ("c", 0.0), ("d", 0.0))
    )
    assert best_and_worst(a_group(a, b, c, d)) == (a, c)
    assert best_and_worst(a_group(c, b, d)) is None
    assert best_and_worst(a_group(b)) is None
    assert best_and_worst(a_group(c)) is None


def test_the_first_two_make_a_pair_whatever_their_rewards():
    a, b = a_trace("a", reward=None, demonstration=1), a_trace("b", demonstration=1)
    assert first_two(a_group(a, b)) == (a, b)
    assert first_two(a_group(a)) is None


def test_a_pair_has_advantages_of_both_signs_and_one_term_may_take_the_preferred_alone():
    rule = paired(best_and_worst, both={"k": Origin.POLICY}, preferred={"nll": Origin.POLICY})
    groups = [
        a_group(a_trace("a", reward=0.0, policy=1), a_trace("b", reward=0.5, policy=1)),
        a_group(a_trace("c", policy=1), a_trace("d", policy=1)),
    ]
    found = rule(groups, Signals())
    assert [(c.trace_id, c.advantage) for c in found] == [("a", -1.0), ("b", 1.0), ("c", 0.0), ("d", 0.0)]
    both, own = SegmentWeight(term="k", segment=1), SegmentWeight(term="nll", segment=1)
    assert [c.weights for c in found] == [(both,), (both, own), (), ()]


def test_each_pair_has_its_own_margin():
    batch, policy = two_pairs()
    seen = PairwiseMargin(1.0).watch(batch, policy, batch.members["k"])
    # Group 3: (0.5 + 0) - (-1 + 0) = 1.5; group 5: 0.5 - 1 = -0.5.
    assert seen["preference/margin"][:, 0].tolist()[:4] == pytest.approx([1.5, -0.5, -0.5, 1.5], rel=1e-12)
    assert seen["preference/accuracy"][:4, 0].tolist() == [1.0, 0.0, 0.0, 1.0]


def test_logistic_and_squared_losses_of_two_pairs_by_hand():
    batch, policy = two_pairs()
    loss = PairwiseMargin(2.0, smoothing=0.25)(batch, policy, batch.members["k"])
    # h = 3 and -1: -(3/4) log sigmoid(h) - (1/4) log sigmoid(-h), log sigmoid(x) = -log(1 + exp(-x))
    first = 0.75 * math.log1p(math.exp(-3)) + 0.25 * math.log1p(math.exp(3))
    second = 0.75 * math.log1p(math.exp(1)) + 0.25 * math.log1p(math.exp(-1))
    rows = [[first, first], [second, 0], [second, 0], [first, first], [0, 0]]
    assert loss.tolist() == [pytest.approx(row, rel=1e-12) for row in rows]
    squared = PairwiseMargin(2.0, squared=True)(batch, policy, batch.members["k"])
    # (1.5 - 1/4)^2 = 1.5625 and (-0.5 - 1/4)^2 = 0.5625
    assert squared[:4, 0].tolist() == pytest.approx([1.5625, 0.5625, 0.5625, 1.5625], rel=1e-12)
    # 2 (m - 1/4) = 2.5 at the 4 tokens of group 3, -1.5 at the 2 of group 5; minus for the other response.
    found = slope(squared, policy.logprobs)
    expected = [[10.0, 10.0], [3.0, 0], [-3.0, 0], [-10.0, -10.0], [0, 0]]
    assert found == [pytest.approx(row, rel=1e-12) for row in expected]
