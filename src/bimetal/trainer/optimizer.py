"""Optimizers: parameter groups, learning-rate schedules over progress, clipping by norm."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from bimetal.core.errors import CheckpointError
from bimetal.objectives.update import Gradients

ScheduleName = Literal["constant", "linear", "cosine"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRate:
    """Peak, warm-up as a share of the stage, then constant, linear to 0, or half a cosine to 0."""

    peak: float
    warmup: float = 0.0
    schedule: ScheduleName = "constant"

    def at(self, progress: float) -> float:
        """The rate at this progress in [0, 1].

        A warm-up starts at a tenth of the peak, so that the first step of a stage moves something.
        """
        if progress < self.warmup:
            return self.peak * (0.1 + 0.9 * progress / self.warmup)
        if self.schedule == "constant" or self.warmup >= 1:
            return self.peak
        left = 1 - (progress - self.warmup) / (1 - self.warmup)
        return self.peak * (left if self.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * (1 - left))))


class RoleOptimizer:
    """One role's optimizer: AdamW or SGD over named parameters, decay on matrices only."""

    def __init__(  # noqa: PLR0913 - AdamW's own settings, by name
        self,
        parameters: Mapping[str, nn.Parameter],
        *,
        name: Literal["adamw", "sgd"] = "adamw",
        rate: LearningRate,
        betas: tuple[float, float] = (0.9, 0.95),
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        clip_norm: float = math.inf,
    ) -> None:
        """Start with empty state; ``clip_norm`` is the longest gradient a step may take."""
        self.parameters = dict(parameters)
        self.rate = rate
        self.clip_norm = clip_norm
        matrices = [p for p in self.parameters.values() if p.dim() > 1]
        others = [p for p in self.parameters.values() if p.dim() <= 1]
        groups = [
            {"params": part, "weight_decay": decay}
            for part, decay in ((matrices, weight_decay), (others, 0.0))
            if part
        ]
        self.inner: torch.optim.Optimizer = (
            torch.optim.AdamW(groups, lr=rate.peak, betas=betas, eps=epsilon)
            if name == "adamw"
            else torch.optim.SGD(groups, lr=rate.peak)
        )

    def step(self, gradients: Gradients, *, norm: float, progress: float) -> float:
        """Clip by the gradient's ``norm``, apply, and forget the gradient.

        Returns:
            The learning rate that was used.
        """
        rate = self.rate.at(progress)
        factor = min(1.0, self.clip_norm / norm) if norm > 0 else 1.0
        for name, parameter in self.parameters.items():
            gradient = gradients.parts[name]
            parameter.grad = gradient if factor == 1.0 else gradient * factor
        for group in self.inner.param_groups:
            group["lr"] = rate
        self.inner.step()
        self.inner.zero_grad(set_to_none=True)
        return rate

    def tensors(self) -> dict[str, Tensor]:
        """The optimizer's state as named tensors, for a checkpoint."""
        names = {id(p): name for name, p in self.parameters.items()}
        found: dict[str, Tensor] = {}
        for parameter, state in self.inner.state.items():
            for key, value in state.items():
                found[f"{names[id(parameter)]}::{key}"] = torch.as_tensor(value).detach()
        return found

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what ``tensors`` gave.

        Raises:
            CheckpointError: A tensor belongs to no parameter of this role.
        """
        self.inner.state.clear()
        for key, value in tensors.items():
            name, _, part = key.rpartition("::")
            if name not in self.parameters:
                raise CheckpointError(
                    f"optimizer state names parameter {name!r}, which the model does not have; "
                    "the checkpoint belongs to another model"
                )
            parameter = self.parameters[name]
            if part != "step" and value.shape != parameter.shape:
                raise CheckpointError(
                    f"optimizer state {key!r} has shape {tuple(value.shape)}, its parameter "
                    f"{tuple(parameter.shape)}; "
                    "the checkpoint belongs to another model"
                )
            kept = value.clone() if part == "step" else value.to(parameter.device).clone()
            self.inner.state[parameter][part] = kept
