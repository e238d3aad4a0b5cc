"""Cutting a step: nothing lost, nothing twice, within the budget, ranks in step and balanced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bimetal.data.microbatch import Piece, cut

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=40)


def live_rows(lists):
    return [row for entry in lists for piece in entry if piece.live for row in piece.rows]


@given(LENGTHS, st.integers(1, 200), st.integers(1, 5))
def test_every_row_is_live_exactly_once_whatever_the_ranks(lengths, tokens, ranks):
    lists = cut(lengths, tokens=tokens, ranks=ranks)
    assert sorted(live_rows(lists)) == list(range(len(lengths)))
    assert len(lists) == ranks
    assert len({len(entry) for entry in lists}) == 1


@given(LENGTHS, st.integers(1, 200), st.integers(1, 5))
def test_a_piece_stays_within_its_tokens_or_is_one_row(lengths, tokens, ranks):
    for entry in cut(lengths, tokens=tokens, ranks=ranks):
        for piece in entry:
            padded = len(piece.rows) * max(lengths[i] for i in piece.rows)
            assert padded <= tokens or len(piece.rows) == 1


@given(LENGTHS, st.integers(1, 200), st.data())
def test_groups_stay_whole(lengths, tokens, data):
    groups = data.draw(st.lists(st.integers(0, 5), min_size=len(lengths), max_size=len(lengths)))
    lists = cut(lengths, tokens=tokens, ranks=2, groups=groups)
    assert sorted(live_rows(lists)) == list(range(len(lengths)))
    homes = [{groups[i] for i in piece.rows} for entry in lists for piece in entry if piece.live]
    assert sum(len(home) for home in homes) == len(set(groups))


@given(LENGTHS, st.integers(1, 200))
def test_the_cut_is_a_function_of_its_arguments(lengths, tokens):
    assert cut(lengths, tokens=tokens, ranks=3) == cut(list(lengths), tokens=tokens, ranks=3)


@given(LENGTHS, st.integers(1, 200), st.integers(2, 5))
def test_no_rank_carries_more_than_the_lightest_plus_one_piece(lengths, tokens, ranks):
    loads, largest = [], 0
    for entry in cut(lengths, tokens=tokens, ranks=ranks):
        costs = [sum(lengths[i] for i in piece.rows) for piece in entry if piece.live]
        loads.append(sum(costs))
        largest = max([largest, *costs])
    assert max(loads) - min(loads) <= largest


def test_rows_are_packed_with_rows_of_like_length():
    # Longest first: 9 alone (2 * 9 > 12), 6 with 5 (2 * 6 = 12), 2 with 1.
    (entry,) = cut([2, 9, 5, 1, 6], tokens=12)
    rows = {piece.rows for piece in entry}
    assert rows == {(1,), (4, 2), (0, 3)}


def test_a_row_beyond_the_budget_is_a_piece_of_its_own():
    (entry,) = cut([50, 3, 3], tokens=10)
    assert {piece.rows for piece in entry} == {(0,), (1, 2)}


def test_a_rank_with_less_work_gets_dead_pieces_of_the_shortest_row():
    # One long row on rank 0; three short ones, which fill no more than its load, on rank 1.
    first, second = cut([9, 3, 3, 2], tokens=3, ranks=2)
    assert [piece.live for piece in first] == [True, False, False]
    assert first[0] == Piece(rows=(0,))
    assert all(piece.rows == (3,) for piece in first[1:])
    assert [piece.live for piece in second] == [True, True, True]


def test_more_ranks_than_rows_leave_ranks_with_only_dead_pieces():
    lists = cut([4], tokens=100, ranks=3)
    assert [[piece.live for piece in entry] for entry in lists] == [[True], [False], [False]]


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_group_beyond_the_budget_still_goes_through_at_once(ranks):
    lists = cut([4, 4, 4, 1], tokens=5, ranks=ranks, groups=[7, 7, 7, 8])
    live = {frozenset(piece.rows) for entry in lists for piece in entry if piece.live}
    assert live == {frozenset({0, 1, 2}), frozenset({3})}
