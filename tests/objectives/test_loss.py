"""Losses: values and gradients by hand; 0 and no gradient where nobody is a member, whatever stands there."""

from __future__ import annotations

import math

import pytest
import torch
from tests.objectives.tables import INF, NAN, a_batch, log, marks, numbers, said, slope

from bimetal.core.batch import PolicyOutput
from bimetal.objectives.correction import capped, old_over_sampler
from bimetal.objectives.gate import clip, no_gate
from bimetal.objectives.loss import (
    Coupled,
    CrossEntropy,
    Divergence,
    Loss,
    PolicyGradient,
    Reinforce,
    StatisticLoss,
    ValueRegression,
    only,
)
from bimetal.objectives.ratio import over_old, over_self
from bimetal.objectives.weight import uncertainty

MEMBERS = {"k": [[1, 1, 0]]}


def near(rows):
    return [pytest.approx(row, rel=1e-12, abs=1e-15) for row in rows]


def test_policy_gradient_is_minus_the_gated_product():
    batch = a_batch(MEMBERS, advantages=[[2.0, -1.0, NAN]], old_logprobs=log([[0.5, 0.5, NAN]]))
    policy = said(log([[0.75, 0.25, INF]]))
    loss = PolicyGradient(over_old, clip(0.2, 0.2))(batch, policy, batch.members["k"])
    # ratio 1.5, A 2: min(3, 2.4); ratio 0.5, A -1: min(-0.5, -0.8)
    assert loss.tolist() == near([[-2.4, 0.8, 0.0]])
    assert slope(loss, policy.logprobs) == [[0.0, 0.0, 0.0]]  # both closed
    free = PolicyGradient(over_old, no_gate())(batch, policy, batch.members["k"])
    assert free.tolist() == near([[-3.0, 0.5, 0.0]])
    assert slope(free, policy.logprobs) == near([[-3.0, 0.5, 0.0]])


def test_policy_gradient_watches_ratio_and_closed_share():
    batch = a_batch(MEMBERS, advantages=[[2.0, 1.0, NAN]], old_logprobs=log([[0.5, 0.5, NAN]]))
    policy = said(log([[0.75, 0.25, INF]]))
    seen = PolicyGradient(over_old, clip(0.2, 0.2)).watch(batch, policy, batch.members["k"])
    assert seen["ratio/mean"][0, :2].tolist() == pytest.approx([1.5, 0.5], rel=1e-12)
    assert seen["gate/closed_share"].tolist() == [[1.0, 0.0, 0.0]]


def test_a_correction_multiplies_the_gated_product_and_is_watched():
    batch = a_batch(
        MEMBERS,
        advantages=[[2.0, -1.0, NAN]],
        old_logprobs=log([[0.5, 0.5, NAN]]),
        sampler_logprobs=log([[0.4, 1.0, NAN]]),
    )
    policy = said(log([[0.55, 0.25, INF]]))
    corrected = PolicyGradient(over_old, clip(0.2, 0.2), capped(old_over_sampler, high=math.inf))
    loss = corrected(batch, policy, batch.members["k"])
    # ratio 1.1, A 2, old / mu 1.25: 1.25 * 2.2; ratio 0.5, A -1, closed at 0.8, old / mu 0.5: 0.5 * -0.8
    assert loss.tolist() == near([[-2.75, 0.4, 0.0]])
    assert slope(loss, policy.logprobs) == near([[-2.75, 0.0, 0.0]])
    seen = corrected.watch(batch, policy, batch.members["k"])
    assert seen["correction/mean"][0, :2].tolist() == pytest.approx([1.25, 0.5], rel=1e-12)
    assert "correction/mean" not in PolicyGradient(over_old, no_gate()).watch(
        batch, policy, batch.members["k"]
    )


def test_reinforce_is_minus_advantage_times_log_probability_times_a_detached_weight():
    batch = a_batch(MEMBERS, advantages=[[2.0, -1.0, NAN]], old_logprobs=log([[0.5, 0.5, NAN]]))
    policy = said(log([[0.75, 0.25, INF]]))
    loss = Reinforce()(batch, policy, batch.members["k"])
    # -2 log 0.75 and log 0.25
    assert loss.tolist() == near([[-2 * math.log(0.75), math.log(0.25), 0.0]])
    assert slope(loss, policy.logprobs) == near([[-2.0, 1.0, 0.0]])
    weighted = Reinforce(capped(over_old, high=1.2))
    loss = weighted(batch, policy, batch.members["k"])
    # Weights min(1.5, 1.2) and 0.5; no derivative of the weight: -1.2 * 2 and 0.5 * 1.
    assert loss.tolist() == near([[-2.4 * math.log(0.75), 0.5 * math.log(0.25), 0.0]])
    assert slope(loss, policy.logprobs) == near([[-2.4, 0.5, 0.0]])
    seen = weighted.watch(batch, policy, batch.members["k"])["correction/mean"]
    assert seen[0, :2].tolist() == pytest.approx([1.2, 0.5], rel=1e-12)


