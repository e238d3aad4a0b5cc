"""Chunk functions on distributions of four tokens, and what they say without other logits."""

from __future__ import annotations

import math

import pytest
import torch
from tests.objectives.tables import numbers, slope

from bimetal.objectives.logprobs import (
    argmax_token,
    divergence_from_other,
    divergence_to_other,
    entropy,
    token_logprob,
    top_k_entropy,
    top_k_mass,
)

P = [0.5, 0.25, 0.125, 0.125]
LOGITS = [[math.log(p) + 3.0 for p in P]]  # a constant added to all logits changes nothing
TARGET = torch.tensor([2])


def test_token_logprob_is_normalized():
    logits = numbers(LOGITS).requires_grad_()
    value = token_logprob(logits, TARGET)
    assert value.tolist() == pytest.approx([math.log(0.125)], rel=1e-12)
    # The slope on the logits is 1[token] - p.
    assert slope(value, logits)[0] == pytest.approx([-0.5, -0.25, 0.875, -0.125], rel=1e-12)


def test_entropy_by_hand():
    logits = numbers(LOGITS).requires_grad_()
    value = entropy(logits, TARGET)
    # 0.5 log 2 + 0.25 log 4 + 2 * 0.125 log 8 = (0.5 + 0.5 + 0.75) log 2
    h = 1.75 * math.log(2)
    assert value.tolist() == pytest.approx([h], rel=1e-12)
    # d H / d z_j = -p_j (log p_j + H)
    assert slope(value, logits)[0] == pytest.approx([-p * (math.log(p) + h) for p in P], rel=1e-12)


def test_entropy_of_uniform_logits_is_the_log_of_the_vocabulary():
    assert entropy(torch.zeros((1, 7), dtype=torch.float64), TARGET).tolist() == pytest.approx([math.log(7)])


def test_entropy_survives_an_impossible_token():
    logits = numbers([[0.0, 0.0, -math.inf]]).requires_grad_()
    value = entropy(logits, TARGET)
    assert value.tolist() == pytest.approx([math.log(2)], rel=1e-12)
    assert all(math.isfinite(g) for g in slope(value, logits)[0])


def test_top_k_mass_adds_the_likeliest():
    logits = numbers(LOGITS).requires_grad_()
    assert top_k_mass(1)(logits, TARGET, None).tolist() == pytest.approx([0.5], rel=1e-12)
    two = top_k_mass(2)(logits, TARGET, None)
    assert two.tolist() == pytest.approx([0.75], rel=1e-12)
    # m = sum of the top: d m / d z_j = p_j (1[top] - m)
    assert slope(two, logits)[0] == pytest.approx([0.125, 0.0625, -0.09375, -0.09375], rel=1e-12)
    assert top_k_mass(9)(logits, TARGET, None).tolist() == pytest.approx([1.0], rel=1e-12)


def test_top_k_entropy_is_that_of_the_likeliest_alone_as_a_share_of_its_largest():
    logits = numbers(LOGITS).requires_grad_()
    # The two likeliest, 1/2 and 1/4, are 2/3 and 1/3 among themselves:
    # H = 2/3 log(3/2) + 1/3 log 3, and its largest value is log 2.
    h = 2 / 3 * math.log(1.5) + 1 / 3 * math.log(3)
    two = top_k_entropy(2)(logits, TARGET, None)
    assert two.tolist() == pytest.approx([h / math.log(2)], rel=1e-12)
    # d H / d z_j = -q_j (log q_j + H) with q = 2/3, 1/3; 0 for the tokens left out
    slopes = [-q * (math.log(q) + h) / math.log(2) for q in (2 / 3, 1 / 3)]
    assert slope(two, logits)[0] == pytest.approx([*slopes, 0.0, 0.0], rel=1e-12)
    # All four and more than there are: the entropy 1.75 log 2 over log 4
    for count in (4, 9):
        assert top_k_entropy(count)(logits, TARGET, None).tolist() == pytest.approx([0.875], rel=1e-12)


def test_top_k_entropy_is_1_where_the_likeliest_are_alike():
    logits = numbers([[1.0, 1.0, 1.0, -5.0]])
    assert top_k_entropy(3)(logits, TARGET, None).tolist() == pytest.approx([1.0], rel=1e-12)


def test_argmax_token_marks_the_likeliest():
    logits = numbers([*LOGITS, *LOGITS])
    assert argmax_token(logits, torch.tensor([0, 2])).tolist() == [1.0, 0.0]


def test_divergences_by_hand():
    mine = numbers([[math.log(0.5), math.log(0.5)]]).requires_grad_()
    theirs = numbers([[math.log(0.25), math.log(0.75)]])
    # KL(mine || theirs) = 0.5 log 2 + 0.5 log(2/3); KL(theirs || mine) = 0.25 log 0.5 + 0.75 log 1.5
    forward = divergence_from_other(mine, TARGET, theirs)
    backward = divergence_to_other(mine, TARGET, theirs)
    assert forward.tolist() == pytest.approx([0.5 * math.log(2) + 0.5 * math.log(2 / 3)], rel=1e-12)
    assert backward.tolist() == pytest.approx([0.25 * math.log(0.5) + 0.75 * math.log(1.5)], rel=1e-12)
    # d KL(q || p) / d z = p - q
    assert slope(backward, mine)[0] == pytest.approx([0.25, -0.25], rel=1e-12)
    # d KL(p || q) / d z_j = p_j (log p_j / q_j - KL)
    kl = float(forward.detach())
    expected = [0.5 * (math.log(2) - kl), 0.5 * (math.log(2 / 3) - kl)]
    assert slope(forward, mine)[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("divergence", [divergence_from_other, divergence_to_other])
def test_divergences_are_zero_at_equality_and_need_the_other_role(divergence):
    logits = numbers(LOGITS)
    assert divergence(logits, TARGET, logits + 5.0).tolist() == pytest.approx([0.0], abs=1e-15)
    with pytest.raises(ValueError, match="needs the other role's logits"):
        divergence(logits, TARGET, None)
