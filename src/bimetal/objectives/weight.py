"""Detached token weights: each is a number per member that no gradient flows through."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bimetal.core.batch import Batch, PolicyOutput

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


def _probability(policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
    detached = policy.logprobs.detach()
    return torch.exp(torch.where(members, detached, torch.zeros_like(detached)).clamp(max=0.0))
