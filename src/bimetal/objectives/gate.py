"""Gates: what keeps a ratio and an advantage from doing harm.

A gate turns ratio and advantage into the surrogate that is maximized, and can say where it is closed,
that is, where it stops the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

_PerToken = Float[Tensor, "b t"]


@dataclass(frozen=True, slots=True)
class Gate:
    """``surrogate(ratio, advantages)`` is maximized; ``closed(ratio, advantages)`` marks stopped tokens."""

    surrogate: Callable[[_PerToken, _PerToken], _PerToken]
    closed: Callable[[_PerToken, _PerToken], Bool[Tensor, "b t"]]


def no_gate() -> Gate:
    """Ratio times advantage, never closed."""
    return Gate(_product, _never)


def clip(low: float, high: float) -> Gate:
    """The smaller of ratio and clipped ratio, times the advantage (PPO, arXiv:1707.06347, eq. 7).

    Args:
        low: The ratio may fall to 1 - low before a negative advantage is stopped.
        high: The ratio may rise to 1 + high before a positive advantage is stopped (DAPO,
            arXiv:2503.14476, eq. 10).
    """

    def surrogate(ratio: _PerToken, advantages: _PerToken) -> _PerToken:
        return torch.minimum(ratio * advantages, ratio.clamp(1 - low, 1 + high) * advantages)

    def closed(ratio: _PerToken, advantages: _PerToken) -> Bool[Tensor, "b t"]:
        return ((advantages > 0) & (ratio > 1 + high)) | ((advantages < 0) & (ratio < 1 - low))

    return Gate(surrogate, closed)


def dual_clip(low: float, high: float, *, floor: float) -> Gate:
    """As ``clip``, and never below ``floor`` times a negative advantage (arXiv:1912.09729, eq. 4).

    Args:
        low: As in ``clip``.
        high: As in ``clip``.
        floor: c > 1: the ratio beyond which a negative advantage is stopped.
    """
    inner = clip(low, high)

    def surrogate(ratio: _PerToken, advantages: _PerToken) -> _PerToken:
        clipped = inner.surrogate(ratio, advantages)
        return torch.where(advantages < 0, torch.maximum(clipped, floor * advantages), clipped)

    def closed(ratio: _PerToken, advantages: _PerToken) -> Bool[Tensor, "b t"]:
        return inner.closed(ratio, advantages) | ((advantages < 0) & (ratio > floor))

    return Gate(surrogate, closed)


def reshape(gamma: float) -> Gate:
    """The advantage times p / (p + gamma): lifts unlikely tokens' gradient (LUFFY, arXiv:2504.14945, eq. 7).

    Args:
        gamma: A probability; the gradient on the log-probability peaks at p = gamma.
    """

    def surrogate(ratio: _PerToken, advantages: _PerToken) -> _PerToken:
        return ratio / (ratio + gamma) * advantages

    return Gate(surrogate, _never)


def _product(ratio: _PerToken, advantages: _PerToken) -> _PerToken:
    return ratio * advantages


def _never(ratio: _PerToken, advantages: _PerToken) -> Bool[Tensor, "b t"]:
    del advantages
    return torch.zeros_like(ratio, dtype=torch.bool)
