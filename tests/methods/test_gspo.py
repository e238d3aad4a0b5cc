"""GSPO against its literal transcription, in both forms, which have one gradient."""

from __future__ import annotations

import pytest
from tests.methods import literal, literal_rl
from tests.methods.compare import LONGEST, check_against_literal, forget_verdict, free_groups
from tests.objectives.tables import a_batch, log, said, slope

from bimetal.methods.gspo import VARIANTS, Config, build
from bimetal.objectives.method import RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)
BY_TOKEN = VARIANTS["gspo_token"]


def transcribed(*, token_form, low=3e-4, high=4e-4):
    return lambda samples: literal_rl.gspo(
        samples.groups, low=low, high=high, epsilon=1e-6, token_form=token_form
    )


@pytest.mark.parametrize("options", [{}, BY_TOKEN])
def test_gspo_equals_its_literal_transcription_at_the_first_update(options):
    method = build(Config(**options), RUN)
    metrics = check_against_literal(
        method, free_groups(0), transcribed(token_form=bool(options)), seed=0, drift="none"
    )
    assert metrics.value("gate/closed_share") == 0


@pytest.mark.parametrize("options", [{}, BY_TOKEN])
@pytest.mark.parametrize("seed", [1, 2])
def test_gspo_equals_its_literal_transcription_when_sequences_are_clipped(seed, options):
    method = build(Config(clip_low=0.1, clip_high=0.15, **options), RUN)
    expected = transcribed(token_form=bool(options), low=0.1, high=0.15)
    metrics = check_against_literal(method, free_groups(seed), expected, seed=seed, drift="some")
    assert 0 < metrics.value("gate/closed_share") < 1


def test_both_forms_have_one_gradient():
    # The token form is checked against the other form's transcription.
    method = build(Config(clip_low=0.1, clip_high=0.15, **BY_TOKEN), RUN)
    expected = transcribed(token_form=False, low=0.1, high=0.15)
    check_against_literal(method, free_groups(1), expected, seed=1, drift="some")


def test_an_unknown_trace_takes_no_part():
    groups = forget_verdict(free_groups(0), 1, 2)
    check_against_literal(build(Config(), RUN), groups, transcribed(token_form=False), seed=0, drift="none")


def test_on_policy_it_is_grpo():
    def expected(samples):
        return literal.grpo(samples.groups, low=0.2, high=0.2, beta=0, epsilon=1e-6)

    check_against_literal(build(Config(), RUN), free_groups(2), expected, seed=2, drift="none")


@pytest.mark.parametrize("options", [{}, BY_TOKEN])
def test_the_coefficient_worked_by_hand(options):
    loss = build(Config(clip_low=0.5, clip_high=0.5, **options), RUN).terms[0].loss
    batch = a_batch(
        {"rl": [[1, 1, 0], [1, 1, 1]]},
        advantages=[[2.0] * 3, [2.0] * 3],
        old_logprobs=log([[0.5, 0.4, 0.1], [0.1, 0.1, 0.1]]),
    )
    policy = said(log([[0.25, 0.8, 0.9], [0.2, 0.2, 0.2]]))
    # Row 0: s = sqrt(0.5 * 2) = 1, open. Row 1: s = 2, above 1.5: closed at every token.
    found = loss(batch, policy, batch.members["rl"])
    assert found.tolist() == [pytest.approx([-2.0, -2.0, 0.0]), pytest.approx([-3.0, -3.0, -3.0])]
    # Summed over the two members, each token's coefficient is 2 (1/2) s A = 2, or s A = 2 by token.
    assert slope(found, policy.logprobs) == [pytest.approx([-2.0, -2.0, 0.0]), [0.0, 0.0, 0.0]]


def test_a_response_of_one_token_has_its_tokens_ratio():
    loss = build(Config(clip_low=0.9, clip_high=9.0), RUN).terms[0].loss
    batch = a_batch({"rl": [[1]]}, advantages=[[1.0]], old_logprobs=log([[0.2]]))
    found = loss(batch, said(log([[0.6]])), batch.members["rl"])
    assert found.tolist() == [[pytest.approx(-3.0, rel=1e-12)]]
