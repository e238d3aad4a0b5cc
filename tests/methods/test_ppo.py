"""PPO against its literal transcription: advantages, whitening, both clips, and the critic's loss."""

from __future__ import annotations

import pytest
from tests.methods import literal
from tests.methods.compare import LONGEST, SEEDS, check_against_literal, free_groups

from bimetal.methods.ppo import Config, build
from bimetal.objectives.method import RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


def transcribed(*, gamma=1.0, lam=1.0, dual=None, value_clip=None):
    # The critic is a model of its own, so its loss has coefficient 1; whitening as in the code bases that
    # divide by the sample variance.
    return lambda samples: literal.ppo(
        [sample for group in samples.groups for sample in group],
        low=0.2,
        high=0.2,
        dual=dual,
        gamma=gamma,
        lam=lam,
        whitening_ddof=1,
        whitening_epsilon=1e-8,
        value_coefficient=1.0,
        value_clip=value_clip,
    )


@pytest.mark.parametrize("drift", ["none", "some"])
@pytest.mark.parametrize("seed", SEEDS)
def test_ppo_equals_its_literal_transcription(seed, drift):
    check_against_literal(build(Config(), RUN), free_groups(seed), transcribed(), seed=seed, drift=drift)


@pytest.mark.parametrize("seed", SEEDS)
def test_ppo_equals_its_literal_transcription_with_decay_dual_clip_and_value_clip(seed):
    options = Config(discount=0.99, trace_decay=0.9, dual_clip=1.5, value_clip=0.05)
    expected = transcribed(gamma=0.99, lam=0.9, dual=1.5, value_clip=0.05)
    metrics = check_against_literal(build(options, RUN), free_groups(seed), expected, seed=seed, drift="some")
    assert metrics.value("gate/closed_share") > 0
    assert metrics.value("ratio/max") > 1.5  # so that the dual clip has something to close
