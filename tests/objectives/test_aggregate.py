"""Aggregates: scale and count, worked by hand on rows of 3, 1 and 0 members."""

from __future__ import annotations

import pytest
import torch
from tests.objectives.tables import marks, numbers

from bimetal.objectives.aggregate import (
    fixed_length,
    prompt_mean,
    prompt_sum,
    sequence_mean,
    sequence_sum,
    token_budget,
    token_mean,
    weighted_token_mean,
)

# Row 0 has 3 members, row 1 has 1, row 2 none; rows 0 and 2 are group 0, row 1 is group 1.
MEMBERS = marks([[1, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
WEIGHTS = numbers([[1.0, 0.5, 0.0, 9.0], [2.0, 0.25, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
GROUPS = torch.tensor([0, 1, 0])


def test_token_mean_counts_members():
    assert token_mean().scale(MEMBERS, GROUPS).tolist() == [[1, 1, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    assert float(token_mean().count(MEMBERS, WEIGHTS, GROUPS)) == 4  # 3 + 1


def test_sequence_mean_divides_by_the_members_of_a_row_and_counts_rows_that_have_some():
    third = pytest.approx(1 / 3, rel=1e-15)
    assert sequence_mean().scale(MEMBERS, GROUPS).tolist() == [
        [third, third, third, 0],
        [0, 1, 0, 0],
        [0] * 4,
    ]
    assert float(sequence_mean().count(MEMBERS, WEIGHTS, GROUPS)) == 2  # the third row is no sequence


def test_sequence_sum_does_not_divide_by_length():
    assert sequence_sum().scale(MEMBERS, GROUPS)[0].tolist() == [1, 1, 1, 0]
    assert float(sequence_sum().count(MEMBERS, WEIGHTS, GROUPS)) == 2


def test_fixed_length_divides_by_its_constant_whatever_the_batch_holds():
    assert fixed_length(8).scale(MEMBERS, GROUPS)[0].tolist() == [0.125, 0.125, 0.125, 0]
    assert float(fixed_length(8).count(MEMBERS, WEIGHTS, GROUPS)) == 2


def test_token_budget_divides_by_its_constant_whatever_the_batch_holds():
    assert token_budget(16).scale(MEMBERS, GROUPS)[0].tolist() == [1, 1, 1, 0]
    assert float(token_budget(16).count(MEMBERS, WEIGHTS, GROUPS)) == 16
    assert token_budget(16).name != token_budget(17).name


def test_prompt_mean_divides_by_the_tokens_of_the_group_and_counts_groups():
    members = marks([[1, 1, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0]])
    # Group 0 has 3 + 1 tokens, group 1 has 1.
    scale = [[0.25, 0.25, 0.25, 0], [0, 1, 0, 0], [0.25, 0, 0, 0]]
    assert prompt_mean().scale(members, GROUPS).tolist() == scale
    assert float(prompt_mean().count(members, WEIGHTS, GROUPS)) == 2


def test_prompt_sum_does_not_divide_by_tokens_and_counts_groups_that_have_some():
    members = marks([[1, 1, 1, 0], [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0]])
    groups = torch.tensor([0, 1, 0, 2])
    assert prompt_sum().scale(members, groups).tolist() == members.to(torch.float64).tolist()
    assert float(prompt_sum().count(members, numbers([[1.0] * 4] * 4), groups)) == 2


def test_prompt_mean_does_not_count_a_group_without_members():
    assert (
        float(prompt_mean().count(marks([[1], [0], [0]]), numbers([[1.0]] * 3), torch.tensor([0, 1, 2]))) == 1
    )


def test_weighted_token_mean_counts_weights_of_members_only():
    # 1 + 0.5 + 0 in row 0, 0.25 in row 1: weights outside the members (9, 2, 1) do not count.
    assert float(weighted_token_mean().count(MEMBERS, WEIGHTS, GROUPS)) == 1.75


@pytest.mark.parametrize(
    "aggregate",
    [
        token_mean(),
        sequence_mean(),
        sequence_sum(),
        fixed_length(7),
        prompt_mean(),
        prompt_sum(),
        weighted_token_mean(),
    ],
    ids=lambda aggregate: aggregate.name,
)
def test_nothing_to_count_gives_zero_and_a_finite_scale(aggregate):
    nobody = torch.zeros((2, 3), dtype=torch.bool)
    groups = torch.tensor([0, 1])
    assert float(aggregate.count(nobody, numbers([[1.0] * 3] * 2), groups)) == 0
    assert aggregate.scale(nobody, groups).tolist() == [[0.0] * 3] * 2
    assert aggregate.scale(nobody, groups).dtype is torch.float64


def test_equal_lengths_make_all_aggregates_agree_up_to_known_constants():
    members = marks([[0, 1, 1, 1]] * 5)  # 5 rows of 3 tokens
    weights, groups = torch.ones((5, 4), dtype=torch.float64), torch.arange(5)

    def share(aggregate):
        return float(aggregate.scale(members, groups)[0, 1] / aggregate.count(members, weights, groups))

    assert share(token_mean()) == pytest.approx(1 / 15, rel=1e-12)
    assert share(sequence_mean()) == pytest.approx(1 / 15, rel=1e-12)
    assert share(sequence_sum()) == pytest.approx(3 / 15, rel=1e-12)
    assert share(fixed_length(12)) == pytest.approx(1 / 60, rel=1e-12)  # 1 / (5 * 12)
    assert share(prompt_mean()) == pytest.approx(1 / 15, rel=1e-12)
