"""Returns by token: worked by hand, across tokens somebody else wrote, for unknown and lonely traces."""

from __future__ import annotations

import pytest
from tests.objectives.tables import a_group, a_trace

from bimetal.core.types import Origin, Signals
from bimetal.objectives.credit import written
from bimetal.objectives.returns import centered_verdicts, verdicts, whitened_returns

TABLE = {"rl": {Origin.POLICY: 1.0}}


def rule(*, ends=verdicts, spending=None, discount=1.0):
    return whitened_returns(TABLE, ends=ends, spending=spending, discount=discount, epsilon=1e-8)


def test_ends_are_the_rewards_of_known_traces():
    group = a_group(a_trace("a", reward=0.5), a_trace("b", reward=None), a_trace("c", reward=0.0))
    assert verdicts(group) == {"a": 0.5, "c": 0.0}
    assert centered_verdicts(group) == {"a": 0.25, "c": -0.25}
    assert centered_verdicts(a_group(a_trace("a"), a_trace("b", reward=None))) == {}


def test_a_return_is_carried_across_tokens_the_policy_did_not_write():
    mixed = a_trace("a", reward=1.0, demonstration=2, policy=2)
    assert written(mixed) == (False, False, True, True)
    plain = a_trace("b", reward=0.0, policy=2)
    first, second = rule(discount=0.5)([a_group(mixed, plain)], Signals())
    # Returns 0.5, 1, 0, 0: mean 0.375, squares 1/64 + 25/64 + 9/64 + 9/64 = 44/64, over 3: 0.2291666...
    deviation = (11 / 48) ** 0.5
    assert first.advantage[:2] == (0.0, 0.0)
    assert first.advantage[2:] == pytest.approx((0.125 / deviation, 0.625 / deviation), rel=1e-7)
    assert second.advantage == pytest.approx((-0.375 / deviation,) * 2, rel=1e-7)


def test_tokens_pay_as_they_come():
    traces = (a_trace("a", reward=1.0, policy=2), a_trace("b", reward=0.0, policy=1))
    signals = Signals(reference_logprobs={"a": (-1.0, -0.5), "b": (0.0,)})

    def spending(trace, given):
        return [-x for x in given.reference_logprobs[trace.id]]

    first, second = rule(spending=spending)([a_group(*traces)], signals)
    # a: the last token earns 1 - 0.5, the first -1 + 0.5; b: 0. Mean 0, squares 0.5, over 2: 0.25.
    assert first.advantage == pytest.approx((-1.0, 1.0), rel=1e-7)
    assert second.advantage == pytest.approx((0.0,), abs=1e-12)


def test_equal_returns_teach_nothing_and_unknown_traces_are_no_members():
    group = a_group(a_trace("a", policy=2), a_trace("b", policy=1), a_trace("c", reward=None, policy=1))
    first, second, third = rule()([group], Signals())
    assert (first.advantage, second.advantage) == ((0.0, 0.0), (0.0,))
    assert first.weights and second.weights and not third.weights


def test_an_empty_batch_has_no_credit():
    assert rule()([], Signals()) == ()
