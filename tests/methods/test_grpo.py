"""GRPO against its literal transcription, with and without the divergence from the reference."""

from __future__ import annotations

import pytest
from tests.methods import literal
from tests.methods.compare import LONGEST, SEEDS, check_against_literal, forget_verdict, free_groups

from bimetal.methods.grpo import Config, build
from bimetal.objectives.method import RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


def transcribed(beta: float, low: float = 0.2, high: float = 0.2):
    return lambda samples: literal.grpo(samples.groups, low=low, high=high, beta=beta, epsilon=1e-6)


@pytest.mark.parametrize("beta", [0.0, 0.04])
@pytest.mark.parametrize("seed", SEEDS)
def test_grpo_equals_its_literal_transcription_at_the_first_update(seed, beta):
    method = build(Config(beta=beta), RUN)
    metrics = check_against_literal(method, free_groups(seed), transcribed(beta), seed=seed, drift="none")
    assert metrics.value("gate/closed_share") == 0
    assert metrics.value("ratio/mean") == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("beta", [0.0, 0.04])
@pytest.mark.parametrize("seed", SEEDS)
def test_grpo_equals_its_literal_transcription_when_gates_close(seed, beta):
    method = build(Config(beta=beta, clip_high=0.28), RUN)
    metrics = check_against_literal(
        method, free_groups(seed), transcribed(beta, high=0.28), seed=seed, drift="some"
    )
    assert 0 < metrics.value("gate/closed_share") < 1


def test_an_unknown_trace_takes_no_part_in_the_group_or_in_the_mean():
    groups = forget_verdict(free_groups(0), 1, 2)
    check_against_literal(build(Config(), RUN), groups, transcribed(0.0), seed=0, drift="some")
