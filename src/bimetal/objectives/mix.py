"""Mixes: how a group is drafted. A mix is called with the group so far until it returns no more drafts."""

from __future__ import annotations

from collections.abc import Callable

from bimetal.core.types import Draft, GroupState, Stream

Mix = Callable[[GroupState], tuple[Draft, ...]]


def free(state: GroupState) -> tuple[Draft, ...]:
    """Every member is a free rollout, all in one round."""
    return () if state.traces else (Draft(),) * state.size


def demonstration_only(state: GroupState) -> tuple[Draft, ...]:
    """A group of one: one whole demonstration, taking turns by visit where a prompt has several."""
    if state.traces or not state.demonstrations:
        return ()
    return (_whole(state),)


def one_demonstration(state: GroupState) -> tuple[Draft, ...]:
    """One whole demonstration and ``size - 1`` free rollouts (LUFFY, arXiv:2504.14945, section 3.1).

    A prompt without a demonstration gets ``size`` free rollouts.
    """
    if state.traces:
        return ()
    if not state.demonstrations:
        return (Draft(),) * state.size
    return (Draft(),) * (state.size - 1) + (_whole(state),)


def every_demonstration(state: GroupState) -> tuple[Draft, ...]:
    """Every whole demonstration that the group has room for, after free rollouts: candidates to be ranked."""
    if state.traces:
        return ()
    shown = min(len(state.demonstrations), state.size)
    whole = tuple(Draft(prefix_fraction=1.0, demonstration=i) for i in range(shown))
    return (Draft(),) * (state.size - shown) + whole


def by_stream(main: Mix, demonstrations: Mix) -> Mix:
    """One mix for prompts that are rolled out, another for those that only lend their demonstrations."""

    def mix(state: GroupState) -> tuple[Draft, ...]:
        return (demonstrations if state.prompt.stream is Stream.DEMONSTRATIONS else main)(state)

    return mix


def _whole(state: GroupState) -> Draft:
    return Draft(prefix_fraction=1.0, demonstration=state.visit % len(state.demonstrations))
