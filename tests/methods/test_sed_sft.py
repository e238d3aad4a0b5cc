"""SED-SFT against its literal transcription, its coefficients by hand, and its limit."""

from __future__ import annotations

import pytest
from tests.methods import literal, literal_sft
from tests.methods.compare import LONGEST, SEEDS, check_against_literal, random_groups
from tests.objectives.tables import INF, NAN, a_batch, log, said, slope

from bimetal.methods.sed_sft import Config, Diversity, build
from bimetal.objectives.method import RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


@pytest.mark.parametrize(("strength", "top", "threshold"), [(1.0, 10, 0.95), (0.2, 2, 0.6), (3.0, 5, 1.0)])
@pytest.mark.parametrize("seed", SEEDS)
def test_sed_sft_equals_its_literal_transcription(seed, strength, top, threshold):
    def transcribed(samples):
        return literal_sft.sed_sft(samples.demonstrations, strength=strength, top=top, threshold=threshold)

    method = build(Config(strength=strength, top=top, threshold=threshold), RUN)
    metrics = check_against_literal(method, random_groups(seed), transcribed, seed=seed, drift="none")
    share = metrics.value("diversity/flexible_share")
    # Five of 23 words never hold everything.
    assert share == 1 if threshold == 1.0 else 0 < share < 1


def test_where_no_position_is_uncertain_it_is_sft():
    def sft(samples):
        return literal.sft(samples.demonstrations, aggregate="token_mean")

    check_against_literal(build(Config(threshold=0.0), RUN), random_groups(0), sft, seed=0, drift="none")


def test_the_whole_coefficient_is_one_plus_lambda_p_times_one_minus_two_p():
    imitation, diversity = build(Config(strength=1.0, threshold=0.95), RUN).terms
    batch = a_batch({"k": [[1, 1, 1]]})
    policy = said(log([[0.1, 0.5, 1.0]]), mass=[[0.5] * 3])
    members = batch.members["k"]
    loss = imitation.loss(batch, policy, members) + diversity.coefficient * diversity.loss(
        batch, policy, members
    )
    # 1 + 0.1 * 0.8 = 1.08, 1 at p = 1/2, and 1 + 1 * (1 - 2) = 0 at p = 1: a certain token teaches nothing.
    assert slope(loss, policy.logprobs)[0] == pytest.approx([-1.08, -1.0, 0.0], rel=1e-12, abs=1e-15)


def test_the_pull_is_to_one_half_and_only_where_the_mass_is_below_the_threshold():
    batch = a_batch({"k": [[1, 1, 1, 1, 1, 0, 0]]})
    mass = [[0.9, 0.9, 0.9, 0.95, 0.96, 0.1, NAN]]
    policy = said(log([[0.1, 0.5, 0.8, 0.1, 0.1, NAN, INF]]), mass=mass)
    loss = Diversity(0.95)(batch, policy, batch.members["k"])
    # (0.1 - 0.5)^2, (0.5 - 0.5)^2, (0.8 - 0.5)^2; a mass of exactly the threshold is not below it.
    assert loss[0].tolist() == pytest.approx([0.16, 0.0, 0.09, 0.0, 0.0, 0.0, 0.0], rel=1e-12, abs=1e-15)
    # d / d log p is 2 p (p - 1/2) = -p (1 - 2 p): -0.1 * 0.8, 0, 0.8 * 0.6.
    pull = slope(loss, policy.logprobs)[0]
    assert pull == pytest.approx([-0.08, 0.0, 0.48, 0.0, 0.0, 0.0, 0.0], rel=1e-12, abs=1e-15)
    share = Diversity(0.95).watch(batch, policy, batch.members["k"])["diversity/flexible_share"]
    assert share[0].tolist() == [1, 1, 1, 0, 0, 0, 0]
