from __future__ import annotations

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bimetal.rewards.expression import parse_expression


@pytest.mark.parametrize(
    ("text", "value", "numbers"),
    [
        ("7", 7, (7,)),
        ("1+2*3", 7, (1, 2, 3)),
        ("(1+2)*3", 9, (1, 2, 3)),
        ("9-3-2", 4, (9, 3, 2)),
        ("9-(3-2)", 8, (9, 3, 2)),
        ("8/4/2", 1, (8, 4, 2)),
        ("8/(3-8/3)", 24, (8, 3, 8, 3)),
        ("1/3", Fraction(1, 3), (1, 3)),
        (" ( 1 + 2 ) ", 3, (1, 2)),
        ("6\u00d77\u00f72\u22121", 20, (6, 7, 2, 1)),
        ("((((5))))", 5, (5,)),
        ("1/(2-2)", None, (1, 2, 2)),
        ("0*(1/0)", None, (0, 1, 0)),
    ],
)
def test_an_expression_has_its_exact_value_and_numbers(text, value, numbers) -> None:
    parsed = parse_expression(text)
    assert (parsed.value, parsed.numbers) == (value, numbers)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "+",
        "1+",
        "+1",
        "-1",
        "1--2",
        "1**2",
        "1//2",
        "1^2",
        "(1",
        "1)",
        "()",
        "1 2",
        "1.5",
        "1,000",
        "1e3",
        "a",
        "1+a",
        "2(3)",
        "(2)3",
        "0x1",
        "1=1",
        "1%2",
        "1;2",
        "9" * 10,
        "1+" * 150 + "1",
        "(" * 101 + "1" + ")" * 101,
        "\u0661",
        "1\x00",
        "\ud800",
    ],
)
def test_anything_else_is_none(text: str) -> None:
    assert parse_expression(text) is None


@given(st.text("0123456789+-*/() ", max_size=40))
def test_no_text_raises_and_every_value_agrees_with_python(text: str) -> None:
    parsed = parse_expression(text)
    if parsed is not None and parsed.value is not None:
        # Only digits, brackets and the four operations pass the parser; leading zeros are Python's own ban.
        wrapped = re.sub(r"[0-9]+", lambda match: f"Fraction({int(match[0])})", text.strip())
        assert parsed.value == eval(wrapped, {"Fraction": Fraction})
