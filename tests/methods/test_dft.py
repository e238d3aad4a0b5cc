"""DFT, ASFT and EAFT against their literal transcriptions, and their limits."""

from __future__ import annotations

import math

import pytest
from tests.methods import literal_sft
from tests.methods.compare import LONGEST, SEEDS, check_against_literal, random_groups
from tests.objectives.tables import a_batch, log, said, slope

from bimetal.methods.dft import VARIANTS, Config, build
from bimetal.objectives.method import Need, RunShape
from bimetal.testing.tiny import VOCABULARY

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


@pytest.mark.parametrize("seed", SEEDS)
def test_dft_equals_its_literal_transcription(seed):
    check_against_literal(
        build(Config(), RUN),
        random_groups(seed),
        lambda samples: literal_sft.dft(samples.demonstrations, aggregate="token_mean"),
        seed=seed,
        drift="none",
    )


@pytest.mark.parametrize(
    ("direction", "named"), [("forward", "initial_policy"), ("reverse", "policy_initial")]
)
@pytest.mark.parametrize("seed", SEEDS)
def test_asft_equals_its_literal_transcription(seed, direction, named):
    def transcribed(samples):
        return literal_sft.asft(samples.demonstrations, alpha=0.1, direction=named, aggregate="token_mean")

    method = build(Config(direction=direction, **VARIANTS["asft"]), RUN)
    assert Need.REFERENCE in method.needs
    check_against_literal(method, random_groups(seed), transcribed, seed=seed, drift="some")


@pytest.mark.parametrize("top", [2, 20, 100])
@pytest.mark.parametrize("seed", SEEDS)
def test_eaft_equals_its_literal_transcription(seed, top):
    # With more words asked for than there are, all are taken.
    words = min(top, VOCABULARY)

    def transcribed(samples):
        return literal_sft.eaft(
            samples.demonstrations, divisor=math.log(words), top=words, exponent=1.0, aggregate="token_mean"
        )

    method = build(Config(top=top, **VARIANTS["eaft"]), RUN)
    check_against_literal(method, random_groups(seed), transcribed, seed=seed, drift="none")


def test_dft_is_the_gradient_of_the_probability_itself():
    (term,) = build(Config(), RUN).terms
    batch = a_batch({"imitation": [[1, 1, 1]]})
    policy = said(log([[0.1, 0.5, 1.0]]))
    loss = term.loss(batch, policy, batch.members["imitation"])
    # -p log p, and the coefficient on the log-probability is p: 0 where the token is unlikely, 1 at p = 1.
    value = [0.1 * math.log(10), 0.5 * math.log(2), 0.0]
    assert loss[0].tolist() == pytest.approx(value, rel=1e-12, abs=1e-15)
    assert slope(loss, policy.logprobs)[0] == pytest.approx([-0.1, -0.5, -1.0], rel=1e-12)


def test_without_an_anchor_no_reference_is_asked_for():
    method = build(Config(), RUN)
    assert method.needs == {Need.DEMONSTRATIONS} and not method.statistics
