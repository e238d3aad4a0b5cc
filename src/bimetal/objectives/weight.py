"""Detached token weights: each is a number per member that no gradient flows through."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bimetal.core.batch import Batch, PolicyOutput
from bimetal.objectives.ratio import MAX_LOG_RATIO, required

Weight = Callable[[Batch, PolicyOutput, Bool[Tensor, "b t"]], Float[Tensor, "b t"]]


def one(batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
    """1 everywhere."""
    del batch, members
    return torch.ones_like(policy.logprobs)


def probability(batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
    """p, detached (DFT, arXiv:2508.05629)."""
    del batch
    return _probability(policy, members)


def uncertainty(batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
    """The weight p (1 - p), detached: largest, 1/4, at p = 1/2 (CHORD, arXiv:2508.11408, eq. 6: phi)."""
    del batch
    p = _probability(policy, members)
    return p * (1 - p)


def statistic(name: str) -> Weight:
    """A declared per-token statistic, detached."""

    def weight(batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
        del batch
        values = policy.statistic(name).detach()
        return torch.where(members, values, torch.zeros_like(values))

    return weight


def over_reference(low: float, high: float) -> Weight:
    """The ratio p / p_ref held between ``low`` and ``high``, detached (iw-SFT's code, arXiv:2507.12856)."""

    def weight(batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
        return torch.exp(_held(_log_over_reference(batch, policy, members))).clamp(low, high)

    return weight


def sequence_over_reference(power: float, *, high: float) -> Weight:
    """The power of a sequence's geometric mean of p / p_ref, at most ``high``, detached (iw-SFT's code).

    Args:
        power: tau: 0 makes every weight 1.
        high: What no weight exceeds.
    """

    def weight(batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
        gaps = _log_over_reference(batch, policy, members)
        mean = gaps.sum(dim=-1, keepdim=True) / members.sum(dim=-1, keepdim=True).clamp(min=1)
        return torch.exp(_held(power * mean)).clamp(max=high).expand_as(gaps)

    return weight


def _log_over_reference(
    batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
) -> Float[Tensor, "b t"]:
    detached = policy.logprobs.detach()
    gaps = detached - required(batch.reference_logprobs, "reference_logprobs")
    return torch.where(members, gaps, torch.zeros_like(gaps))


def _held(exponent: Float[Tensor, "b t"]) -> Float[Tensor, "b t"]:
    return exponent.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)


def _probability(policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
    detached = policy.logprobs.detach()
    return torch.exp(torch.where(members, detached, torch.zeros_like(detached)).clamp(max=0.0))
