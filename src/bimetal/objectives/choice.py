"""Choices: which traces of a group are imitated; the others teach nothing."""

from __future__ import annotations

from collections.abc import Callable

from bimetal.core.types import Credit, Finish, Group, Trace
from bimetal.objectives.credit import CreditRule, Table, lifted, members, nothing

Choice = Callable[[Group], tuple[Trace, ...]]
"""Some traces of a group."""


def chosen(choose: Choice, table: Table) -> CreditRule:
    """Advantage 1 for the traces chosen from each group, and no credit for the others."""

    def rule(group: Group) -> tuple[Credit, ...]:
        taken = {trace.id for trace in choose(group)}
        return tuple(
            Credit(trace_id=t.id, advantage=1.0, weights=members(t, table)) if t.id in taken else nothing(t)
            for t in group.traces
        )

    return lifted(rule)


def best(group: Group) -> tuple[Trace, ...]:
    """The known trace of highest reward, the first of several; none where no reward is known."""
    known = [trace for trace in group.traces if trace.is_known]
    return (max(known, key=lambda trace: trace.reward),) if known else ()


def rewarded(group: Group) -> tuple[Trace, ...]:
    """The known traces of positive reward that ended by themselves: one cut at the length limit counts 0."""
    return tuple(t for t in group.traces if t.is_known and t.reward > 0 and t.finish is Finish.STOP)
