"""Choices: which traces of a group teach, and what the others get."""

from __future__ import annotations

import dataclasses

from tests.objectives.tables import a_group, a_trace

from bimetal.core.types import Finish, Origin, SegmentWeight, Signals
from bimetal.objectives.choice import best, chosen, rewarded

TABLE = {"imitation": {Origin.POLICY: 1.0}}
GROUP = a_group(
    a_trace("a", policy=2, reward=0.25),
    a_trace("b", policy=3, reward=None),
    a_trace("c", policy=1, reward=0.75),
    a_trace("d", policy=2, reward=0.75),
    a_trace("e", policy=2, reward=0.0),
)


def test_the_best_trace_is_the_first_of_highest_known_reward():
    assert [t.id for t in best(GROUP)] == ["c"]
    assert best(a_group(a_trace("a", policy=1, reward=None))) == ()
    assert [t.id for t in best(a_group(a_trace("a", policy=1, reward=0.0)))] == ["a"]


def test_rewarded_traces_have_a_known_positive_reward_and_ended_by_themselves():
    assert [t.id for t in rewarded(GROUP)] == ["a", "c", "d"]
    cut = dataclasses.replace(GROUP.traces[2], finish=Finish.LENGTH)
    assert [t.id for t in rewarded(a_group(GROUP.traces[0], cut))] == ["a"]


def test_only_the_chosen_get_credit_in_order_of_members():
    credits = chosen(best, TABLE)((GROUP, GROUP), Signals())
    assert [c.trace_id for c in credits] == ["a", "b", "c", "d", "e"] * 2
    assert credits[2].advantage == 1.0
    assert credits[2].weights == (SegmentWeight(term="imitation", segment=1, weight=1.0),)
    assert all(c.advantage == 0.0 and c.weights == () for i, c in enumerate(credits) if i % 5 != 2)
