"""Learning rates at their corners, groups and decay, and state that survives a round trip."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from bimetal.core.errors import CheckpointError
from bimetal.objectives.update import Gradients
from bimetal.trainer.optimizer import LearningRate, RoleOptimizer


def parameters() -> dict[str, nn.Parameter]:
    return {
        "w": nn.Parameter(torch.ones((2, 2), dtype=torch.float64)),
        "b": nn.Parameter(torch.ones(2, dtype=torch.float64)),
    }


def gradient(value: float) -> Gradients:
    return Gradients({name: torch.full_like(p, value) for name, p in parameters().items()})


def move(optimizer: RoleOptimizer, value: float) -> float:
    found = gradient(value)
    return optimizer.step(found, norm=found.norm(), progress=0.0)


@pytest.mark.parametrize(
    ("schedule", "progress", "rate"),
    [
        ("constant", 0.0, 0.2),  # a tenth of the peak
        ("constant", 0.1, 1.1),  # 2 * (0.1 + 0.9 * 0.1 / 0.2)
        ("constant", 0.2, 2.0),
        ("constant", 1.0, 2.0),
        ("linear", 0.6, 1.0),  # half of the way from 0.2 to 1
        ("linear", 1.0, 0.0),
        ("cosine", 0.2, 2.0),
        ("cosine", 0.6, 1.0),
        ("cosine", 0.4, 1.0 + math.cos(math.pi / 4)),  # a quarter of the way
        ("cosine", 1.0, 0.0),
    ],
)
def test_the_rate_warms_up_and_follows_its_schedule(schedule, progress, rate):
    found = LearningRate(peak=2.0, warmup=0.2, schedule=schedule).at(progress)
    assert found == pytest.approx(rate, abs=1e-12)


def test_a_warm_up_of_the_whole_stage_ends_at_the_peak():
    assert LearningRate(peak=2.0, warmup=1.0, schedule="cosine").at(1.0) == 2.0


def test_decay_pulls_matrices_only():
    owned = parameters()
    optimizer = RoleOptimizer(owned, name="sgd", rate=LearningRate(peak=0.1), weight_decay=0.5)
    assert move(optimizer, 0.0) == 0.1
    # w - 0.1 * 0.5 * w
    assert owned["w"].detach().flatten().tolist() == pytest.approx([0.95] * 4, rel=1e-12)
    assert owned["b"].tolist() == [1.0, 1.0]
    assert owned["w"].grad is None


def test_clipping_scales_all_parameters_by_one_factor():
    owned = parameters()
    optimizer = RoleOptimizer(owned, name="sgd", rate=LearningRate(peak=1.0), clip_norm=1.0)
    move(optimizer, 2.0)
    # Six numbers of 2: norm 2 sqrt(6), so each moves by 1 / sqrt(6).
    expected = pytest.approx([1 - 1 / math.sqrt(6)] * 2, rel=1e-12)
    assert owned["b"].tolist() == expected
    assert owned["w"].detach()[0].tolist() == expected


def test_a_zero_gradient_moves_nothing_under_clipping():
    owned = parameters()
    move(RoleOptimizer(owned, name="sgd", rate=LearningRate(peak=1.0), clip_norm=1.0), 0.0)
    assert owned["b"].tolist() == [1.0, 1.0]


def test_state_restored_from_tensors_continues_bit_for_bit():
    first, second = parameters(), parameters()
    running = RoleOptimizer(first, rate=LearningRate(peak=0.1))
    for value in (1.0, -0.5):
        move(running, value)
    for name, p in second.items():
        with torch.no_grad():
            p.copy_(first[name])
    resumed = RoleOptimizer(second, rate=LearningRate(peak=0.1))
    resumed.load_tensors({name: t.clone() for name, t in running.tensors().items()})
    move(running, 0.25)
    move(resumed, 0.25)
    assert all(torch.equal(p, second[name]) for name, p in first.items())


def test_state_of_another_model_is_refused():
    optimizer = RoleOptimizer(parameters(), rate=LearningRate(peak=0.1))
    with pytest.raises(CheckpointError, match="does not have"):
        optimizer.load_tensors({"other.weight::exp_avg": torch.zeros(1)})
