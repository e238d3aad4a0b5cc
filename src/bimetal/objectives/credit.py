"""Credit: advantages plus a table of who counts in which term -> what every trace teaches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from bimetal.core.types import Credit, Group, Origin, SegmentWeight, Signals, Trace, TraceId
from bimetal.objectives.advantage import Advantage

Table = Mapping[str, Mapping[Origin, float]]
"""term -> origin of a segment -> weight of its tokens; an origin that is not listed is no member."""

MINIMUM_KNOWN = 2
"""A comparison needs two known members (design contract C5)."""


CreditRule = Callable[[Sequence[Group], Signals], tuple[Credit, ...]]
"""(groups of the roll-out batch, signals) -> one credit per trace, in order of groups and members."""

Reward = Callable[[Trace, Signals], float]
"""What a known trace is worth in a comparison."""

GroupRule = Callable[[Group], tuple[Credit, ...]]
"""What one group teaches, one credit per trace in member order."""


def lifted(rule: GroupRule) -> CreditRule:
    """A rule for one group, applied to all groups of a roll-out batch."""

    def credit(groups: Sequence[Group], signals: Signals) -> tuple[Credit, ...]:
        del signals
        return tuple(c for group in groups for c in rule(group))

    return credit


def by_group(advantage: Advantage, table: Table, *, reward: Reward | None = None) -> CreditRule:
    """Advantages over the known members of each group; the table says which terms they enter.

    Unknown traces get no credit at all. A group with fewer than two known members gets advantage 0.
    ``reward`` is what is compared; the verdict's reward unless given.
    """

    def credit(groups: Sequence[Group], signals: Signals) -> tuple[Credit, ...]:
        found: list[Credit] = []
        for group in groups:
            found += _judged(group.traces, advantage, table, rewards=_rewards(group.traces, reward, signals))
        return tuple(found)

    return credit


def by_batch(advantage: Advantage, table: Table, *, reward: Reward | None = None) -> CreditRule:
    """As ``by_group``, with all known traces of the roll-out batch compared as if they were one group."""

    def credit(groups: Sequence[Group], signals: Signals) -> tuple[Credit, ...]:
        traces = [trace for group in groups for trace in group.traces]
        return _judged(traces, advantage, table, rewards=_rewards(traces, reward, signals))

    return credit


def compared(group: Group, advantage: Advantage, table: Table) -> tuple[Credit, ...]:
    """The credits of one group whose known members are compared with each other."""
    return _judged(group.traces, advantage, table, rewards=_rewards(group.traces, None, Signals()))


def imitation(table: Table) -> CreditRule:
    """Advantage 1 for every trace, judged or not: compares with nothing, so a group of one is enough."""
    return lifted(lambda group: attended(group, table))


def attended(group: Group, table: Table) -> tuple[Credit, ...]:
    """The credits of one group whose every trace is imitated."""
    return tuple(Credit(trace_id=t.id, advantage=1.0, weights=members(t, table)) for t in group.traces)


def routed(route: Callable[[Group], GroupRule]) -> CreditRule:
    """Each whole group goes to the rule that ``route`` names for it."""
    return lifted(lambda group: route(group)(group))


def members(trace: Trace, table: Table) -> tuple[SegmentWeight, ...]:
    """The table's weights for the segments this trace has."""
    return tuple(
        SegmentWeight(term=term, segment=index, weight=weights[segment.origin])
        for term, weights in table.items()
        for index, segment in enumerate(trace.segments)
        if segment.origin in weights
    )


def nothing(trace: Trace) -> Credit:
    """No credit: member of no term."""
    return Credit(trace_id=trace.id)


def sampled_divergence(trace: Trace, signals: Signals) -> tuple[float, ...]:
    """The difference log mu - log p_ref of each response token the policy wrote, in nats; 0 of the others.

    Its sum estimates the divergence from the reference (k1) of the policy that wrote the trace; inside a
    reward it has the gradient of that divergence.

    Raises:
        ValueError: The reference or the sampler said nothing about this trace.
    """
    said: list[float] = []
    for segment in trace.segments:
        if segment.origin is Origin.POLICY:
            if segment.logprobs is None:
                raise ValueError(f"trace {trace.id} has no sampler log-probabilities; declare Need.SAMPLER")
            said += segment.logprobs
        elif segment.origin is not Origin.PROMPT:
            said += [0.0] * len(segment.token_ids)
    reference = signals.reference_logprobs.get(trace.id)
    if reference is None:
        raise ValueError(f"trace {trace.id} has no reference log-probabilities; declare Need.REFERENCE")
    numbers = zip(said, reference, written(trace), strict=True)
    return tuple(mu - r if own else 0.0 for mu, r, own in numbers)


def written(trace: Trace) -> tuple[bool, ...]:
    """For each response token, whether the policy wrote it."""
    return tuple(
        segment.origin is Origin.POLICY
        for segment in trace.segments
        if segment.origin is not Origin.PROMPT
        for _ in segment.token_ids
    )


def _rewards(traces: Sequence[Trace], reward: Reward | None, signals: Signals) -> dict[TraceId, float]:
    """The reward of every known trace."""
    return {t.id: t.reward if reward is None else reward(t, signals) for t in traces if t.is_known}


def _judged(
    traces: Sequence[Trace], advantage: Advantage, table: Table, *, rewards: Mapping[TraceId, float]
) -> tuple[Credit, ...]:
    numbers = dict.fromkeys(rewards, 0.0)
    if len(rewards) >= MINIMUM_KNOWN:
        found = advantage(torch.tensor(list(rewards.values()), dtype=torch.float64))
        numbers = dict(zip(numbers, (float(a) for a in found), strict=True))
    return tuple(
        Credit(trace_id=t.id, advantage=numbers[t.id], weights=members(t, table))
        if t.id in numbers
        else nothing(t)
        for t in traces
    )
