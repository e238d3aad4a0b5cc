"""Update rules: what is done with the gradient.

A rule asks the trainer for gradients - by term, by batch, by role - and answers with the gradient
each trained role gets; the trainer clips and applies it. A rule may also adjust the parameters after
the optimizer has moved them. See decision record 0002.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from bimetal.core.types import Origin


@dataclass(frozen=True, slots=True)
class Gradients:
    """The gradient of one role's parameters, by parameter name; summed over micro-batches and ranks."""

    parts: Mapping[str, Tensor]

    def dot(self, other: Gradients) -> float:
        """Inner product, accumulated in float64."""
        return float(sum((_dot(g, other.parts[name]) for name, g in self.parts.items()), start=0.0))

    def norm(self) -> float:
        """Euclidean length."""
        return self.dot(self) ** 0.5

    def plus(self, other: Gradients, factor: float = 1.0) -> Gradients:
        """These gradients plus ``factor`` times the others."""
        return Gradients({name: g + factor * other.parts[name] for name, g in self.parts.items()})

    def scaled(self, factor: float) -> Gradients:
        """These gradients times ``factor``."""
        return Gradients({name: factor * g for name, g in self.parts.items()})


@runtime_checkable
class Ask(Protocol):
    """What a rule may ask of the trainer during one optimizer step."""

    def roles(self) -> tuple[str, ...]:
        """The trained roles, such as ("policy", "critic")."""
        ...

    def gradients(
        self,
        *,
        terms: Collection[str] | None = None,
        batch: str = "step",
        role: str = "policy",
        through: str | None = None,
        origin: Origin | None = None,
    ) -> Gradients:
        """The gradient of these terms on this batch with respect to one role's parameters.

        Args:
            terms: Names of terms; all of the role's terms when ``None``.
            batch: "step" is the optimizer step's batch; other names are those the method declared
                (a probe batch for a meta-gradient).
            role: Whose parameters are differentiated.
            through: Whose module runs the forward pass; the role's own when ``None``. A bilevel method
                differentiates the adapters through the shadow.
            origin: Only tokens of this origin; all when ``None``.
        """
        ...


@dataclass(frozen=True, slots=True)
class Change:
    """One role's parameters before and after the optimizer moved them, by name; ``after`` may be edited."""

    role: str
    before: Mapping[str, Tensor]
    after: Mapping[str, Tensor]


@dataclass(frozen=True, slots=True)
class Update:
    """A rule on gradients and, if given, one on parameter updates."""

    gradients: Callable[[Ask], Mapping[str, Gradients]]
    parameters: Callable[[Change], None] | None = None


def plain() -> Update:
    """Every trained role gets the gradient of all its terms."""
    return Update(lambda ask: {role: ask.gradients(role=role) for role in ask.roles()})


def drop_on_conflict(keep: str, drop: str) -> Update:
    """Both terms' gradients, or only ``keep``'s where their cosine is negative (GTA, EMNLP 2025)."""

    def rule(ask: Ask) -> Mapping[str, Gradients]:
        kept, dropped = ask.gradients(terms=(keep,)), ask.gradients(terms=(drop,))
        return {"policy": kept if kept.dot(dropped) < 0 else kept.plus(dropped)}

    return Update(rule)


def _dot(a: Tensor, b: Tensor) -> float:
    total = torch.sum(a.double() * b.double())
    # A sharded tensor's sum is a partial result until it is gathered.
    full = getattr(total, "full_tensor", None)
    return float(full() if full is not None else total)
