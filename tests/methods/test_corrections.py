"""GRPO and DAPO on rollouts of another engine or of older weights, and every divergence estimator of GRPO."""

from __future__ import annotations

import math

import pytest
from tests.methods import literal_corrections as literal
from tests.methods.compare import LONGEST, check_against_literal, free_groups
from tests.methods.literal import grpo as literal_grpo
from tests.methods.rollouts import written_by_old

from bimetal.methods import dapo, grpo
from bimetal.objectives.method import Need, RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)

CORRECTIONS = {
    "decoupled": literal.truncated_tokens(math.inf),
    "truncated": literal.truncated_tokens(1.3),
    "truncated_sequence": literal.truncated_sequences(1.3),
    "banded": literal.inside_tokens(0.7, 1.3),
}


def transcribed(name, *, high, aggregate):
    return lambda samples: literal.weighted_grpo(
        samples.groups, weigh=CORRECTIONS[name], low=0.2, high=high, epsilon=1e-6, aggregate=aggregate
    )


@pytest.mark.parametrize("name", sorted(CORRECTIONS))
def test_grpo_with_a_correction_equals_its_literal_transcription(name):
    options = grpo.Config(correction=name, correction_low=0.7, correction_high=1.3)
    method = grpo.build(options, RUN)
    assert Need.SAMPLER in method.needs
    groups = written_by_old(method, seed=1, drift="some", apart=0.7)
    expected = transcribed(name, high=0.2, aggregate="sequence_mean")
    metrics = check_against_literal(method, groups, expected, seed=1, drift="some")
    assert abs(metrics.value("correction/mean") - 1) > 1e-3


def test_dapo_with_a_correction_equals_its_literal_transcription():
    # Without the penalty for length its rewards are those of GRPO, stretched by 2.
    options = dapo.Config(correction="truncated", correction_high=1.3, overlong="keep", epsilon=2e-6)
    method = dapo.build(options, RUN)
    groups = written_by_old(method, seed=2, drift="some", apart=0.7)
    expected = transcribed("truncated", high=0.28, aggregate="token_mean")
    check_against_literal(method, groups, expected, seed=2, drift="some")


def test_where_the_sampler_is_the_old_policy_a_correction_changes_nothing():
    method = grpo.build(grpo.Config(correction="truncated_sequence"), RUN)
    groups = written_by_old(method, seed=0, drift="some")

    def expected(samples):
        return literal_grpo(samples.groups, low=0.2, high=0.2, beta=0, epsilon=1e-6)

    check_against_literal(method, groups, expected, seed=0, drift="some")


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3", "k3_plus", "weighted_k3"])
def test_grpo_with_each_divergence_equals_its_literal_transcription(estimator):
    def expected(samples):
        flat = [sample for group in samples.groups for sample in group]
        rl = literal_grpo(samples.groups, low=0.2, high=0.2, beta=0, epsilon=1e-6)
        return rl + 0.3 * literal.divergence(flat, kind=estimator, written="old", aggregate="sequence_mean")

    method = grpo.build(grpo.Config(beta=0.3, estimator=estimator), RUN)
    check_against_literal(method, free_groups(1), expected, seed=1, drift="some")


def test_the_defaults_have_neither_correction_nor_divergence():
    method = grpo.build(grpo.Config(), RUN)
    assert [term.name for term in method.terms] == ["rl"]
    assert method.needs == {Need.REWARD}