def test_policy_gradient_over_itself_with_advantage_one_has_the_slope_of_cross_entropy():
    batch, policy = a_batch(MEMBERS), said(log([[0.3, 0.6, NAN]]))
    loss = PolicyGradient(over_self, no_gate())(batch, policy, batch.members["k"])
    assert slope(loss, policy.logprobs) == [[-1.0, -1.0, 0.0]]


def test_cross_entropy_is_minus_the_log_probability():
    batch, policy = a_batch(MEMBERS), said(log([[0.5, 0.25, -INF]]))
    loss = CrossEntropy()(batch, policy, batch.members["k"])
    assert loss.tolist() == near([[math.log(2), math.log(4), 0.0]])
    assert slope(loss, policy.logprobs) == [[-1.0, -1.0, 0.0]]


def test_cross_entropy_does_not_differentiate_its_weight():
    batch, policy = a_batch(MEMBERS), said(log([[0.5, 0.25, NAN]]))
    loss = CrossEntropy(uncertainty)(batch, policy, batch.members["k"])
    # p (1 - p) = 1/4 and 3/16
    assert loss.tolist() == near([[math.log(2) / 4, math.log(4) * 3 / 16, 0.0]])
    assert slope(loss, policy.logprobs) == near([[-0.25, -0.1875, 0.0]])
    assert CrossEntropy(uncertainty).watch(batch, policy, batch.members["k"])[
        "imitation/nll"
    ].tolist() == near([[math.log(2), math.log(4), 0.0]])


@pytest.mark.parametrize(
    ("estimator", "value", "gradient"),
    [
        # l = log(0.5 / 0.25) = log 2
        ("k1", math.log(2), 1.0),
        ("k2", math.log(2) ** 2 / 2, math.log(2)),
        ("k3", 0.5 - 1 + math.log(2), 1 - 0.5),  # exp(-l) - 1 + l and 1 - exp(-l)
        ("k3_plus", 0.5 - 1 + math.log(2), math.log(2)),  # the value of k3, the slope of k2
        # The old policy said 0.4: 1.25 k3, and its slope 1.25 (k3 + 1 - exp(-l)) = 1.25 l.
        ("weighted_k3", 1.25 * (math.log(2) - 0.5), 1.25 * math.log(2)),
    ],
)
def test_divergence_estimators_by_hand(estimator, value, gradient):
    batch = a_batch(MEMBERS, reference_logprobs=log([[0.25, 0.5, NAN]]), old_logprobs=log([[0.4, 0.5, NAN]]))
    policy = said(log([[0.5, 0.5, INF]]))
    loss = Divergence(estimator)(batch, policy, batch.members["k"])
    assert loss.tolist() == near([[value, 0.0, 0.0]])
    expected_at_equality = 1.0 if estimator == "k1" else 0.0
    assert slope(loss, policy.logprobs) == near([[gradient, expected_at_equality, 0.0]])
    seen = Divergence(estimator).watch(batch, policy, batch.members["k"])["policy/divergence_from_reference"]
    assert seen.tolist() == near([[math.log(2) - 0.5, 0.0, 0.0]])


def test_a_coupled_loss_is_a_detached_coefficient_times_the_log_probability():
    batch = a_batch(MEMBERS)
    policy = said(log([[0.5, 0.25, INF]]))

    def coefficient(batch, policy, members):
        return numbers([[-2.0, 0.5, NAN]])

    loss = Coupled(coefficient)(batch, policy, batch.members["k"])
    assert loss.tolist() == near([[2 * math.log(2), -0.5 * math.log(4), 0.0]])
    assert slope(loss, policy.logprobs) == [[-2.0, 0.5, 0.0]]
    assert Coupled(coefficient).watch(batch, policy, batch.members["k"]) == {}


REVERSE, FORWARD = "KL(policy || reference)", "KL(reference || policy)"


