"""Preferences: losses on pairs inside a group, whose credit names the preferred response and the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bimetal.core.batch import Batch, PolicyOutput
from bimetal.core.types import Credit, Group, Origin, Signals, Trace
from bimetal.objectives.advantage import UNIFORM_TOLERANCE
from bimetal.objectives.credit import CreditRule, members, nothing
from bimetal.objectives.loss import only
from bimetal.objectives.ratio import required

Pair = tuple[Trace, Trace]
"""The preferred trace and the other one."""

PairRule = Callable[[Group], Pair | None]
"""The pair of a group, if it has one."""


def paired(pair: PairRule, *, both: Mapping[str, Origin], preferred: Mapping[str, Origin]) -> CreditRule:
    """Advantage 1 for the preferred trace of each group's pair and -1 for the other; no credit for the rest.

    Args:
        pair: Which two, if any.
        both: term -> origin of the tokens of either that are its members.
        preferred: term -> origin of the preferred trace's tokens that are its members.
    """

    def credits(group: Group) -> tuple[Credit, ...]:
        two = pair(group)
        if two is None:
            return tuple(nothing(trace) for trace in group.traces)
        chosen, rejected = two
        shared = {term: {origin: 1.0} for term, origin in both.items()}
        own = {term: {origin: 1.0} for term, origin in preferred.items()}
        found = {
            chosen.id: Credit(trace_id=chosen.id, advantage=1.0, weights=members(chosen, {**shared, **own})),
            rejected.id: Credit(trace_id=rejected.id, advantage=-1.0, weights=members(rejected, shared)),
        }
        return tuple(found.get(trace.id) or nothing(trace) for trace in group.traces)

    def credit(groups: Sequence[Group], signals: Signals) -> tuple[Credit, ...]:
        del signals
        return tuple(c for group in groups for c in credits(group))

    return credit


def best_and_worst(group: Group) -> Pair | None:
    """The known traces of highest and lowest reward, the first of equals; none where all are equal."""
    known = [trace for trace in group.traces if trace.is_known]
    if not known:
        return None
    best = max(known, key=lambda trace: trace.reward)
    worst = min(known, key=lambda trace: trace.reward)
    return (best, worst) if best.reward - worst.reward > UNIFORM_TOLERANCE else None


def first_two(group: Group) -> Pair | None:
    """The first member is preferred to the second, as the mix drafted them."""
    return (group.traces[0], group.traces[1]) if len(group.traces) > 1 else None


@dataclass(frozen=True, slots=True)
class PairwiseMargin:
    """The loss of a pair, at each token of both, from the margin between their log-ratios to the reference.

    h = beta [sum_t log(p/p_ref) of the preferred - the same of the other] (DPO, arXiv:2305.18290, eq. 7).
    ``sequence_mean`` then gives the mean over pairs. Needs whole groups in one micro-batch, and one pair per
    group.

    Args:
        beta: What a nat of margin counts.
        smoothing: Chance that the label is wrong, in [0, 1/2): -(1 - e) log sigmoid(h) - e log sigmoid(-h).
        squared: IPO (arXiv:2310.12036) in its place: (h / beta - 1 / (2 beta))^2.
    """

    beta: float
    smoothing: float = 0.0
    squared: bool = False

    def __call__(
        self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
    ) -> Float[Tensor, "b t"]:
        """The pair's loss at each member."""
        margin = self._margin(batch, policy, members)
        if self.squared:
            loss = (margin - 1 / (2 * self.beta)).square()
        else:
            right = torch.nn.functional.logsigmoid(self.beta * margin)
            wrong = torch.nn.functional.logsigmoid(-self.beta * margin)
            loss = -(1 - self.smoothing) * right - self.smoothing * wrong
        return only(members, loss.unsqueeze(1).expand(members.shape))

    def watch(
        self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
    ) -> Mapping[str, Float[Tensor, "b t"]]:
        """The margin in nats, and whether the preferred response is the one that gained."""
        margin = self._margin(batch, policy, members).unsqueeze(1).expand(members.shape)
        return {"preference/margin": margin, "preference/accuracy": (margin > 0).to(margin.dtype)}

    def _margin(
        self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
    ) -> Float[Tensor, " b"]:
        """The preferred response's log-ratio minus the other's, at both rows of each pair."""
        reference = required(batch.reference_logprobs, "reference_logprobs")
        sign = only(members, batch.advantages).sum(dim=1).sign()
        score = sign * only(members, policy.logprobs - reference).sum(dim=1)
        together = batch.group.unsqueeze(0) == batch.group.unsqueeze(1)
        return together.to(score.dtype) @ score
