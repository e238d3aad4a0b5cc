"""Credit: advantages plus a table of who counts in which term -> what every trace teaches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from bimetal.core.types import Credit, Group, Origin, SegmentWeight, Signals, Trace
from bimetal.objectives.advantage import Advantage

Table = Mapping[str, Mapping[Origin, float]]
"""term -> origin of a segment -> weight of its tokens; an origin that is not listed is no member."""

MINIMUM_KNOWN = 2
"""A comparison needs two known members (design contract C5)."""


CreditRule = Callable[[Sequence[Group], Signals], tuple[Credit, ...]]
"""(groups of the roll-out batch, signals) -> one credit per trace, in order of groups and members."""

GroupRule = Callable[[Group], tuple[Credit, ...]]
"""What one group teaches, one credit per trace in member order."""


def lifted(rule: GroupRule) -> CreditRule:
    """A rule for one group, applied to all groups of a roll-out batch."""

    def credit(groups: Sequence[Group], signals: Signals) -> tuple[Credit, ...]:
        del signals
        return tuple(c for group in groups for c in rule(group))

    return credit


def by_group(advantage: Advantage, table: Table) -> CreditRule:
    """Advantages over the known members of each group; the table says which terms they enter.

    Unknown traces get no credit at all. A group with fewer than two known members gets advantage 0.
    """
    return lifted(lambda group: compared(group, advantage, table))


def compared(group: Group, advantage: Advantage, table: Table) -> tuple[Credit, ...]:
    """The credits of one group whose known members are compared with each other."""
    known = [trace for trace in group.traces if trace.is_known]
    numbers = dict.fromkeys((trace.id for trace in known), 0.0)
    if len(known) >= MINIMUM_KNOWN:
        rewards = torch.tensor([trace.reward for trace in known], dtype=torch.float64)
        numbers = dict(zip(numbers, (float(a) for a in advantage(rewards)), strict=True))
    return tuple(
        Credit(trace_id=t.id, advantage=numbers[t.id], weights=members(t, table))
        if t.id in numbers
        else nothing(t)
        for t in group.traces
    )


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
