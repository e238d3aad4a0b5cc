"""Roles: the models of a run by what they are for.

A role is a module, the parameters that belong to it, and, if it trains, an optimizer. The policy is
always there; a critic, a reference, a shadow or adapters exist where the method needs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from bimetal.trainer.optimizer import RoleOptimizer

POLICY, CRITIC, REFERENCE = "policy", "critic", "reference"


@dataclass(slots=True, kw_only=True)
class Role:
    """One role.

    ``module`` answers ``module(batch, statistics, others)`` with a ``PolicyOutput``; it is ``None`` for
    a role that is only parameters inside another role's module (adapters).
    """

    name: str
    module: nn.Module | None
    parameters: Mapping[str, nn.Parameter]
    optimizer: RoleOptimizer | None = None

    @property
    def trains(self) -> bool:
        """Whether an optimizer moves this role's parameters."""
        return self.optimizer is not None


def role_of(name: str, module: nn.Module, optimizer: RoleOptimizer | None = None) -> Role:
    """A role that owns all parameters of its module that may be trained."""
    owned = {key: p for key, p in module.named_parameters() if p.requires_grad}
    return Role(name=name, module=module, parameters=owned, optimizer=optimizer)


def frozen_role(name: str, module: nn.Module) -> Role:
    """A role that never trains; its parameters stop asking for gradients."""
    for parameter in module.parameters():
        parameter.requires_grad = False
    return Role(name=name, module=module.eval(), parameters={})


@dataclass(slots=True)
class Models(Mapping[str, Role]):
    """The roles of a run by name."""

    roles: dict[str, Role] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Role:
        """The role of this name."""
        return self.roles[name]

    def __iter__(self) -> Iterator[str]:
        """Names in the order in which roles were made."""
        return iter(self.roles)

    def __len__(self) -> int:
        """Number of roles."""
        return len(self.roles)

    @property
    def trained(self) -> tuple[str, ...]:
        """Names of the roles that train."""
        return tuple(name for name, role in self.roles.items() if role.trains)

    @property
    def device(self) -> torch.device:
        """Where the policy lives."""
        return next(iter(self.roles[POLICY].parameters.values())).device
