"""Ranks: who shares an optimizer step, and how gradients are summed over them.

Gradients are summed, never averaged: shares already hold the denominator of the whole step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard

BUCKET_ELEMENTS = 2**24
"""Gradients travel in buckets of at most this many numbers."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process's place among those that share a step; one process by default."""

    rank: int = 0
    size: int = 1

    @classmethod
    def from_environment(cls) -> Ranks:
        """The ranks of the initialized process group, or one rank without any."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_rank(), dist.get_world_size())
        return cls()

    def sum_in_place(self, tensors: Sequence[Tensor]) -> None:
        """Replace every tensor by its sum over ranks."""
        if self.size == 1:
            return
        bucket: list[Tensor] = []
        for tensor in tensors:
            if bucket and (
                sum(t.numel() for t in bucket) + tensor.numel() > BUCKET_ELEMENTS
                or bucket[0].dtype != tensor.dtype
            ):
                _sum_bucket(bucket)
                bucket = []
            bucket.append(tensor)
        if bucket:
            _sum_bucket(bucket)

    def any(self, *, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        if self.size == 1:
            return flag
        seen = torch.tensor(float(flag))
        dist.all_reduce(seen, op=dist.ReduceOp.MAX)
        return bool(seen)

    def gather(self, value: object) -> list[object]:
        """Every rank's value, in order of rank."""
        if self.size == 1:
            return [value]
        found: list[object] = [None] * self.size
        dist.all_gather_object(found, value)
        return found


def shard(module: nn.Module, layers: Sequence[nn.Module]) -> nn.Module:
    """Shard a role's module over all ranks with FSDP2; each layer is gathered on its own.

    The reduction sums: FSDP's division by the number of ranks is switched off.
    """
    for layer in layers:
        fully_shard(layer)
    fully_shard(module)
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.set_gradient_divide_factor(1.0)
    return module


def is_sharded(module: nn.Module) -> bool:
    """Whether gradients of this module are already reduced in its backward pass."""
    return any(isinstance(part, FSDPModule) for part in module.modules())


def _sum_bucket(bucket: list[Tensor]) -> None:
    flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
    dist.all_reduce(flat)
    start = 0
    for tensor in bucket:
        tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
        start += tensor.numel()
