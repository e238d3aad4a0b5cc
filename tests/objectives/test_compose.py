"""Shares and their sum, worked by hand: own pools, a common pool, weights of 0, terms without members."""

from __future__ import annotations

import pytest
import torch
from tests.objectives.tables import NAN, a_batch, said, slope

from bimetal.objectives.aggregate import (
    fixed_length,
    prompt_mean,
    sequence_mean,
    token_mean,
    weighted_token_mean,
)
from bimetal.objectives.compose import Term, evaluate, shares
from bimetal.objectives.gate import no_gate
from bimetal.objectives.loss import CrossEntropy, PolicyGradient, ValueRegression
from bimetal.objectives.ratio import over_self

# Row 0: two rollout tokens. Row 1: one demonstration token and a token of neither.
MEMBERS = {"on": [[1, 1, 0], [0, 0, 0]], "off": [[0, 0, 0], [1, 0, 0]]}


def test_a_term_has_its_own_denominator():
    terms = (Term("on", CrossEntropy(), token_mean()), Term("off", CrossEntropy(), token_mean()))
    found = shares(terms, a_batch(MEMBERS))
    assert found["on"].tolist() == [[0.5, 0.5, 0.0], [0.0] * 3]  # 1 / 2 tokens
    assert found["off"].tolist() == [[0.0] * 3, [1.0, 0.0, 0.0]]  # 1 / 1 token


def test_terms_of_one_pool_share_it():
    terms = (
        Term("on", CrossEntropy(), token_mean(), pool="r"),
        Term("off", CrossEntropy(), token_mean(), pool="r"),
    )
    found = shares(terms, a_batch(MEMBERS))
    third = pytest.approx(1 / 3, rel=1e-12)
    assert found["on"].tolist() == [[third, third, 0.0], [0.0] * 3]  # 1 / (2 + 1) tokens
    assert found["off"].tolist() == [[0.0] * 3, [third, 0.0, 0.0]]


def test_a_pool_scales_by_the_members_of_the_term_and_counts_those_of_the_pool():
    terms = (
        Term("on", CrossEntropy(), sequence_mean(), pool="r"),
        Term("off", CrossEntropy(), sequence_mean(), pool="r"),
    )
    found = shares(terms, a_batch(MEMBERS))
    assert found["on"].tolist() == [[0.25, 0.25, 0.0], [0.0] * 3]  # 1 / 2 members / 2 sequences
    assert found["off"].tolist() == [[0.0] * 3, [0.5, 0.0, 0.0]]  # 1 / 1 member / 2 sequences


def test_a_pool_needs_one_aggregate():
    terms = (
        Term("on", CrossEntropy(), token_mean(), pool="r"),
        Term("off", CrossEntropy(), fixed_length(3), pool="r"),
    )
    with pytest.raises(ValueError, match="one aggregate"):
        shares(terms, a_batch(MEMBERS))


def test_a_weight_of_zero_keeps_its_token_in_the_denominator():
    batch = a_batch({"k": [[1, 1, 1, 1]]}, weights={"k": [[1.0, 0.0, 2.0, 0.0]]})
    assert shares((Term("k", CrossEntropy(), token_mean()),), batch)["k"].tolist() == [[0.25, 0.0, 0.5, 0.0]]


def test_weights_outside_the_members_are_never_looked_at():
    batch = a_batch({"k": [[1, 0, 0]]}, weights={"k": [[1.0, NAN, 7.0]]})
    for aggregate in (token_mean(), weighted_token_mean(), sequence_mean()):
        assert shares((Term("k", CrossEntropy(), aggregate),), batch)["k"].tolist() == [[1.0, 0.0, 0.0]]


def test_weighted_token_mean_divides_by_the_weights():
    batch = a_batch({"k": [[1, 1, 0]]}, weights={"k": [[1.0, 3.0, 5.0]]})
    term = Term("k", CrossEntropy(), weighted_token_mean())
    assert shares((term,), batch)["k"].tolist() == [[0.25, 0.75, 0.0]]


def test_prompt_mean_gives_every_group_the_same():
    batch = a_batch({"k": [[1, 1], [1, 1], [1, 0]]}, group=[0, 0, 1])
    # group 0: 1 / 4 tokens / 2 groups; group 1: 1 / 1 / 2
    found = shares((Term("k", CrossEntropy(), prompt_mean()),), batch)["k"]
    assert found.tolist() == [[0.125, 0.125], [0.125, 0.125], [0.5, 0.0]]


