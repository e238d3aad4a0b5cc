"""Mixes: how groups are drafted, and that drafting ends."""

from __future__ import annotations

from tests.objectives.tables import a_trace

from bimetal.core.types import Demonstration, Draft, GroupState, Message, Prompt, PromptId, Stream
from bimetal.objectives.mix import by_stream, demonstration_only, every_demonstration, free, one_demonstration


def state(*, demonstrations=0, visit=0, size=4, traces=(), stream=Stream.MAIN) -> GroupState:
    prompt = Prompt(
        id=PromptId("p"), domain="d", messages=(Message(role="user", content="?"),), stream=stream
    )
    shown = tuple(Demonstration(prompt_id=PromptId("p"), text=str(i)) for i in range(demonstrations))
    return GroupState(
        prompt=prompt, visit=visit, size=size, progress=0.0, demonstrations=shown, traces=tuple(traces)
    )


WHOLE = Draft(prefix_fraction=1.0)
DONE = (a_trace("a", policy=1),)


def test_free_drafts_every_member_in_one_round():
    assert free(state()) == (Draft(),) * 4
    assert free(state(traces=DONE)) == ()


def test_demonstration_only_is_a_group_of_one():
    assert demonstration_only(state(demonstrations=1)) == (WHOLE,)
    assert demonstration_only(state(demonstrations=0)) == ()
    assert demonstration_only(state(demonstrations=1, traces=DONE)) == ()


def test_several_demonstrations_take_turns_by_visit():
    drafts = [demonstration_only(state(demonstrations=3, visit=v))[0].demonstration for v in range(5)]
    assert drafts == [0, 1, 2, 0, 1]


def test_one_demonstration_is_the_last_member():
    assert one_demonstration(state(demonstrations=2, visit=1)) == (
        Draft(),
        Draft(),
        Draft(),
        Draft(prefix_fraction=1.0, demonstration=1),
    )
    assert one_demonstration(state()) == (Draft(),) * 4
    assert one_demonstration(state(demonstrations=2, traces=DONE)) == ()


def test_every_demonstration_follows_the_free_rollouts_there_is_room_for():
    shown = tuple(Draft(prefix_fraction=1.0, demonstration=i) for i in range(3))
    assert every_demonstration(state(demonstrations=3)) == (Draft(), *shown)
    assert every_demonstration(state()) == (Draft(),) * 4
    assert every_demonstration(state(demonstrations=3, size=2)) == shown[:2]
    assert every_demonstration(state(demonstrations=3, traces=DONE)) == ()


def test_by_stream_asks_the_mix_of_the_prompts_stream():
    mix = by_stream(main=free, demonstrations=demonstration_only)
    assert mix(state(demonstrations=1)) == (Draft(),) * 4
    assert mix(state(demonstrations=1, stream=Stream.DEMONSTRATIONS)) == (WHOLE,)
