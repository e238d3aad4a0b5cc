"""pass@k and maj@k against subsets written out by hand."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bimetal.evaluation.passk import Votes, maj_at_k, pass_at_k, sizes

EXACT = 1e-12


@pytest.mark.parametrize(
    ("n", "correct", "k", "expected"),
    [
        (4, 1, 1, 0.25),
        (4, 1, 2, 0.5),  # of the 6 pairs 3 hold the correct answer
        (4, 2, 2, 5 / 6),  # only the pair of both wrong answers fails
        (5, 2, 3, 0.9),  # 1 - C(3,3)/C(5,3) = 1 - 1/10
        (5, 0, 5, 0.0),
        (5, 5, 1, 1.0),
        (3, 1, 3, 1.0),
        (1, 1, 1, 1.0),
    ],
)
def test_pass_at_k_counts_subsets(n: int, correct: int, k: int, expected: float) -> None:
    assert pass_at_k(n, correct, k=k) == pytest.approx(expected, rel=EXACT)


def test_pass_at_one_is_the_share_of_correct_answers_to_the_bit() -> None:
    assert all(pass_at_k(n, c, k=1) == c / n for n in range(1, 40) for c in range(n + 1))


def test_pass_at_k_stays_exact_where_the_binomials_overflow_a_float() -> None:
    # 1 - product of (1 - 500/i) for i = 1999, 2000 = 1 - (1499/1999)(1500/2000)
    assert pass_at_k(2000, 2, k=500) == pytest.approx(1 - (1499 / 1999) * 0.75, rel=EXACT)
    assert math.comb(2000, 500).bit_length() > 1024


def test_pass_at_k_is_unbiased() -> None:
    # An answer is correct with probability 0.3. Over all outcomes of 4 answers, weighted by their
    # probability, the estimate of pass@2 averages to 1 - 0.7^2 = 0.51.
    expected = sum(math.comb(4, c) * 0.3**c * 0.7 ** (4 - c) * pass_at_k(4, c, k=2) for c in range(5))
    assert expected == pytest.approx(0.51, rel=EXACT)


@pytest.mark.parametrize(("n", "correct", "k"), [(3, 1, 4), (3, 1, 0), (3, 4, 1), (3, -1, 1), (0, 0, 1)])
def test_impossible_counts_are_refused(n: int, correct: int, k: int) -> None:
    with pytest.raises(ValueError, match="must be in"):
        pass_at_k(n, correct, k=k)


@pytest.mark.parametrize(
    ("votes", "n", "k", "expected"),
    [
        # A A B, A correct. Pairs: AA 1, AB 1/2, AB 1/2 -> 2/3. All three: A wins.
        ([Votes(2, 2), Votes(1, 0)], 3, 2, 2 / 3),
        ([Votes(2, 2), Votes(1, 0)], 3, 3, 1.0),
        # One vote is one answer.
        ([Votes(2, 2), Votes(1, 0)], 3, 1, 2 / 3),
        # A A B B C, A correct, k = 3, 10 subsets: AAB AAB AAC win (3), BBA BBA BBC lose, ABC ties of
        # three in 2 * 2 ways (4/3) -> (3 + 4/3) / 10.
        ([Votes(2, 2), Votes(2, 0), Votes(1, 0)], 5, 3, (3 + 4 / 3) / 10),
        # A and three answers that do not vote: every subset with A is won: C(3,1)/C(4,2) = 1/2.
        ([Votes(1, 1)], 4, 2, 0.5),
        # Two ways to write the correct answer split the vote: A, B correct, C C wrong, all four drawn.
        ([Votes(1, 1), Votes(1, 1), Votes(2, 0)], 4, 4, 0.0),
        # A verifier that accepts one of two equal texts: the class is worth one half.
        ([Votes(2, 1)], 2, 2, 0.5),
        ([], 3, 2, 0.0),
    ],
)
def test_majority_counts_subsets(votes: list[Votes], n: int, k: int, expected: float) -> None:
    assert maj_at_k(votes, n, k=k) == pytest.approx(expected, rel=EXACT, abs=0.0)


@given(st.lists(st.sampled_from([None, "a", "b", "c", "d"]), min_size=1, max_size=8), st.data())
def test_majority_equals_the_vote_of_every_subset(labels: list[str | None], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(labels)))
    right = data.draw(st.sets(st.sampled_from("abcd")))
    votes = [Votes(labels.count(x), labels.count(x) * (x in right)) for x in "abcd" if x in labels]
    subsets = list(itertools.combinations(labels, k))
    won = 0.0
    for subset in subsets:
        counts = {x: subset.count(x) for x in subset if x is not None}
        top = [x for x, count in counts.items() if count == max(counts.values())]
        won += sum(x in right for x in top) / len(top) if top else 0.0
    assert maj_at_k(votes, len(labels), k=k) == pytest.approx(won / len(subsets), rel=EXACT, abs=EXACT)


@pytest.mark.parametrize(("votes", "n"), [([Votes(3, 1)], 2), ([Votes(1, 2)], 3), ([Votes(0, 0)], 3)])
def test_impossible_votes_are_refused(votes: list[Votes], n: int) -> None:
    with pytest.raises(ValueError, match="classes must hold"):
        maj_at_k(votes, n, k=1)


def test_every_size_is_reported_for_few_answers_and_powers_of_two_for_many() -> None:
    assert sizes(1) == (1,)
    assert sizes(8) == (1, 2, 3, 4, 5, 6, 7, 8)
    assert sizes(9) == (1, 2, 4, 8, 9)
    assert sizes(16) == (1, 2, 4, 8, 16)
