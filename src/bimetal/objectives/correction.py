"""Detached weights made of ratios: they correct for who wrote the tokens and carry no gradient of their own.

The sampler (mu) wrote the tokens; the old policy is what the trainer's weights say of them before the update.
They differ where the engine computes otherwise than the trainer, or a rollout is older than the weights.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bimetal.core.batch import Batch, PolicyOutput
from bimetal.objectives.ratio import MAX_LOG_RATIO, Ratio, required
from bimetal.objectives.weight import Weight, one

CorrectionName = Literal["none", "decoupled", "truncated", "truncated_sequence", "banded"]
"""The corrections that methods offer by name; see ``correction_named``."""


def old_over_sampler(
    batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
) -> Float[Tensor, "b t"]:
    """The ratio p_old / mu of each member (decoupled PPO, arXiv:2505.24298).

    Raises:
        ValueError: The batch holds no old or no sampler log-probabilities.
    """
    del policy
    return torch.exp(_log_old_over_sampler(batch, members).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))


def sequence_old_over_sampler(
    batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
) -> Float[Tensor, "b t"]:
    """The product of a sequence's p_old / mu, at each member.

    Raises:
        ValueError: The batch holds no old or no sampler log-probabilities.
    """
    del policy
    total = _log_old_over_sampler(batch, members).sum(dim=-1, keepdim=True)
    spread = torch.where(members, total, torch.zeros_like(total))
    return torch.exp(spread.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))


def capped(ratio: Ratio, *, low: float = 0.0, high: float) -> Weight:
    """The ratio held between ``low`` and ``high``, detached (CISPO, arXiv:2506.13585).

    Over the sampler it is truncated importance sampling. An infinite ``high`` leaves the ratio as it is.
    """

    def weight(batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
        return ratio(batch, policy, members).detach().clamp(low, high)

    return weight


def banded(ratio: Ratio, *, low: float, high: float) -> Weight:
    """The ratio, detached, where it lies in [low, high], and 0 elsewhere (masked importance sampling)."""

    def weight(batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
        found = ratio(batch, policy, members).detach()
        return torch.where((found >= low) & (found <= high), found, torch.zeros_like(found))

    return weight


def correction_named(name: CorrectionName, *, low: float, high: float) -> Weight:
    """What a method multiplies its loss by, for rollouts of another engine or of older weights.

    ``decoupled`` is p_old / mu as it is, so that the clip is around the old policy and the data are mu's
    (arXiv:2505.24298); ``truncated`` holds it at ``high``, by token or, as a product, by sequence; ``banded``
    drops tokens outside [``low``, ``high``]; ``none`` is 1.
    """
    return {
        "none": one,
        "decoupled": capped(old_over_sampler, high=math.inf),
        "truncated": capped(old_over_sampler, high=high),
        "truncated_sequence": capped(sequence_old_over_sampler, high=high),
        "banded": banded(old_over_sampler, low=low, high=high),
    }[name]


def _log_old_over_sampler(batch: Batch, members: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
    old = required(batch.old_logprobs, "old_logprobs")
    sampler = required(batch.sampler_logprobs, "sampler_logprobs")
    return torch.where(members, old - sampler, torch.zeros_like(old))
