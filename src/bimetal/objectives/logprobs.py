"""Chunk functions: per-token statistics of a chunk of logits, so full logits never exist.

A chunk function takes the logits of n positions (float32, already divided by the temperature), the
tokens that stand there, and, where it is declared with ``other``, the logits of another role at the
same positions. It returns one number per position and must be differentiable when it is run again
(the trainer recomputes each chunk in the backward pass instead of keeping its logits).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

ChunkFunction = Callable[
    [Float[Tensor, "p v"], Int[Tensor, " p"], Float[Tensor, "p v"] | None], Float[Tensor, " p"]
]
"""(logits, targets, other logits or None) -> one number per position."""


@dataclass(frozen=True, slots=True)
class Statistic:
    """A chunk function and the role whose logits it compares with, if any."""

    function: ChunkFunction
    other: str | None = None


def token_logprob(
    logits: Float[Tensor, "p v"], targets: Int[Tensor, " p"], other: Float[Tensor, "p v"] | None = None
) -> Float[Tensor, " p"]:
    """The log-probability of the token that stands there, in nats."""
    del other
    chosen = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return chosen - torch.logsumexp(logits, dim=-1)


def entropy(
    logits: Float[Tensor, "p v"], targets: Int[Tensor, " p"], other: Float[Tensor, "p v"] | None = None
) -> Float[Tensor, " p"]:
    """Entropy of the next-token distribution, in nats; log v for uniform logits."""
    del targets, other
    logprobs = torch.log_softmax(logits, dim=-1)
    # A token of probability 0 has log-probability -inf and contributes nothing: 0 * log 0 = 0.
    safe = torch.where(torch.isinf(logprobs), torch.zeros_like(logprobs), logprobs)
    return -(logprobs.exp() * safe).sum(dim=-1)


def top_k_mass(count: int) -> ChunkFunction:
    """The total probability of the ``count`` likeliest tokens, in [0, 1]."""

    def mass(
        logits: Float[Tensor, "p v"], targets: Int[Tensor, " p"], other: Float[Tensor, "p v"] | None = None
    ) -> Float[Tensor, " p"]:
        del targets, other
        return torch.softmax(logits, dim=-1).topk(min(count, logits.shape[-1]), dim=-1).values.sum(dim=-1)

    return mass


def top_k_entropy(count: int) -> ChunkFunction:
    """Entropy among the ``count`` likeliest tokens, over its largest value log count; in [0, 1].

    Their probabilities are made to add up to 1 first (EAFT, arXiv:2601.02151).

    Args:
        count: At least 2; a smaller vocabulary is taken whole.
    """

    def share(
        logits: Float[Tensor, "p v"], targets: Int[Tensor, " p"], other: Float[Tensor, "p v"] | None = None
    ) -> Float[Tensor, " p"]:
        likeliest = logits.topk(min(count, logits.shape[-1]), dim=-1).values
        return entropy(likeliest, targets, other) / math.log(likeliest.shape[-1])

    return share


def argmax_token(
    logits: Float[Tensor, "p v"], targets: Int[Tensor, " p"], other: Float[Tensor, "p v"] | None = None
) -> Float[Tensor, " p"]:
    """1 where the token that stands there is the likeliest one (the first, on a tie), else 0."""
    del other
    return (logits.argmax(dim=-1) == targets).to(logits.dtype)


def divergence_from_other(
    logits: Float[Tensor, "p v"], targets: Int[Tensor, " p"], other: Float[Tensor, "p v"] | None
) -> Float[Tensor, " p"]:
    """Kullback-Leibler divergence KL(policy || other) over the whole vocabulary, in nats.

    Raises:
        ValueError: No other logits were given: declare the statistic with ``other="reference"``.
    """
    del targets
    if other is None:
        raise ValueError(
            "divergence_from_other needs the other role's logits: Statistic(..., other='reference')"
        )
    mine, theirs = torch.log_softmax(logits, dim=-1), torch.log_softmax(other, dim=-1)
    return (mine.exp() * (mine - theirs)).sum(dim=-1)


def divergence_to_other(
    logits: Float[Tensor, "p v"], targets: Int[Tensor, " p"], other: Float[Tensor, "p v"] | None
) -> Float[Tensor, " p"]:
    """Kullback-Leibler divergence KL(other || policy) over the whole vocabulary, in nats.

    Raises:
        ValueError: No other logits were given: declare the statistic with ``other="reference"``.
    """
    del targets
    if other is None:
        raise ValueError(
            "divergence_to_other needs the other role's logits: Statistic(..., other='reference')"
        )
    mine, theirs = torch.log_softmax(logits, dim=-1), torch.log_softmax(other, dim=-1)
    return (theirs.exp() * (theirs - mine)).sum(dim=-1)
