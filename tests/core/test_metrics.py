"""Metrics merge exactly, whatever the cut and the order."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bimetal.core.errors import ConfigError
from bimetal.core.metrics import Extreme, Metric, Metrics, Number, Observation, Total, check_name, merge

FINITE = st.integers(-(10**30), 10**30) | st.floats(allow_nan=False, allow_infinity=False)
COUNT = st.integers(0, 10**9) | st.floats(0, 1e9)
ENTRIES = st.tuples(st.just("m/mean"), st.builds(Metric, FINITE, COUNT)) | st.one_of(
    st.tuples(st.just("t/total"), st.builds(Total, FINITE)),
    st.tuples(st.just("e/min"), st.builds(Extreme, st.floats(allow_nan=False), st.just("min"))),
    st.tuples(st.just("e/max"), st.builds(Extreme, st.floats(allow_nan=False), st.just("max"))),
)


def collected(entries: list[tuple[str, Observation]]) -> Metrics:
    metrics = Metrics()
    for name, observation in entries:
        metrics.add(name, observation)
    return metrics


def test_a_mean_is_the_sum_over_the_count_of_all_parts() -> None:
    metrics = Metrics()
    metrics.mean("reward/mean", 3, count=4)
    metrics.mean("reward/mean", 0, count=6)
    # Not the mean of the means 0.75 and 0: (3 + 0) / (4 + 6) = 0.3.
    assert metrics.to_json() == {"reward/mean": 0.3}


def test_sums_of_floats_do_not_depend_on_order() -> None:
    # In floating point (0.1 + 1e16) - 1e16 is 0; exactly it is 0.1, which over 3 is 0.0333...
    parts = [Metric(0.1, 1), Metric(1e16, 1), Metric(-1e16, 1)]
    assert (parts[0] + parts[1] + parts[2]).value == (parts[1] + parts[2] + parts[0]).value == 0.1 / 3


@given(st.lists(ENTRIES, max_size=12), st.data())
def test_any_cut_and_any_order_give_the_same_metrics(
    entries: list[tuple[str, Observation]], data: st.DataObject
) -> None:
    whole = collected(entries)
    shuffled = data.draw(st.permutations(entries))
    cut = data.draw(st.integers(0, len(entries)))
    ranks = [collected(shuffled[:cut]), collected(shuffled[cut:])]
    assert dict(merge(ranks)) == dict(whole)
    assert dict(ranks[0].merged(ranks[1])) == dict(whole)


@given(st.builds(Metric, FINITE, COUNT), st.builds(Metric, FINITE, COUNT), st.builds(Metric, FINITE, COUNT))
def test_addition_is_associative_and_commutative(a: Metric, b: Metric, c: Metric) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a


@given(st.lists(ENTRIES, max_size=12))
def test_the_state_survives_json(entries: list[tuple[str, Observation]]) -> None:
    whole = collected(entries)
    assert dict(Metrics.from_state(whole.to_state())) == dict(whole)


@given(FINITE)
def test_a_whole_sum_is_an_integer_and_any_other_a_fraction(value: Number) -> None:
    total = Total(value).sum
    assert type(total) is (int if Fraction(value).denominator == 1 else Fraction)
    assert total == value


def test_totals_add_up_and_stay_whole() -> None:
    metrics = Metrics()
    metrics.total("tokens/generated", 3)
    metrics.total("tokens/generated", 4)
    value = metrics.value("tokens/generated")
    assert value == 7 and type(value) is int


def test_extremes_keep_the_extreme() -> None:
    metrics = Metrics()
    for value in (2.0, 5.0, -1.0):
        metrics.largest("ratio/max", value)
        metrics.smallest("ratio/min", value)
    assert metrics.to_json() == {"ratio/max": 5.0, "ratio/min": -1.0}


def test_an_extreme_that_is_not_a_number_stays_so_in_either_order() -> None:
    nan, one = Extreme(math.nan, "max"), Extreme(1.0, "max")
    assert math.isnan((nan + one).value) and math.isnan((one + nan).value)


def test_a_minimum_and_a_maximum_do_not_merge() -> None:
    with pytest.raises(ValueError, match="cannot merge a min with a max"):
        Extreme(1.0, "min") + Extreme(1.0, "max")


def test_nothing_observed_is_none() -> None:
    assert Metric(0, 0).value is None
    assert Metrics({"a/b": Metric(0, 0)}).to_json() == {"a/b": None}
    assert Metrics().value("a/b") is None


def test_what_is_not_finite_is_kept_and_shown_as_none() -> None:
    metrics = Metrics()
    metrics.mean("a/b", math.inf)
    metrics.mean("a/b", 1)
    assert metrics.value("a/b") == math.inf
    assert metrics.to_json() == {"a/b": None}
    assert math.isnan((Metric(math.inf, 1) + Metric(-math.inf, 1)).value or 0.0)
    assert Metrics.from_state(metrics.to_state()).value("a/b") == math.inf


def test_a_sum_beyond_the_range_of_floats_shows_as_infinite() -> None:
    assert (Total(1e308) + Total(1e308)).value == math.inf
    assert (Total(-1.5e308) + Total(-1.5e308) + Total(0.5)).value == -math.inf
    assert Metrics({"a/b": Total(1e308) + Total(1e308)}).to_json() == {"a/b": None}


@pytest.mark.parametrize("count", [-1, math.nan, math.inf])
def test_a_count_must_be_finite_and_not_negative(count: float) -> None:
    with pytest.raises(ValueError, match="count of a metric"):
        Metric(1, count)


def test_one_name_is_of_one_kind() -> None:
    metrics = Metrics()
    metrics.mean("a/b", 1)
    with pytest.raises(ConfigError, match="'a/b' is a Metric and cannot take a Total; use two names"):
        metrics.total("a/b", 1)
    metrics.largest("a/c", 1)
    with pytest.raises(ConfigError, match="'a/c' is a max and cannot take a min"):
        metrics.smallest("a/c", 1)


@pytest.mark.parametrize(
    "name", ["reward/mean", "term/imitation/loss", "verdict/lab_table/correct_share", "a/B-1.c"]
)
def test_names_are_area_and_quantity(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "reward", "/mean", "reward/", "Reward/mean", "reward mean/x", "a//b", "a/b\n"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="not of the form area/quantity"):
        Metrics().mean(name, 1)


def test_names_come_sorted() -> None:
    assert list(Metrics({"b/b": Total(1), "a/a": Total(1)})) == ["a/a", "b/b"]


@pytest.mark.parametrize("state", [["mean", "1"], ["sum", "1"], []])
def test_a_state_that_is_none_is_refused(state: list[str]) -> None:
    with pytest.raises(ValueError, match="not the state of a metric"):
        Metrics.from_state({"a/b": state})
