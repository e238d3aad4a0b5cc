"""iw-SFT against its literal transcription, its limits, and one sequence worked by hand."""

from __future__ import annotations

import math

import pytest
from tests.methods import literal, literal_sft
from tests.methods.compare import LONGEST, SEEDS, check_against_literal, random_groups
from tests.objectives.tables import a_batch, log, said, slope

from bimetal.methods.iw_sft import VARIANTS, Config, build
from bimetal.objectives.method import RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


@pytest.mark.parametrize("aggregate", ["token_mean", "sequence_sum"])
@pytest.mark.parametrize(("power", "cap"), [(1.0, 16.0), (2.0, 16.0), (3.0, 1.1)])
@pytest.mark.parametrize("seed", SEEDS[:2])
def test_iw_sft_equals_its_literal_transcription(seed, power, cap, aggregate):
    def transcribed(samples):
        return literal_sft.iw_sft(samples.demonstrations, tau=power, low=0.0, high=cap, aggregate=aggregate)

    method = build(Config(power=power, cap=cap, aggregate=aggregate), RUN)
    check_against_literal(method, random_groups(seed), transcribed, seed=seed, drift="some")


@pytest.mark.parametrize("seed", SEEDS)
def test_the_token_variant_equals_its_literal_transcription(seed):
    def transcribed(samples):
        return literal_sft.iw_sft_token(samples.demonstrations, low=0.2, high=1.8, aggregate="token_mean")

    method = build(Config(**VARIANTS["iw_sft_token"]), RUN)
    check_against_literal(method, random_groups(seed), transcribed, seed=seed, drift="some")


def test_without_power_it_is_sft():
    def sft(samples):
        return literal.sft(samples.demonstrations, aggregate="token_mean")

    check_against_literal(build(Config(power=0.0), RUN), random_groups(0), sft, seed=0, drift="some")


def test_a_constant_log_ratio_multiplies_the_weight_until_the_cap():
    (term,) = build(Config(power=2.0, cap=16.0), RUN).terms
    members = {"imitation": [[1, 1], [1, 1], [1, 1]]}
    reference = log([[0.2, 0.8], [0.1, 0.4], [0.02, 0.08]])
    batch = a_batch(members, reference_logprobs=reference)
    policy = said(log([[0.2, 0.8]] * 3))
    loss = term.loss(batch, policy, batch.members["imitation"])
    # Ratios 1, 2 and 10 at every token: weights 1, 2 ** 2 = 4, and 10 ** 2 = 100 held at 16.
    assert slope(loss, policy.logprobs) == [
        pytest.approx([-1.0, -1.0], rel=1e-12),
        pytest.approx([-4.0, -4.0], rel=1e-12),
        pytest.approx([-16.0, -16.0], rel=1e-12),
    ]
    assert float(loss[1, 1].detach()) == pytest.approx(-4.0 * math.log(0.8), rel=1e-12)
