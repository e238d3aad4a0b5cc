"""Credit by token without a critic: what each token earns, summed from the end, whitened over the batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from bimetal.core.types import Credit, Group, Signals, Trace, TraceId
from bimetal.objectives.advantage import returns_to_go, whitened
from bimetal.objectives.credit import MINIMUM_KNOWN, CreditRule, Table, members, nothing, written

Ends = Callable[[Group], Mapping[TraceId, float]]
"""What each trace of a group earns with the last token the policy wrote; a trace left out earns no return."""

Spending = Callable[[Trace, Signals], Sequence[float]]
"""What each response token costs, in units of reward."""


def verdicts(group: Group) -> Mapping[TraceId, float]:
    """The reward of every known trace."""
    return {t.id: t.reward for t in group.traces if t.is_known}


def centered_verdicts(group: Group) -> Mapping[TraceId, float]:
    """The reward minus the mean of the group's known traces; none where fewer than two are known."""
    known = verdicts(group)
    if len(known) < MINIMUM_KNOWN:
        return {}
    mean = math.fsum(known.values()) / len(known)
    return {trace: reward - mean for trace, reward in known.items()}


def whitened_returns(
    table: Table, *, ends: Ends, spending: Spending | None, discount: float, epsilon: float
) -> CreditRule:
    """Each token's advantage is its return, shifted and scaled to mean 0 and variance 1 over the batch.

    Tokens the policy did not write do not exist for it: the return is carried across them undiscounted, they
    are no part of the whitening and their advantage is 0. A known trace without an end has advantage 0.

    Args:
        table: Which terms the traces enter.
        ends: What a trace earns with its last token.
        spending: What each token costs; nothing if ``None``.
        discount: gamma, in [0, 1].
        epsilon: Added to the deviation.
    """

    def returned(trace: Trace, end: float, signals: Signals) -> tuple[float, ...]:
        costs = [0.0] * trace.response_length if spending is None else spending(trace, signals)
        earned = [-cost for cost, own in zip(costs, written(trace), strict=True) if own]
        earned[-1:] = [x + end for x in earned[-1:]]
        return returns_to_go(earned, discount=discount)

    def credit(groups: Sequence[Group], signals: Signals) -> tuple[Credit, ...]:
        traces = [trace for group in groups for trace in group.traces]
        found = {trace: end for group in groups for trace, end in ends(group).items()}
        returns = {t.id: returned(t, found[t.id], signals) for t in traces if t.id in found}
        white = dict(zip(returns, whitened(list(returns.values()), epsilon), strict=True))
        return tuple(
            Credit(trace_id=t.id, advantage=_spread(t, white.get(t.id, ())), weights=members(t, table))
            if t.is_known
            else nothing(t)
            for t in traces
        )

    return credit


def _spread(trace: Trace, advantages: Sequence[float]) -> tuple[float, ...]:
    """One number per response token: those of the policy's tokens in order, 0 at the others."""
    rest = iter(advantages)
    return tuple(next(rest, 0.0) if own else 0.0 for own in written(trace))
