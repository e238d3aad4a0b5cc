from __future__ import annotations

import pytest

from bimetal.rewards.allow import is_literal, is_symbolic


@pytest.mark.parametrize("text", ["12", "-1.5", "[1, 2]", "['a', \"b\"]", "Q _ _\n_ Q _", "A B C", ""])
def test_numbers_words_and_lists_are_literals(text: str) -> None:
    assert is_literal(text)


@pytest.mark.parametrize(
    "text",
    [
        "f()",
        "a.b",
        "[].append",
        "1 .real",
        "9**9",
        "lambda: 1",
        "{1}",
        "a=1",
        "a;b",
        "`a`",
        "\\x41",
        "\u0661",
        "x" * 5_000,
    ],
)
def test_what_could_call_or_compute_is_no_literal(text: str) -> None:
    assert not is_literal(text)


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "3*x**2 + C",
        "x^3/3",
        "sin(2*x)*exp(-x)",
        "sqrt(x)",
        "x**(3/2)",
        "1.5*x",
        "(x + 1)**3",
        "2**x",
        "x**-2",
        "log(x)",
        "((x+1)**2)**3",
        "8/(3 - 8/3)",
    ],
)
def test_small_expressions_are_symbolic(text: str) -> None:
    assert is_symbolic(text)


@pytest.mark.parametrize(
    "text",
    [
        "open('f')",
        "x.diff",
        "x. diff",
        "__import__",
        "eval(x)",
        "Symbol(x)",
        "x[0]",
        "{x}",
        "x;y",
        "'x'",
        "lambda x: x",
        "9**9**9",
        "9^9^9",
        "9**(9**9)",
        "((9**999)**999)**999",
        "x**99999",
        "x**",
        "x**(y+1)",
        "(" * 101,
        "9" * 301,
        "x!",
    ],
)
def test_what_could_run_or_explode_is_not_symbolic(text: str) -> None:
    assert not is_symbolic(text)
