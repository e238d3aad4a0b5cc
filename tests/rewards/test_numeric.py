from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bimetal.rewards.numeric import parse_amount, parse_number, parse_reference_integer, same_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("42", 42),
        ("-42", -42),
        ("\u221242", -42),
        ("+42", 42),
        ("042", 42),
        ("0", 0),
        ("-0", 0),
        (" 42 ", 42),
        ("42.", 42),
        ("42.50", Fraction(85, 2)),
        (".5", Fraction(1, 2)),
        ("1,234,567", 1_234_567),
        ("1,234.5", Fraction(2469, 2)),
        ("1/3", Fraction(1, 3)),
        ("-4 / 6", Fraction(-2, 3)),
        ("\\frac{1}{3}", Fraction(1, 3)),
        ("-\\dfrac{2}{4}", Fraction(-1, 2)),
        ("1e3", 1000),
        ("1.5E-2", Fraction(3, 200)),
        ("9" * 300, int("9" * 300)),
    ],
)
def test_a_number_is_read_exactly(text: str, value: Fraction | int) -> None:
    assert parse_number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        ".",
        "4 2",
        "42 apples",
        "4,2",
        "1,2345",
        ",123",
        "1,,234",
        "--4",
        "+-4",
        "4/0",
        "1/2/3",
        "1.2/3",
        "0x10",
        "1e",
        "e3",
        "1e999",
        "1e99999",
        "9" * 301,
        "1" * 5000,
        "nan",
        "inf",
        "1_000",
        "\u0664\u0662",
        "\u00bd",
        "4\x002",
        "2 2/3",
        "4.2.1",
        "(4)",
        "4=4",
        "$4",
        "4%",
    ],
)
def test_what_is_not_wholly_a_number_is_none(text: str) -> None:
    assert parse_number(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$5", 5),
        ("-$5", -5),
        ("\\$1,250", 1250),
        ("40%", 40),
        ("40 %", 40),
        ("$ 5", 5),
        ("12.5\\%", Fraction(25, 2)),
    ],
)
def test_an_amount_may_carry_a_dollar_or_percent_sign(text: str, value: Fraction | int) -> None:
    assert parse_amount(text) == value


@pytest.mark.parametrize("text", ["5$", "%5", "$", "%", "$$5", "5%%", "$5 each"])
def test_a_misplaced_sign_is_no_amount(text: str) -> None:
    assert parse_amount(text) is None


@pytest.mark.parametrize(
    "value", ["042", "4.0", "+4", "-0x1", "", "1,000", True, None, 4.0, [4], "4 ", "9" * 301]
)
def test_references_are_read_more_strictly(value: object) -> None:
    assert parse_reference_integer(value) is None


def test_a_reference_integer_is_a_number_or_its_digits() -> None:
    assert [parse_reference_integer(v) for v in (4, "4", "-4", "0")] == [4, 4, -4, 0]


def test_a_rounded_decimal_is_not_the_fraction() -> None:
    assert same_number("0.333333333333333333", Fraction(1, 3)) is False
    assert same_number("1/3", Fraction(1, 3)) is True
    assert same_number("a third", Fraction(1, 3)) is None


@given(st.integers(), st.integers(1, 10**6))
def test_a_written_fraction_comes_back(top: int, bottom: int) -> None:
    assert parse_number(f"{top}/{bottom}") == Fraction(top, bottom)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=4))
def test_a_written_decimal_comes_back(value) -> None:
    assert parse_number(f"{value:f}") == Fraction(value)


@given(st.integers(0, 10**12))
def test_thousands_separators_change_nothing(value: int) -> None:
    assert parse_number(f"{value:,}") == value


@given(st.text(st.characters(codec=None), max_size=100))
def test_no_text_raises(text: str) -> None:
    parse_number(text)
    parse_amount(text)
    parse_reference_integer(text)
