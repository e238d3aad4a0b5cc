"""Every metric has its row in the table."""

from __future__ import annotations

import pytest

from bimetal.core.budget import Currency
from bimetal.core.errors import UnknownNameError
from bimetal.core.metric_names import METRICS, describe, is_documented
from bimetal.core.metrics import check_name


@pytest.mark.parametrize("name", METRICS)
def test_every_row_says_four_things_under_a_legal_name(name: str) -> None:
    assert check_name(name) == name
    row = METRICS[name]
    assert all((row.meaning, row.unit, row.healthy, row.remedy))
    assert row.meaning[0].isupper() or row.meaning[0] == "1"
    assert row.meaning.endswith(".")


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("reward/mean", "reward/mean"),
        ("term/imitation/loss", "term/NAME/loss"),
        ("verdict/unparseable_share", "verdict/STATUS_share"),
        ("verdict/timeout_share", "verdict/timeout_share"),
        ("verdict/lab_table/correct_share", "verdict/DOMAIN/correct_share"),
        ("budget/progress", "budget/progress"),
        ("controller/mu", "controller/NAME"),
        ("time/generation_seconds", "time/NAME_seconds"),
        ("alarm/entropy_collapse", "alarm/NAME"),
    ],
)
def test_a_name_finds_its_row_or_its_pattern(name: str, pattern: str) -> None:
    assert describe(name) is METRICS[pattern]


@pytest.mark.parametrize(
    "name", ["reward/median", "term/loss", "term/a/b/loss", "time/_seconds", "time/seconds"]
)
def test_other_names_are_not_documented(name: str) -> None:
    assert not is_documented(name)


def test_an_undocumented_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'gradient/norm'"):
        describe("gradient/norms")


@pytest.mark.parametrize("currency", Currency)
def test_every_currency_has_a_metric(currency: Currency) -> None:
    assert is_documented(f"budget/{currency.value}")
