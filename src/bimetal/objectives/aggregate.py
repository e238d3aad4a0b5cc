"""Aggregates: the rule that turns members into shares, as two functions, ``scale`` and ``count``.

``scale`` is per token, from the members of the term; ``count`` is one number, from the members of the
term's pool, over the whole optimizer step. A share is weight * scale / count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

_Members = Bool[Tensor, "b t"]
_Weights = Float[Tensor, "b t"]
_Groups = Int[Tensor, " b"]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """``scale(members, groups)`` per token, and ``count(members, weights, groups)`` over the whole step."""

    name: str
    scale: Callable[[_Members, _Groups], Float[Tensor, "b t"]]
    count: Callable[[_Members, _Weights, _Groups], Float[Tensor, ""]]


def token_mean() -> Aggregate:
    """Every member token of the step counts the same (DAPO, arXiv:2503.14476, eq. 8)."""
    return Aggregate("token_mean", _scale_one, _count_tokens)


def sequence_mean() -> Aggregate:
    """The mean over sequences of each sequence's mean over its members (GRPO, arXiv:2402.03300, eq. 3)."""
    return Aggregate("sequence_mean", _scale_by_length, _count_sequences)


def sequence_sum() -> Aggregate:
    """The mean over sequences of the sum over members: the likelihood of whole sequences."""
    return Aggregate("sequence_sum", _scale_one, _count_sequences)


def fixed_length(tokens: int) -> Aggregate:
    """The mean over sequences of the sum over members divided by a constant (Dr. GRPO, arXiv:2503.20783).

    Args:
        tokens: The constant: the longest response the run allows, whatever the batch holds.
    """

    def scale(members: _Members, groups: _Groups) -> Float[Tensor, "b t"]:
        return _scale_one(members, groups) / tokens

    return Aggregate(f"fixed_length({tokens})", scale, _count_sequences)


def prompt_mean() -> Aggregate:
    """The mean over groups of each group's mean over its member tokens (ScaleRL, arXiv:2510.13786)."""
    return Aggregate("prompt_mean", _scale_by_group, _count_groups)


def prompt_sum() -> Aggregate:
    """The mean over groups of each group's sum over members (RRHF, arXiv:2304.05302)."""
    return Aggregate("prompt_sum", _scale_one, _count_groups)


def token_budget(tokens: int) -> Aggregate:
    """The sum over members divided by a constant, however many there are (C3PO, arXiv:2506.14731).

    Args:
        tokens: The constant: the tokens an optimizer step is meant to train.
    """

    def count(members: _Members, weights: _Weights, groups: _Groups) -> Float[Tensor, ""]:
        del members, weights, groups
        return torch.tensor(float(tokens), dtype=torch.float64)

    return Aggregate(f"token_budget({tokens})", _scale_one, count)


def weighted_token_mean() -> Aggregate:
    """Member tokens, divided by the sum of their weights (C-RLFT, arXiv:2309.11235)."""
    return Aggregate("weighted_token_mean", _scale_one, _count_weights)


def _scale_one(members: _Members, groups: _Groups) -> Float[Tensor, "b t"]:
    del groups
    return members.to(torch.float64)


def _scale_by_length(members: _Members, groups: _Groups) -> Float[Tensor, "b t"]:
    del groups
    return members.to(torch.float64) / members.sum(dim=1, keepdim=True).clamp(min=1)


def _scale_by_group(members: _Members, groups: _Groups) -> Float[Tensor, "b t"]:
    return members.to(torch.float64) / _tokens_by_group(members, groups)[groups].clamp(min=1).unsqueeze(1)


def _count_tokens(members: _Members, weights: _Weights, groups: _Groups) -> Float[Tensor, ""]:
    del weights, groups
    return members.sum().to(torch.float64)


def _count_sequences(members: _Members, weights: _Weights, groups: _Groups) -> Float[Tensor, ""]:
    del weights, groups
    return members.any(dim=1).sum().to(torch.float64)


def _count_groups(members: _Members, weights: _Weights, groups: _Groups) -> Float[Tensor, ""]:
    del weights
    return (_tokens_by_group(members, groups) > 0).sum().to(torch.float64)


def _count_weights(members: _Members, weights: _Weights, groups: _Groups) -> Float[Tensor, ""]:
    del groups
    return torch.where(members, weights, torch.zeros_like(weights)).sum().to(torch.float64)


def _tokens_by_group(members: _Members, groups: _Groups) -> Int[Tensor, " n"]:
    width = int(groups.max()) + 1 if groups.numel() else 0
    return torch.zeros(width, dtype=torch.long).index_add_(0, groups.long(), members.sum(dim=1))
