"""REINFORCE++ against its literal transcription, with and without a group baseline and a cost per token."""

from __future__ import annotations

import pytest
from tests.methods import literal_rl
from tests.methods.compare import LONGEST, SEEDS, check_against_literal, forget_verdict, free_groups
from tests.methods.rollouts import written_by_old
from tests.objectives.tables import a_group, a_trace

from bimetal.core.types import Signals
from bimetal.methods.reinforce_pp import VARIANTS, Config, build
from bimetal.objectives.method import RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


def transcribed(*, group_baseline, beta=0.0, gamma=1.0, high=0.2):
    return lambda samples: literal_rl.reinforce_pp(
        samples.groups,
        group_baseline=group_baseline,
        beta=beta,
        gamma=gamma,
        ddof=1,
        epsilon=1e-8,
        low=0.2,
        high=high,
    )


@pytest.mark.parametrize("baseline", ["none", "group"])
@pytest.mark.parametrize("drift", ["none", "some"])
@pytest.mark.parametrize("seed", SEEDS)
def test_reinforce_pp_equals_its_literal_transcription(seed, drift, baseline):
    method = build(Config(baseline=baseline), RUN)
    expected = transcribed(group_baseline=baseline == "group")
    metrics = check_against_literal(method, free_groups(seed), expected, seed=seed, drift=drift)
    assert (metrics.value("gate/closed_share") > 0) == (drift == "some")


@pytest.mark.parametrize("baseline", ["none", "group"])
@pytest.mark.parametrize("drift", ["none", "some"])
def test_each_token_pays_for_its_divergence_and_returns_are_discounted(drift, baseline):
    method = build(Config(baseline=baseline, beta=0.05, discount=0.9, clip_high=0.27), RUN)
    expected = transcribed(group_baseline=baseline == "group", beta=0.05, gamma=0.9, high=0.27)
    # Where the sampler is the old policy, log mu is log p_old.
    groups = written_by_old(method, seed=2, drift=drift)
    check_against_literal(method, groups, expected, seed=2, drift=drift)


def test_an_unknown_trace_takes_no_part_in_baseline_and_whitening():
    groups = forget_verdict(free_groups(0), 1, 2)
    method = build(Config(**VARIANTS["reinforce_pp_baseline"]), RUN)
    check_against_literal(method, groups, transcribed(group_baseline=True), seed=0, drift="some")


def test_whitened_tokens_worked_by_hand():
    groups = [a_group(a_trace("a", reward=1.0, policy=3), a_trace("b", reward=0.0, policy=1))]
    first, second = build(Config(), RUN).credit(groups, Signals())
    # Tokens 1, 1, 1, 0: mean 3/4, sample variance (3 / 16 + 9 / 16) / 3 = 1/4, deviation 1/2.
    assert first.advantage == pytest.approx((0.5, 0.5, 0.5), rel=1e-7)
    assert second.advantage == pytest.approx((-1.5,), rel=1e-7)
    # The long response weighs the mean: with the group's mean taken off first it is the same after whitening.
    for one, other in zip(
        (first, second), build(Config(baseline="group"), RUN).credit(groups, Signals()), strict=True
    ):
        assert one.advantage == pytest.approx(other.advantage, rel=1e-9)


def test_a_trace_alone_in_its_group_stays_a_member_and_out_of_the_whitening():
    groups = [
        a_group(a_trace("a", reward=1.0, policy=1), a_trace("b", reward=0.0, policy=1)),
        a_group(a_trace("c", reward=1.0, policy=2), a_trace("d", reward=None, policy=1)),
    ]
    found = build(Config(baseline="group"), RUN).credit(groups, Signals())
    # 1/2 and -1/2: mean 0, sample deviation sqrt(1/2).
    assert found[0].advantage == pytest.approx((0.5**0.5,), rel=1e-7)
    assert found[1].advantage == pytest.approx((-(0.5**0.5),), rel=1e-7)
    assert found[2].advantage == (0.0, 0.0)
    assert found[2].weights and not found[3].weights