@pytest.mark.parametrize(
    ("estimator", "drawn_by", "unbiased", "gradient_of"),
    [
        ("k1", "policy", True, None),
        ("k2", "policy", False, REVERSE),
        ("k3", "policy", True, FORWARD),
        ("k3_plus", "policy", True, REVERSE),
        ("weighted_k3", "policy", True, REVERSE),
        ("weighted_k3", "old", True, REVERSE),
    ],
)
def test_what_each_estimator_estimates_over_a_whole_vocabulary(estimator, drawn_by, unbiased, gradient_of):
    # Four words: every word is a position, weighted with the chance that it is drawn, so nothing is sampled.
    logits = numbers([[0.2, -0.4, 1.0, 0.1]]).requires_grad_()
    logprobs = torch.log_softmax(logits, dim=-1)
    reference = torch.log_softmax(numbers([[1.0, 0.3, -0.2, 0.0]]), dim=-1)
    other = torch.log_softmax(numbers([[0.5, 0.5, 0.0, -0.5]]), dim=-1)
    old = logprobs.detach() if drawn_by == "policy" else other
    rows = {"reference_logprobs": reference.tolist(), "old_logprobs": old.tolist()}
    batch = a_batch({"k": [[1, 1, 1, 1]]}, **rows)
    loss = Divergence(estimator)(batch, PolicyOutput(logprobs=logprobs), batch.members["k"])
    estimated = (old.exp() * loss).sum()
    p, r = logprobs.exp(), reference.exp()
    exact = {
        REVERSE: (p * (logprobs - reference)).sum(),
        FORWARD: (r * (reference - logprobs)).sum(),
        None: 0 * p.sum(),
    }
    assert (abs(float((estimated - exact[REVERSE]).detach())) < 1e-12) == unbiased
    found, wanted = slope(estimated, logits)[0], slope(exact[gradient_of], logits)[0]
    assert found == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def test_divergence_refuses_an_unknown_estimator():
    with pytest.raises(ValueError, match="k1, k2 or k3"):
        Divergence("k4")


def test_divergence_needs_reference_log_probabilities():
    batch = a_batch(MEMBERS)
    with pytest.raises(ValueError, match="reference_logprobs"):
        Divergence()(batch, said([[-1.0, -1.0, -1.0]]), batch.members["k"])


def test_a_statistic_becomes_a_loss_with_its_sign():
    batch, policy = a_batch(MEMBERS), said([[-1.0, -1.0, -1.0]], spread=[[0.5, 2.0, NAN]])
    loss = StatisticLoss("spread", sign=-1.0)(batch, policy, batch.members["k"])
    assert loss.tolist() == [[-0.5, -2.0, 0.0]]
    assert slope(loss, policy.statistics["spread"]) == [[-1.0, -1.0, 0.0]]
    assert StatisticLoss("spread").watch(batch, policy, batch.members["k"]) == {}
    with pytest.raises(KeyError, match="was not declared"):
        StatisticLoss("other")(batch, policy, batch.members["k"])


def test_value_regression_is_half_the_squared_error():
    batch = a_batch(MEMBERS, returns=[[1.0, 0.0, NAN]], old_values=[[0.0, 0.0, NAN]])
    policy = said([[0.0] * 3], values=[[0.25, 0.5, INF]])
    loss = ValueRegression(INF)(batch, policy, batch.members["k"])
    # (0.25 - 1)^2 / 2 = 0.28125; 0.5^2 / 2 = 0.125
    assert loss.tolist() == near([[0.28125, 0.125, 0.0]])
    assert slope(loss, policy.values) == near([[-0.75, 0.5, 0.0]])


def test_value_regression_takes_the_larger_of_free_and_held_error():
    # Old value 0, range 0.2. Target 1, value 0.5: free 0.25, held (0.2 - 1)^2 = 0.64: held, so no slope.
    # Target 1, value -0.5: free 2.25, held (-0.2 - 1)^2 = 1.44: free, slope V - R = -1.5.
    # Target 0, value 0.1 inside the range: both 0.01, slope 0.1.
    batch = a_batch({"k": [[1, 1, 1]]}, returns=[[1.0, 1.0, 0.0]], old_values=[[0.0, 0.0, 0.0]])
    policy = said([[0.0] * 3], values=[[0.5, -0.5, 0.1]])
    loss = ValueRegression(0.2)(batch, policy, batch.members["k"])
    assert loss.tolist() == near([[0.32, 1.125, 0.005]])
    assert slope(loss, policy.values) == near([[0.0, -1.5, 0.1]])
    seen = ValueRegression(0.2).watch(batch, policy, batch.members["k"])
    assert seen["critic/squared_error"].tolist() == near([[0.25, 2.25, 0.01]])
    assert seen["critic/value"].tolist() == [[0.5, -0.5, 0.1]]


def test_value_regression_names_what_is_missing():
    batch = a_batch(MEMBERS)
    with pytest.raises(ValueError, match="values"):
        ValueRegression(0.2)(batch, said([[0.0] * 3]), batch.members["k"])


def test_only_gives_an_exact_zero_outside_even_of_garbage():
    x = numbers([[1.0, NAN, INF]]).requires_grad_()
    kept = only(marks([[1, 0, 0]]), x)
    assert kept.tolist() == [[1.0, 0.0, 0.0]]
    assert slope(kept, x) == [[1.0, 0.0, 0.0]]


def test_every_loss_is_a_loss():
    losses = (
        PolicyGradient(over_old, no_gate()),
        CrossEntropy(),
        Coupled(uncertainty),
        Divergence(),
        StatisticLoss("x"),
        ValueRegression(1.0),
    )
    assert all(isinstance(loss, Loss) for loss in losses)
