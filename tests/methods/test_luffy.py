"""LUFFY against its literal transcription, its closed-form coefficients, and its limit."""

from __future__ import annotations

import math

import pytest
import torch
from tests.methods import literal
from tests.methods.compare import (
    LONGEST,
    SEEDS,
    check_against_literal,
    forget_verdict,
    free_groups,
    mixed_groups,
)

from bimetal.core.types import Signals
from bimetal.methods.luffy import Config, build
from bimetal.objectives.method import RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


def transcribed(gamma: float, entropy: float):
    return lambda samples: literal.luffy(samples.groups, gamma=gamma, longest=LONGEST, entropy=entropy)


@pytest.mark.parametrize("entropy", [0.0, 0.001])
@pytest.mark.parametrize("drift", ["none", "some"])
@pytest.mark.parametrize("seed", SEEDS)
def test_luffy_equals_its_literal_transcription(seed, drift, entropy):
    method = build(Config(gamma=0.1, entropy=entropy), RUN)
    check_against_literal(method, mixed_groups(seed), transcribed(0.1, entropy), seed=seed, drift=drift)


def test_luffy_leaves_an_unknown_trace_out_of_the_mean_and_the_count():
    groups = forget_verdict(mixed_groups(0), 1, 0)
    check_against_literal(build(Config(entropy=0), RUN), groups, transcribed(0.1, 0.0), seed=0, drift="some")


def test_both_parts_share_the_number_of_sequences():
    method = build(Config(entropy=0), RUN)
    on, off = method.terms
    assert on.pool == off.pool != ""


def test_two_tokens_worked_by_hand():
    method = build(Config(gamma=0.1, entropy=0), RUN)
    off = method.terms[1]
    surrogate = off.loss.gate.surrogate
    # p = 0.1, gamma = 0.1, A = 0.875: f(p) A = 0.5 * 0.875 = 0.4375
    # p = 1.0:                         f(p) A = (1 / 1.1) * 0.875 = 0.795454...
    p = torch.tensor([[0.1, 1.0]], dtype=torch.float64, requires_grad=True)
    value = surrogate(p, torch.full((1, 2), 0.875, dtype=torch.float64))
    assert value[0].tolist() == pytest.approx([0.4375, 0.875 / 1.1], rel=1e-12)
    # The coefficient on the log-probability is A gamma p / (p + gamma)^2:
    # 0.875 * 0.01 / 0.04 = 0.21875 (the peak A / 4), and 0.875 * 0.1 / 1.21 = 0.0723140...
    (slope,) = torch.autograd.grad(value.sum(), p)
    assert (slope * p)[0].tolist() == pytest.approx([0.21875, 0.0875 / 1.21], rel=1e-12)


def test_without_demonstrations_a_wide_open_gate_makes_it_dr_grpo_without_a_clip():
    groups, seed = free_groups(1), 1
    method = build(Config(entropy=0), RUN)

    def expected(samples):
        return literal.dr_grpo(samples.groups, low=0.999, high=math.exp(20), constant=LONGEST)

    check_against_literal(method, groups, expected, seed=seed, drift="none")


def test_a_group_that_is_all_correct_teaches_nothing_and_the_demonstration_never_scores_below_its_group():
    groups = tuple(group for seed in range(6) for group in mixed_groups(seed))
    method = build(Config(entropy=0), RUN)
    uniform = []
    for group in groups:
        advantages = [credit.advantage for credit in method.credit((group,), Signals())]
        uniform.append(all(trace.reward == 1.0 for trace in group.traces))
        assert all(a == 0 for a in advantages) == uniform[-1]
        # One demonstration and k of 3 rollouts right: 1 - (1 + k) / 4 = (3 - k) / 4.
        right = sum(trace.reward == 1.0 for trace in group.traces[:-1])
        assert advantages[-1] == pytest.approx((3 - right) / 4, rel=1e-12)
    assert any(uniform) and not all(uniform)
