"""RLOO against its literal transcription, in its three forms, and against what it must equal."""

from __future__ import annotations

import pytest
import torch
from tests.methods import literal, literal_rl
from tests.methods.compare import LONGEST, SEEDS, check_against_literal, forget_verdict, free_groups
from tests.methods.rollouts import written_by_old
from tests.objectives.tables import a_group, a_trace

from bimetal.core.types import Signals
from bimetal.methods.rloo import Config, build
from bimetal.objectives.method import Need, RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)
WIDE = {"clip_low": 0.9999999, "clip_high": 1e9}
LITERAL_NAMES = {"sequence": "action", "token": "token", "none": "none"}


@pytest.mark.parametrize("ratio", ["sequence", "token", "none"])
@pytest.mark.parametrize("drift", ["none", "some"])
@pytest.mark.parametrize("seed", SEEDS)
def test_rloo_equals_its_literal_transcription(seed, drift, ratio):
    def expected(samples):
        return literal_rl.rloo(samples.groups, beta=0.0, off_policy=LITERAL_NAMES[ratio])

    check_against_literal(
        build(Config(ratio=ratio, **WIDE), RUN), free_groups(seed), expected, seed=seed, drift=drift
    )


@pytest.mark.parametrize("ratio", ["sequence", "token", "none"])
@pytest.mark.parametrize("drift", ["none", "some"])
def test_the_divergence_is_spent_inside_the_reward(drift, ratio):
    method = build(Config(ratio=ratio, beta=0.03, **WIDE), RUN)
    assert {Need.REFERENCE, Need.SAMPLER} <= method.needs

    def expected(samples):
        return literal_rl.rloo(samples.groups, beta=0.03, off_policy=LITERAL_NAMES[ratio])

    # Where the sampler is the old policy, log mu is log p_old.
    groups = written_by_old(method, seed=1, drift=drift)
    check_against_literal(method, groups, expected, seed=1, drift=drift)


def test_the_default_clips_the_ratio_of_the_whole_response():
    # A product over a response moves further than a token's ratio: a wide clip leaves some of them open.
    method = build(Config(clip_low=0.8, clip_high=4.0), RUN)

    def expected(samples):
        total, count = torch.zeros((), dtype=torch.float64), 0
        for group in samples.groups:
            for sample, a in zip(group, literal_rl.rloo_advantages(group, beta=0.0), strict=True):
                gaps = [x - old for x, old in zip(sample.logprobs, sample.old, strict=True)]
                rho = torch.exp(torch.stack(gaps).sum())
                total = total - literal.clipped(rho, a, low=0.8, high=4.0)
                count += 1
        return total / count

    metrics = check_against_literal(method, free_groups(0), expected, seed=0, drift="some")
    assert 0 < metrics.value("gate/closed_share") < 1


def test_an_unknown_trace_takes_no_part():
    groups = forget_verdict(free_groups(0), 1, 2)
    check_against_literal(
        build(Config(ratio="none"), RUN),
        groups,
        lambda samples: literal_rl.rloo(samples.groups, beta=0.0, off_policy="none"),
        seed=0,
        drift="some",
    )


def test_four_rewards_worked_by_hand():
    rewards = (1.0, 0.0, 0.0, 1.0)
    group = a_group(*(a_trace(f"t{i}", member=i, reward=r, policy=1) for i, r in enumerate(rewards)))
    # 1 - (0 + 0 + 1) / 3 = 2/3 and 0 - (1 + 0 + 1) / 3 = -2/3; the reward minus its own share would give 1/2.
    found = [credit.advantage for credit in build(Config(), RUN).credit([group], Signals())]
    assert found == pytest.approx([2 / 3, -2 / 3, -2 / 3, 2 / 3], rel=1e-12)
    assert sum(found) == pytest.approx(0, abs=1e-12)


def test_a_divergence_worked_by_hand_makes_equal_rewards_unequal():
    group = a_group(a_trace("a", reward=1.0, policy=2), a_trace("b", reward=1.0, policy=1))
    # log mu = -0.5 each. a: (-0.5 + 1) + (-0.5 + 0.5) = 0.5 nats, b: -0.5 + 0.25 = -0.25 nats.
    signals = Signals(reference_logprobs={"a": (-1.0, -0.5), "b": (-0.25,)})
    found = [c.advantage for c in build(Config(beta=0.1), RUN).credit([group], signals)]
    # 0.95 against 1.025
    assert found == pytest.approx([-0.075, 0.075], rel=1e-9)
