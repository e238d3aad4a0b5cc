"""Credit: who learns what, for groups with unknown members, of one, of none."""

from __future__ import annotations

import dataclasses

import pytest
from tests.objectives.tables import a_group, a_trace

from bimetal.core.types import Credit, Origin, SegmentWeight, Signals, Stream
from bimetal.objectives.advantage import centered
from bimetal.objectives.credit import (
    attended,
    by_batch,
    by_group,
    compared,
    imitation,
    members,
    routed,
    sampled_divergence,
)

ON = {"on": {Origin.POLICY: 1.0}, "off": {Origin.DEMONSTRATION: 0.5}}
IMITATE = {"imitation": {Origin.DEMONSTRATION: 1.0}}


def test_members_follow_the_table_by_origin():
    mixed = a_trace("a", demonstration=2, policy=3)  # segments: 0 prompt, 1 demonstration, 2 policy
    assert members(mixed, ON) == (
        SegmentWeight(term="on", segment=2, weight=1.0),
        SegmentWeight(term="off", segment=1, weight=0.5),
    )
    assert members(a_trace("b", policy=1), IMITATE) == ()


def test_a_group_is_compared_over_its_known_members():
    group = a_group(
        a_trace("a", reward=1.0, policy=1),
        a_trace("b", reward=None, policy=1),
        a_trace("c", reward=0.0, policy=1),
    )
    first, second, third = by_group(centered, ON)([group], Signals())
    # The mean of 1 and 0 is 1/2; b takes no part.
    assert (first.advantage, third.advantage) == (0.5, -0.5)
    assert second == Credit(trace_id="b")
    assert first.weights == (SegmentWeight(term="on", segment=1, weight=1.0),)


def test_fewer_than_two_known_members_get_advantage_zero_and_stay_members():
    group = a_group(a_trace("a", reward=1.0, policy=1), a_trace("b", reward=None, policy=1))
    first, second = compared(group, centered, ON)
    assert first.advantage == 0.0
    assert first.weights
    assert second.weights == ()


def test_even_an_advantage_that_needs_no_company_is_not_asked_about_one_known_member():
    group = a_group(a_trace("a", reward=1.0, policy=1), a_trace("b", reward=None, policy=1))
    assert [c.advantage for c in compared(group, lambda rewards: rewards, ON)] == [0.0, 0.0]


def test_a_batch_is_compared_as_one_group():
    groups = [
        a_group(a_trace("a", reward=1.0, policy=1), a_trace("b", reward=None, policy=1)),
        a_group(a_trace("c", reward=0.0, policy=1), a_trace("d", reward=0.5, policy=1)),
    ]
    found = by_batch(centered, ON)(groups, Signals())
    # The mean of 1, 0 and 0.5 is 0.5, over both groups.
    assert [c.advantage for c in found] == [0.5, 0.0, -0.5, 0.0]
    assert [bool(c.weights) for c in found] == [True, False, True, True]


def test_what_is_compared_may_be_another_reward_of_known_traces():
    group = a_group(
        a_trace("a", reward=1.0, policy=3),
        a_trace("b", reward=None, policy=9),
        a_trace("c", reward=1.0, policy=1),
    )

    def shorter(trace, signals):
        return trace.reward - trace.response_length

    # 1 - 3 = -2 and 1 - 1 = 0: the mean is -1. The unknown trace is not asked about.
    for rule in (by_group, by_batch):
        found = rule(centered, ON, reward=shorter)([group], Signals())
        assert [c.advantage for c in found] == [-1.0, 0.0, 1.0]


def test_the_sampled_divergence_is_that_of_tokens_the_policy_wrote():
    mixed = a_trace("a", demonstration=2, policy=2)  # the policy's tokens have log mu = -0.5
    signals = Signals(reference_logprobs={"a": (-9.0, -9.0, -0.75, -0.25)})
    # 0 and 0 for the demonstration; -0.5 + 0.75 and -0.5 + 0.25
    assert sampled_divergence(mixed, signals) == (0.0, 0.0, 0.25, -0.25)


def test_the_sampled_divergence_names_the_need_that_is_missing():
    with pytest.raises(ValueError, match=r"Need\.REFERENCE"):
        sampled_divergence(a_trace("a", policy=1), Signals())
    silent = a_trace("b", policy=1)
    head, body = silent.segments
    silent = dataclasses.replace(silent, contexts=((head, dataclasses.replace(body, logprobs=None)),))
    with pytest.raises(ValueError, match=r"Need\.SAMPLER"):
        sampled_divergence(silent, Signals(reference_logprobs={"b": (-1.0,)}))


def test_a_group_of_one_compares_with_nothing():
    (only,) = compared(a_group(a_trace("a", reward=1.0, policy=1)), centered, ON)
    assert only.advantage == 0.0


def test_an_empty_group_has_no_credit():
    assert compared(a_group(), centered, ON) == ()
    assert by_group(centered, ON)([], Signals()) == ()


def test_imitation_needs_no_verdict_and_no_company():
    group = a_group(a_trace("a", reward=None, demonstration=2))
    assert imitation(IMITATE)([group], Signals()) == (
        Credit(
            trace_id="a", advantage=1.0, weights=(SegmentWeight(term="imitation", segment=1, weight=1.0),)
        ),
    )


def test_credit_comes_in_order_of_groups_and_members():
    groups = [a_group(a_trace("a", policy=1), a_trace("b", policy=1)), a_group(a_trace("c", policy=1))]
    assert [c.trace_id for c in by_group(centered, ON)(groups, Signals())] == ["a", "b", "c"]


def test_routing_sends_whole_groups_to_one_rule():
    def route(group):
        if group.prompt.stream is Stream.DEMONSTRATIONS:
            return lambda g: attended(g, IMITATE)
        return lambda g: compared(g, centered, ON)

    groups = [
        a_group(a_trace("a", demonstration=1), stream=Stream.DEMONSTRATIONS),
        a_group(a_trace("b", reward=1.0, policy=1), a_trace("c", reward=0.0, policy=1)),
    ]
    found = routed(route)(groups, Signals())
    assert [c.advantage for c in found] == [1.0, 0.5, -0.5]
    assert [c.weights[0].term for c in found] == ["imitation", "on", "on"]
