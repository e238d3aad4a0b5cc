"""Controllers: scalars that change while training runs.

A schedule is a plain function of progress, the share of the stage's budget that is spent, in [0, 1]. A
controller that learns from what happens has the four further methods of ``Controller``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

Schedule = Callable[[float], float]
"""progress in [0, 1] -> value."""


@runtime_checkable
class Controller(Protocol):
    """A scalar with state."""

    def value(self, progress: float) -> float:
        """The scalar now."""
        ...

    def observe(self, metrics: Mapping[str, float]) -> None:
        """Learn from the metrics of one optimizer step."""
        ...

    def state_dict(self) -> dict[str, float]:
        """Everything that must be restored on resume."""
        ...

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Restore what ``state_dict`` gave."""
        ...


Coefficient = float | Schedule | Controller
"""What a term's coefficient may be."""


def value_of(coefficient: Coefficient, progress: float) -> float:
    """The coefficient at this progress."""
    if isinstance(coefficient, Controller):
        return coefficient.value(progress)
    if callable(coefficient):
        return coefficient(progress)
    return coefficient


@dataclass(frozen=True, slots=True)
class Linear:
    """From ``start`` at progress 0 to ``end`` at progress 1, in a straight line."""

    start: float
    end: float

    def __call__(self, progress: float) -> float:
        """The value at this progress."""
        return self.start + (self.end - self.start) * progress


@dataclass(frozen=True, slots=True)
class RiseAndDecay:
    """Up from 0 to ``peak``, down a half cosine to ``valley``, then constant (arXiv:2508.11408, section 4).

    ``rise`` and ``decay`` are shares of the stage; the paper counts them in steps (W and D).
    """

    peak: float
    valley: float
    rise: float
    decay: float

    def __call__(self, progress: float) -> float:
        """The value at this progress.

        >>> schedule = RiseAndDecay(peak=0.9, valley=0.05, rise=0.0, decay=0.5)
        >>> schedule(0.0), round(schedule(0.25), 6), schedule(0.5)
        (0.9, 0.475, 0.05)
        """
        if progress < self.rise:
            return self.peak * progress / self.rise
        if progress >= self.rise + self.decay:
            return self.valley
        turned = math.pi * (progress - self.rise) / self.decay
        return self.valley + 0.5 * (self.peak - self.valley) * (1 + math.cos(turned))


@dataclass(frozen=True, slots=True)
class Complement:
    """1 minus another schedule."""

    of: Schedule

    def __call__(self, progress: float) -> float:
        """The value at this progress."""
        return 1.0 - self.of(progress)
