"""Advantages worked by hand, and what they are invariant to."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bimetal.objectives.advantage import (
    centered,
    generalized,
    is_uniform,
    leave_one_out,
    returns_to_go,
    standardized,
    whitened,
)

REWARDS = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0]), min_size=2, max_size=8)
FUNCTIONS = [centered, standardized(), leave_one_out]


def column(values):
    return torch.tensor(values, dtype=torch.float64)


def test_centered_subtracts_the_mean():
    # mean of (1, 0, 0, 0) is 1/4
    assert centered(column([1.0, 0.0, 0.0, 0.0])).tolist() == [0.75, -0.25, -0.25, -0.25]


def test_standardized_divides_by_the_sample_deviation():
    # (0, 1): mean 1/2, sample variance (1/4 + 1/4) / (2 - 1) = 1/2, so +-0.5 / 0.7071 = +-0.7071
    expected = [-math.sqrt(0.5), math.sqrt(0.5)]
    assert standardized(epsilon=1e-12)(column([0.0, 1.0])).tolist() == pytest.approx(expected, rel=1e-9)


def test_standardized_adds_epsilon_to_the_deviation():
    # 0.5 / (0.70710678 + 0.29289322) = 0.5
    assert standardized(epsilon=1 - math.sqrt(0.5))(column([0.0, 1.0])).tolist() == pytest.approx([-0.5, 0.5])


@pytest.mark.parametrize(
    ("right", "value"), [(0, 2.475), (1, 1.620), (2, 1.208), (3, 0.935), (6, 0.354), (7, 0)]
)
def test_a_demonstration_among_seven_rollouts_has_the_advantages_of_the_notes(right, value):
    rewards = column([1.0] + [1.0] * right + [0.0] * (7 - right))
    # k of 7 rollouts right beside one right demonstration: centered (7 - k) / 8.
    assert float(centered(rewards)[0]) == pytest.approx((7 - right) / 8, rel=1e-12)
    assert float(standardized()(rewards)[0]) == pytest.approx(value, abs=5e-4)


def test_leave_one_out_compares_with_the_mean_of_the_others():
    # (1, 0, 0): 1 - 0 = 1; 0 - (1 + 0) / 2 = -1/2
    assert leave_one_out(column([1.0, 0.0, 0.0])).tolist() == [1.0, -0.5, -0.5]


@pytest.mark.parametrize("advantage", FUNCTIONS)
@pytest.mark.parametrize("rewards", [[0.3] * 5, [1.0, 1.0], [0.0] * 3, [0.1 + 0.2, 0.3], [0.4, 0.4 + 9e-7]])
def test_equal_rewards_teach_exactly_nothing(advantage, rewards):
    assert advantage(column(rewards)).tolist() == [0.0] * len(rewards)


def test_rewards_further_apart_than_the_tolerance_are_not_equal():
    assert not is_uniform(column([0.0, 2e-6]))
    assert is_uniform(column([0.0, 5e-7]))
    assert is_uniform(column([]))


@given(REWARDS)
def test_centered_and_leave_one_out_sum_to_zero_and_differ_by_a_known_factor(rewards):
    a, b = centered(column(rewards)), leave_one_out(column(rewards))
    n = len(rewards)
    assert float(a.sum()) == pytest.approx(0, abs=1e-12)
    assert b.tolist() == pytest.approx((a * n / (n - 1)).tolist(), rel=1e-12, abs=1e-12)


@given(REWARDS, st.sampled_from([-1.0, 0.5, 3.0]))
def test_a_constant_added_to_all_rewards_changes_nothing(rewards, shift):
    for advantage in FUNCTIONS:
        moved = advantage(column(rewards) + shift)
        assert moved.tolist() == pytest.approx(advantage(column(rewards)).tolist(), rel=1e-9, abs=1e-9)


@given(REWARDS, st.sampled_from([0.5, 2.0, 10.0]))
def test_standardized_does_not_see_the_scale(rewards, scale):
    advantage = standardized(epsilon=1e-12)
    grown = advantage(column(rewards) * scale)
    assert grown.tolist() == pytest.approx(advantage(column(rewards)).tolist(), rel=1e-9, abs=1e-9)


@given(REWARDS)
def test_a_permuted_group_has_permuted_advantages(rewards):
    for advantage in FUNCTIONS:
        backward = advantage(column(rewards[::-1])).tolist()[::-1]
        assert backward == pytest.approx(advantage(column(rewards)).tolist(), rel=1e-12, abs=1e-12)


def test_returns_to_go_worked_by_hand():
    # From the end: 1; -0.1 + 0.5 * 1 = 0.4; 0.2 + 0.5 * 0.4 = 0.4
    assert returns_to_go([0.2, -0.1, 1.0], discount=0.5) == pytest.approx((0.4, 0.4, 1.0), rel=1e-15)
    assert returns_to_go([0.0, 0.0, 1.0], discount=1.0) == (1.0, 1.0, 1.0)
    assert returns_to_go([], discount=1.0) == ()


def test_generalized_advantages_worked_by_hand():
    # values (0.5, 0.25), reward 1, discount 0.9, trace decay 0.5:
    # delta_1 = 1 + 0 - 0.25 = 0.75;  A_1 = 0.75
    # delta_0 = 0 + 0.9 * 0.25 - 0.5 = -0.275;  A_0 = -0.275 + 0.45 * 0.75 = 0.0625
    advantages, targets = generalized((0.5, 0.25), 1.0, discount=0.9, trace_decay=0.5)
    assert advantages == pytest.approx((0.0625, 0.75), rel=1e-12)
    assert targets == pytest.approx((0.5625, 1.0), rel=1e-12)


def test_generalized_advantages_start_from_the_final_value():
    # One token, value 0.5, no reward, final value 2, discount 0.5: delta = 0 + 1 - 0.5
    advantages, targets = generalized((0.5,), 0.0, discount=0.5, trace_decay=1.0, final_value=2.0)
    assert (advantages, targets) == ((0.5,), (1.0,))


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=6), st.floats(0, 1))
def test_full_trace_decay_is_the_return_minus_the_value(values, reward):
    advantages, targets = generalized(values, reward, discount=1.0, trace_decay=1.0)
    assert advantages == pytest.approx([reward - v for v in values], abs=1e-12)
    assert targets == pytest.approx([reward] * len(values), abs=1e-12)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=6), st.floats(0, 1))
def test_no_trace_decay_is_the_one_step_error(values, reward):
    advantages, _ = generalized(values, reward, discount=0.9, trace_decay=0.0)
    following = [*values[1:], 0.0]
    earned = [0.0] * (len(values) - 1) + [reward]
    expected = [r + 0.9 * w - v for r, w, v in zip(earned, following, values, strict=True)]
    assert advantages == pytest.approx(expected, abs=1e-12)


def test_whitened_has_mean_zero_and_sample_variance_one_over_all_tokens():
    # (0, 1) and (5): mean 2, deviations -2, -1, 3, sample variance 14 / 2 = 7
    root = math.sqrt(7)
    assert whitened([(0.0, 1.0), (5.0,)]) == [
        pytest.approx((-2 / root, -1 / root), rel=1e-7),
        pytest.approx((3 / root,), rel=1e-7),
    ]


@pytest.mark.parametrize("rows", [[], [(3.0,)], [(2.0, 2.0), (2.0,)]])
def test_whitening_needs_two_different_numbers(rows):
    assert whitened(rows) == [tuple(0.0 for _ in row) for row in rows]
