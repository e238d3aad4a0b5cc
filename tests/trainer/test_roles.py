"""Roles: what trains, what is frozen, and where they live."""

from __future__ import annotations

import torch
from torch import nn

from bimetal.trainer.optimizer import LearningRate, RoleOptimizer
from bimetal.trainer.roles import POLICY, REFERENCE, Models, frozen_role, role_of


def test_a_role_owns_the_parameters_that_may_be_trained():
    module = nn.Linear(2, 2)
    module.bias.requires_grad_(requires_grad=False)
    assert list(role_of(POLICY, module).parameters) == ["weight"]


def test_a_frozen_role_asks_for_no_gradient_and_never_trains():
    module = nn.Dropout(0.5)
    linear = nn.Sequential(nn.Linear(2, 2), module)
    role = frozen_role(REFERENCE, linear)
    assert not any(p.requires_grad for p in linear.parameters())
    assert not module.training
    assert (role.trains, dict(role.parameters)) == (False, {})


def test_models_know_their_roles_in_order_and_those_that_train():
    policy = role_of(POLICY, nn.Linear(2, 2))
    policy.optimizer = RoleOptimizer(policy.parameters, rate=LearningRate(peak=0.1))
    models = Models({POLICY: policy, REFERENCE: frozen_role(REFERENCE, nn.Linear(2, 2))})
    assert list(models) == [POLICY, REFERENCE]
    assert len(models) == 2
    assert models.trained == (POLICY,)
    assert models.device == torch.device("cpu")
