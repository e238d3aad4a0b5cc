"""Intervals against published and hand-computed values, against scipy, and by simulation."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bimetal.core.streams import Streams
from bimetal.evaluation.intervals import (
    Estimate,
    average,
    bounded_mean,
    mean_estimate,
    paired_difference,
    proportion,
    t_quantile,
)

LEAST_COVERAGE = 0.93


def test_wilson_equals_the_published_example() -> None:
    # Newcombe (1998, doi:10.1002/(SICI)1097-0258(19980430)17:8<857::AID-SIM777>3.0.CO;2-E), table I,
    # method 3: 81 of 263 -> 0.2553 to 0.3662, 15 of 148 -> 0.0624 to 0.1605.
    assert _rounded(proportion(81, 263)) == (0.2553, 0.3662)
    assert _rounded(proportion(15, 148)) == (0.0624, 0.1605)


def test_wilson_reaches_exactly_zero_and_one() -> None:
    # Newcombe's third example: 0 of 20 -> 0 to 0.1611.
    none, all_of_them = proportion(0, 20), proportion(20, 20)
    assert (none.low, round(none.high or 0, 4)) == (0.0, 0.1611)
    assert (round(all_of_them.low or 0, 4), all_of_them.high) == (0.8389, 1.0)


def test_bounded_mean_by_hand() -> None:
    # Scores 1/4, 1/2, 3/4 and the ends 0, 1: center 1/2, squares 2 (1/4 + 1/16) = 5/8, variance 5/32,
    # standard error sqrt(5/32 / 5) = sqrt(1/32), t(0.975, 2) = 4.302652729911275.
    # Half 0.7606: both bounds are cut to the range.
    assert bounded_mean([0.25, 0.5, 0.75], low=0.0, high=1.0) == Estimate(
        value=0.5, low=0.0, high=1.0, n=3, method="bounded_t"
    )
    # At level 0.5 t(0.75, 2) = sqrt(2/3) in closed form, so the half is sqrt(1/48) = 0.14433756729740643.
    found = bounded_mean([0.25, 0.5, 0.75], low=0.0, high=1.0, level=0.5)
    assert found.low == pytest.approx(0.5 - 0.14433756729740643, rel=1e-9)
    assert found.high == pytest.approx(0.5 + 0.14433756729740643, rel=1e-9)


def test_zero_variance_still_has_an_interval() -> None:
    # Ten scores of 1/2 and the ends: variance (1/4 + 1/4)/11, standard error sqrt(1/22/12),
    # t(0.975, 9) = 2.2621571627409915 -> half 0.13922...
    found = bounded_mean([0.5] * 10, low=0.0, high=1.0)
    half = 2.2621571627409915 * math.sqrt(1 / 22 / 12)
    assert (found.low, found.high) == (
        pytest.approx(0.5 - half, rel=1e-9),
        pytest.approx(0.5 + half, rel=1e-9),
    )


def test_two_equal_models_have_a_difference_of_zero_with_an_interval_around_it() -> None:
    scores = {str(i): float(i % 2) for i in range(100)}
    found = paired_difference(scores, scores)
    # 100 zeros, -1 and +1: variance 2/101, standard error sqrt(2/101/102), t(0.975, 99) = 1.9842169515...
    half = 1.9842169515864165 * math.sqrt(2 / 101 / 102)
    assert found.value == 0.0
    assert (found.low, found.high) == (pytest.approx(-half, rel=1e-9), pytest.approx(half, rel=1e-9))
    assert not found.is_above_zero


def test_a_paired_difference_uses_the_shared_problems_only() -> None:
    found = paired_difference({"a": 0.0, "b": 1.0, "x": 1.0}, {"a": 1.0, "b": 1.0, "y": 0.0})
    assert (found.value, found.n) == (0.5, 2)


def test_all_problems_gained_is_a_difference_above_zero() -> None:
    keys = [str(i) for i in range(30)]
    found = paired_difference(dict.fromkeys(keys, 0.0), dict.fromkeys(keys, 1.0))
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.is_above_zero


def test_one_problem_has_a_value_and_no_interval_and_says_why() -> None:
    for found in (mean_estimate([1.0]), bounded_mean([0.3], low=0.0, high=1.0)):
        assert (found.low, found.high, found.method) == (None, None, "none")
        assert found.reason == "1 problem; an interval needs 2"
    assert mean_estimate([1.0]).value == 1.0


def test_no_problems_have_no_value() -> None:
    assert (mean_estimate([]).value, mean_estimate([]).reason) == (None, "no problem has a known score")
    assert paired_difference({"a": 1.0}, {"b": 1.0}).reason == "the two have no problem in common"


def test_an_interval_says_what_it_covers() -> None:
    assert proportion(1, 4).covers == "problems"


def test_zero_one_scores_use_wilson_and_others_the_bounded_t() -> None:
    assert mean_estimate([0.0, 1.0, 1.0]).method == "wilson"
    assert mean_estimate([0.0, 0.5, 1.0]).method == "bounded_t"


def test_scores_outside_the_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must be in \[0.0, 1.0\]"):
        mean_estimate([0.5, 1.5])
    with pytest.raises(ValueError, match="must be in"):
        bounded_mean([0.5, math.nan], low=0.0, high=1.0)
    with pytest.raises(ValueError, match="successes"):
        proportion(3, 2)


def test_the_average_over_domains_adds_distances_as_squares() -> None:
    parts = [
        Estimate(value=0.5, low=0.2, high=0.9, n=10, method="bounded_t"),
        Estimate(value=0.3, low=0.3 - 0.4, high=0.6, n=30, method="bounded_t"),
    ]
    # below: 0.3 and 0.4 -> 0.5; above: 0.4 and 0.3 -> 0.5; both halved.
    found = average(parts)
    assert (found.value, found.n, found.method) == (pytest.approx(0.4, rel=1e-12), 40, "sum_of_parts")
    assert (found.low, found.high) == (pytest.approx(0.15, rel=1e-12), pytest.approx(0.65, rel=1e-12))


def test_an_average_with_a_part_that_has_no_interval_has_none() -> None:
    whole = proportion(5, 10)
    assert average([whole, proportion(1, 1)]).reason == "a domain has too few problems for an interval"
    assert average([whole, proportion(1, 1)]).value == 0.75
    assert average([whole, mean_estimate([])]).value is None
    assert average([]).reason == "no domains"


def test_t_quantiles_equal_scipys() -> None:
    for freedom in (1, 2, 3, 4, 7, 10, 63, 399, 2000):
        for share in (0.025, 0.5, 0.6, 0.9, 0.975, 0.9995):
            assert t_quantile(share, freedom) == pytest.approx(
                float(stats.t.ppf(share, freedom)), rel=1e-9, abs=1e-12
            )


def test_a_quantile_that_does_not_exist_is_refused() -> None:
    for share, freedom in ((0.0, 3), (1.0, 3), (0.5, 0)):
        with pytest.raises(ValueError, match="needs a probability"):
            t_quantile(share, freedom)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=60))
def test_an_interval_holds_its_value_and_stays_in_the_range(scores: list[float]) -> None:
    found = mean_estimate(scores)
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert 0.0 <= found.low <= found.value <= found.high <= 1.0


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40), st.randoms())
def test_an_interval_does_not_depend_on_the_order_of_problems(scores: list[float], random) -> None:
    shuffled = list(scores)
    random.shuffle(shuffled)
    assert mean_estimate(shuffled) == mean_estimate(scores)


@pytest.mark.parametrize("n", [30, 100])
@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("mean", [0.02, 0.2, 0.6, 0.97])
def test_intervals_of_a_mean_cover_it(n: int, samples: int, mean: float) -> None:
    # Problems of uneven difficulty, as a Beta with concentration 1 draws them.
    generator = Streams(seed=1).generator("coverage", n, samples, int(mean * 100))
    difficulty = generator.beta(mean, 1 - mean, size=(REPEATS, n))
    scores = generator.binomial(samples, difficulty) / samples
    assert _coverage(scores, mean_estimate, mean) >= LEAST_COVERAGE


@pytest.mark.parametrize("n", [10, 100])
@pytest.mark.parametrize(("before", "after"), [(0.02, 0.02), (0.1, 0.2), (0.5, 0.6), (0.9, 0.97)])
def test_intervals_of_a_paired_difference_cover_it(n: int, before: float, after: float) -> None:
    generator = Streams(seed=1).generator("coverage", "paired", n, int(before * 100))
    # The same draw decides how hard a problem is for both models.
    rank = generator.random((REPEATS, n))
    hard = [stats.beta.ppf(rank, mean, 1 - mean) for mean in (before, after)]
    first, second = (generator.binomial(1, p).astype(float) for p in hard)
    covered = _coverage(second - first, lambda row: bounded_mean(row, low=-1.0, high=1.0), after - before)
    assert covered >= LEAST_COVERAGE


def test_the_interval_of_an_average_over_domains_covers_it() -> None:
    generator = Streams(seed=1).generator("coverage", "average")
    means = (0.05, 0.5, 0.95)
    hits = 0
    for _ in range(REPEATS):
        parts = [proportion(int(generator.binomial(40, mean)), 40) for mean in means]
        hits += _holds(average(parts), 0.5)
    assert hits / REPEATS >= LEAST_COVERAGE


REPEATS = 600


def _coverage(scores: np.ndarray, interval: Callable[[list[float]], Estimate], truth: float) -> float:
    return sum(_holds(interval([float(x) for x in row]), truth) for row in scores) / len(scores)


def _holds(found: Estimate, truth: float) -> bool:
    assert found.low is not None
    assert found.high is not None
    return found.low <= truth <= found.high


def _rounded(found: Estimate) -> tuple[float, float]:
    assert found.low is not None
    assert found.high is not None
    return round(found.low, 4), round(found.high, 4)
