"""Per-token losses: elementwise in, elementwise out; what is added and divided is decided in ``compose``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bimetal.core.batch import Batch, PolicyOutput
from bimetal.objectives.gate import Gate
from bimetal.objectives.ratio import MAX_LOG_RATIO, Ratio, over_old, required
from bimetal.objectives.weight import Weight, one

_PerToken = Float[Tensor, "b t"]


@runtime_checkable
class Loss(Protocol):
    """A per-token loss that looks only at members; 0 elsewhere."""

    def __call__(self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> _PerToken:
        """The loss of each member."""
        ...

    def watch(
        self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
    ) -> Mapping[str, _PerToken]:
        """Per-token quantities worth a metric, by metric name; averaged over members by the trainer."""
        ...


@dataclass(frozen=True, slots=True)
class PolicyGradient:
    """Minus the gated, importance-weighted advantage, times a detached correction for who wrote the token."""

    ratio: Ratio
    gate: Gate
    correction: Weight = one

    def __call__(self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> _PerToken:
        """- sg[w] gate(p / q, A) for members."""
        surrogate = self.gate.surrogate(self.ratio(batch, policy, members), batch.advantages)
        return only(members, -self.correction(batch, policy, members) * surrogate)

    def watch(
        self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
    ) -> Mapping[str, _PerToken]:
        """The ratio, and where the gate is closed."""
        ratio = self.ratio(batch, policy, members)
        closed = self.gate.closed(ratio, batch.advantages) & members
        seen = {"ratio/mean": ratio, "gate/closed_share": closed.to(ratio.dtype)}
        if self.correction is not one:
            seen["correction/mean"] = self.correction(batch, policy, members)
        return seen


@dataclass(frozen=True, slots=True)
class Reinforce:
    """Minus the log-probability, in nats, times the advantage and a detached weight: no ratio is derived."""

    weight: Weight = one

    def __call__(self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> _PerToken:
        """- sg[w] A log p for members."""
        weight = self.weight(batch, policy, members)
        return only(members, -weight * batch.advantages * only(members, policy.logprobs))

    def watch(
        self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
    ) -> Mapping[str, _PerToken]:
        """The weight."""
        return {"correction/mean": self.weight(batch, policy, members)}


@dataclass(frozen=True, slots=True)
class CrossEntropy:
    """Minus the log-probability, in nats, times a detached weight."""

    weight: Weight = one

    def __call__(self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> _PerToken:
        """- sg[w] log p for members."""
        logprobs = only(members, policy.logprobs)
        return -self.weight(batch, policy, members) * logprobs

    def watch(
        self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
    ) -> Mapping[str, _PerToken]:
        """The plain negative log-likelihood, comparable between weightings."""
        del batch
        return {"imitation/nll": -only(members, policy.logprobs)}


@dataclass(frozen=True, slots=True)
class Coupled:
    """A detached coefficient times the log-probability: how a loss that couples traces is written.

    Its gradient is that of the coupled loss; its value is, too, where that one is piecewise linear in scores.
    """

    coefficient: Weight

    def __call__(self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> _PerToken:
        """sg[c] log p for members."""
        return only(members, self.coefficient(batch, policy, members)) * only(members, policy.logprobs)

    def watch(
        self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
    ) -> Mapping[str, _PerToken]:
        """Nothing beyond the term's own loss."""
        del batch, policy, members
        return {}


@dataclass(frozen=True, slots=True)
class Divergence:
    """An estimate of KL(policy || reference) from the sampled token, in nats.

    With l = log p - log p_ref: k1 = l, k2 = l^2 / 2, k3 = exp(-l) - 1 + l (Schulman, "Approximating KL
    divergence"). As a loss, k2 has the gradient of the reverse divergence in expectation, k3 that of
    KL(reference || policy), k1 none. ``k3_plus`` has the value of k3 and the gradient of k2; ``weighted_k3``
    is (p / p_old) k3, whose ratio is differentiated too: both have the reverse divergence's gradient, the
    latter also where the old policy drew the tokens.
    """

    estimator: str = "k3"

    def __post_init__(self) -> None:
        """Refuse an estimator that does not exist."""
        if self.estimator not in {"k1", "k2", "k3", "k3_plus", "weighted_k3"}:
            raise ValueError(
                f"estimator must be k1, k2 or k3, k3_plus or weighted_k3; got {self.estimator!r}"
            )

    def __call__(self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> _PerToken:
        """The estimate for members."""
        reference = required(batch.reference_logprobs, "reference_logprobs")
        log_ratio = only(members, policy.logprobs - reference).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
        k2, k3 = log_ratio.square() / 2, torch.expm1(-log_ratio) + log_ratio
        match self.estimator:
            case "k1":
                return log_ratio
            case "k2":
                return k2
            case "k3_plus":
                return k3.detach() + k2 - k2.detach()
            case "weighted_k3":
                return over_old(batch, policy, members) * k3
            case _:
                return k3

    def watch(
        self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
    ) -> Mapping[str, _PerToken]:
        """The k3 estimate, whatever the loss uses."""
        return {"policy/divergence_from_reference": Divergence("k3")(batch, policy, members)}


@dataclass(frozen=True, slots=True)
class StatisticLoss:
    """A declared per-token statistic as a loss; ``sign=-1`` times the entropy is an entropy bonus."""

    name: str
    sign: float = 1.0

    def __call__(self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> _PerToken:
        """The sign times the statistic, for members."""
        del batch
        return self.sign * only(members, policy.statistic(self.name))

    def watch(
        self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
    ) -> Mapping[str, _PerToken]:
        """Nothing beyond the term's own loss."""
        del batch, policy, members
        return {}


@dataclass(frozen=True, slots=True)
class ValueRegression:
    """Half the squared error of the critic, pessimistically clipped around its old value.

    0.5 max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2) (the PPO code base's value loss; not in
    arXiv:1707.06347). An infinite ``clip_range`` is plain regression.
    """

    clip_range: float

    def __call__(self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> _PerToken:
        """The squared error for members; in units of reward squared."""
        values = only(members, required(policy.values, "values"))
        returns = only(members, required(batch.returns, "returns"))
        old = only(members, required(batch.old_values, "old_values"))
        clipped = old + (values - old).clamp(-self.clip_range, self.clip_range)
        return 0.5 * torch.maximum((values - returns).square(), (clipped - returns).square())

    def watch(
        self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
    ) -> Mapping[str, _PerToken]:
        """The critic's mean value and its unclipped squared error."""
        values = only(members, required(policy.values, "values"))
        returns = only(members, required(batch.returns, "returns"))
        return {"critic/value": values, "critic/squared_error": (values - returns).square()}


def only(members: Bool[Tensor, "b t"], values: _PerToken) -> _PerToken:
    """The values of members, and an exact, gradient-free 0 elsewhere, even where a value is not finite."""
    return torch.where(members, values, torch.zeros_like(values))
