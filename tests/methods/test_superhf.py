"""SuperHF against its literal transcription, its choices, and its limits."""

from __future__ import annotations

import dataclasses

import pytest
from tests.methods import literal_sft
from tests.methods.compare import (
    LONGEST,
    SEEDS,
    check_against_literal,
    forget_verdict,
    free_groups,
)
from tests.objectives.tables import a_group, a_trace

from bimetal.core.types import Signals
from bimetal.methods.superhf import Config, build
from bimetal.objectives.method import Need, RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


@pytest.mark.parametrize("aggregate", ["token_mean", "sequence_mean", "sequence_sum"])
@pytest.mark.parametrize("beta", [0.0, 0.23])
@pytest.mark.parametrize("seed", SEEDS[:2])
def test_superhf_equals_its_literal_transcription(seed, beta, aggregate):
    def transcribed(samples):
        return literal_sft.superhf(
            samples.groups, beta=beta, aggregate=aggregate, divergence_aggregate=aggregate
        )

    method = build(Config(beta=beta, aggregate=aggregate), RUN)
    groups = forget_verdict(free_groups(seed), 1, 0)
    check_against_literal(method, groups, transcribed, seed=seed, drift="some")


def test_groups_whose_best_is_too_bad_are_left_out():
    first, *others = free_groups(0)
    wrong = dataclasses.replace(first, traces=tuple(t for t in first.traces if t.reward == 0.0))
    assert wrong.traces and any(t.reward == 1.0 for group in others for t in group.traces)

    def transcribed(samples):
        kept = [group for group in samples.groups if any(s.reward == 1.0 for s in group)]
        return literal_sft.superhf(
            kept, beta=0.23, aggregate="sequence_mean", divergence_aggregate="sequence_mean"
        )

    method = build(Config(least_reward=1.0), RUN)
    check_against_literal(method, (wrong, *others), transcribed, seed=0, drift="none")


def test_the_first_of_the_best_is_imitated_and_anchored_and_nobody_else():
    group = a_group(
        a_trace("a", policy=2, reward=0.0),
        a_trace("b", policy=2, reward=0.5),
        a_trace("c", policy=3, reward=0.5),
        a_trace("d", policy=1, reward=None),
    )
    credits = build(Config(), RUN).credit((group,), Signals())
    assert [[(w.term, w.segment, w.weight) for w in c.weights] for c in credits] == [
        [],
        [("imitation", 1, 1.0), ("anchor", 1, 1.0)],
        [],
        [],
    ]
    strict = build(Config(least_reward=0.75), RUN).credit((group,), Signals())
    assert all(c.weights == () for c in strict)


def test_without_a_divergence_no_reference_is_asked_for():
    method = build(Config(beta=0.0), RUN)
    assert method.needs == {Need.REWARD} and not method.statistics
    assert [term.name for term in method.terms] == ["imitation"]
