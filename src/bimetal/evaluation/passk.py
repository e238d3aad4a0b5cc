"""pass@k and maj@k of one problem, unbiased, from n >= k answers.

    pass@k = 1 - C(n - c, k) / C(n, k)          c of n answers are correct (arXiv:2107.03374, eq. 1)

    maj@k  = share of the C(n, k) subsets of k answers whose most frequent answer is correct;
             a tie of t answers counts 1/t for each of them

Both are exact: subsets are counted in integers, not drawn, and divided once. (The usual product form
of pass@k is for floating point, where the binomials overflow.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

ALL_SIZES_UP_TO = 8
"""With more answers than this, only powers of two and the number itself are reported."""


class Votes(NamedTuple):
    """The answers to one problem that read the same: how many, and how many of them are correct."""

    size: int
    correct: int


def pass_at_k(n: int, correct: int, *, k: int) -> float:
    """The probability that at least one of k answers, drawn from n without replacement, is correct.

    >>> pass_at_k(4, 1, k=2)
    0.5

    Raises:
        ValueError: Not 1 <= k <= n, or not 0 <= correct <= n.
    """
    _check(n, k)
    if not 0 <= correct <= n:
        raise ValueError(f"correct must be in 0..{n}; got {correct}")
    subsets = math.comb(n, k)
    return (subsets - math.comb(n - correct, k)) / subsets


def maj_at_k(votes: Sequence[Votes], n: int, *, k: int) -> float:
    """The probability that the most frequent of k answers, drawn from n without replacement, is correct.

    Answers that are in no class of ``votes`` (those without a readable answer) are drawn but do not
    vote; where nobody votes, the result is wrong.

    >>> maj_at_k([Votes(2, 2), Votes(1, 0)], 3, k=2)  # pairs: AA right, AB and AB are ties
    0.6666666666666666

    Args:
        votes: The classes of answers that read the same.
        n: All answers, those that do not vote included.
        k: Answers per vote.

    Raises:
        ValueError: Not 1 <= k <= n, or the classes hold more than n answers.
    """
    _check(n, k)
    silent = n - sum(vote.size for vote in votes)
    if silent < 0 or any(not 0 <= vote.correct <= vote.size or vote.size < 1 for vote in votes):
        raise ValueError(f"classes must hold 1.. answers each and at most {n} in all; got {list(votes)}")
    # Classes of one size win equally often: a size is counted once, times the correct shares of its classes.
    weight: dict[int, Fraction] = {}
    for vote in votes:
        weight[vote.size] = weight.get(vote.size, Fraction(0)) + Fraction(vote.correct, vote.size)
    wins = Fraction(0)
    for size, share in weight.items():
        if share:
            others = [vote.size for vote in votes]
            others.remove(size)
            wins += share * _winning_subsets(size, others, silent=silent, k=k)
    return float(wins / math.comb(n, k))


def sizes(samples: int) -> tuple[int, ...]:
    """The k that are reported for so many answers per problem.

    >>> sizes(4), sizes(20)
    ((1, 2, 3, 4), (1, 2, 4, 8, 16, 20))
    """
    if samples <= ALL_SIZES_UP_TO:
        return tuple(range(1, samples + 1))
    powers = {2**e for e in range(samples.bit_length())}
    return tuple(sorted({*powers, samples}))


def _winning_subsets(size: int, others: Sequence[int], *, silent: int, k: int) -> Fraction:
    """Subsets of k in which a class of this size has the most votes; a tie of t counts 1/t."""
    total = Fraction(0)
    for votes in range(1, min(size, k) + 1):
        # ways[drawn, tied]: draws from the other classes, none above ``votes``, ``tied`` of them equal.
        ways: dict[tuple[int, int], int] = {(0, 0): 1}
        for other in others:
            ways = _with_class(ways, other, most=votes, room=k - votes)
        for (drawn, tied), count in ways.items():
            rest = math.comb(silent, k - votes - drawn)
            total += Fraction(math.comb(size, votes) * count * rest, tied + 1)
    return total


def _with_class(
    ways: dict[tuple[int, int], int], size: int, *, most: int, room: int
) -> dict[tuple[int, int], int]:
    found: dict[tuple[int, int], int] = {}
    for (drawn, tied), count in ways.items():
        for taken in range(min(size, most, room - drawn) + 1):
            key = (drawn + taken, tied + (taken == most))
            found[key] = found.get(key, 0) + count * math.comb(size, taken)
    return found


def _check(n: int, k: int) -> None:
    if not 1 <= k <= n:
        raise ValueError(f"k must be in 1..{n}, the number of answers; got {k}")