def test_a_term_without_members_has_shares_of_zero():
    batch = a_batch({"k": [[0, 0]]})
    for aggregate in (token_mean(), sequence_mean(), fixed_length(4), prompt_mean(), weighted_token_mean()):
        assert shares((Term("k", CrossEntropy(), aggregate),), batch)["k"].tolist() == [[0.0, 0.0]]


def test_members_whose_weights_are_all_zero_contribute_nothing_and_no_nan():
    batch = a_batch({"k": [[1, 1]]}, weights={"k": [[0.0, 0.0]]})
    term = Term("k", CrossEntropy(), weighted_token_mean())
    assert shares((term,), batch)["k"].tolist() == [[0.0, 0.0]]


def test_shares_are_float64_whatever_the_batch_is():
    batch = a_batch({"k": [[1, 1, 1]]}).map(lambda x: x.float() if x.is_floating_point() else x)
    assert shares((Term("k", CrossEntropy(), token_mean()),), batch)["k"].dtype is torch.float64


def test_the_loss_is_the_sum_of_coefficients_shares_and_losses():
    terms = (Term("on", CrossEntropy(), token_mean()), Term("off", CrossEntropy(), token_mean()))
    batch, policy = a_batch(MEMBERS), said([[-1.0, -3.0, NAN], [-0.5, NAN, NAN]])
    total, parts = evaluate(
        terms, batch, policy, step_shares=shares(terms, batch), coefficients={"on": 10.0, "off": 100.0}
    )
    # on: (1 + 3) / 2 = 2; off: 0.5; 10 * 2 + 100 * 0.5 = 70
    assert {name: float(x.detach()) for name, x in parts.items()} == {"on": 2.0, "off": 0.5}
    assert float(total.detach()) == 70.0
    # -10 / 2 each, and -100
    assert slope(total, policy.logprobs) == [[-5.0, -5.0, 0.0], [-100.0, 0.0, 0.0]]


def test_a_micro_batch_contributes_its_shares_and_shares_add_up():
    terms = (Term("k", CrossEntropy(), sequence_mean()),)
    batch = a_batch({"k": [[1, 1, 0], [1, 1, 1], [1, 0, 0]]})
    whole = shares(terms, batch)["k"]
    # Every row's shares sum to 1 / 3.
    assert whole.sum(dim=1).tolist() == pytest.approx([1 / 3] * 3, rel=1e-12)
    logprobs = [[-1.0, -2.0, 0.0], [-3.0, -4.0, -5.0], [-6.0, 0.0, 0.0]]
    parts = [
        float(
            evaluate(
                terms, batch.rows([i]), said([logprobs[i][:3]]),
                step_shares={"k": whole[i : i + 1]}, coefficients={"k": 1.0},
            )[0].detach()
        )
        for i in range(3)
    ]  # fmt: skip
    # (1 + 2) / 2 / 3, (3 + 4 + 5) / 3 / 3, 6 / 3
    assert parts == pytest.approx([0.5, 4 / 3, 2.0], rel=1e-12)


def test_a_micro_batch_without_members_is_exactly_zero_with_a_gradient_path():
    terms = (Term("k", PolicyGradient(over_self, no_gate()), token_mean()),)
    batch, policy = a_batch({"k": [[0, 0]]}), said([[NAN, NAN]])
    total, parts = evaluate(terms, batch, policy, step_shares=shares(terms, batch), coefficients={"k": 1.0})
    assert float(total.detach()) == 0.0 == float(parts["k"].detach())
    assert slope(total, policy.logprobs) == [[0.0, 0.0]]


def test_no_terms_at_all_still_have_a_gradient_path():
    batch, policy = a_batch({"k": [[1, 1]]}), said([[-1.0, -1.0]])
    total, parts = evaluate((), batch, policy, step_shares={}, coefficients={})
    assert (float(total.detach()), parts) == (0.0, {})
    assert slope(total, policy.logprobs) == [[0.0, 0.0]]


def test_the_path_of_a_critics_term_runs_through_its_values():
    terms = (Term("value", ValueRegression(1.0), token_mean(), role="critic"),)
    batch = a_batch({"value": [[0, 0]]}, returns=[[0.0, 0.0]], old_values=[[0.0, 0.0]])
    policy = said([[0.0, 0.0]], values=[[3.0, 4.0]])
    total, _ = evaluate(terms, batch, policy, step_shares=shares(terms, batch), coefficients={"value": 1.0})
    assert slope(total, policy.values) == [[0.0, 0.0]]
