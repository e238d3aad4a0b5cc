"""Lists of allowed characters for text that a third party's scorer hands to Python's own evaluation.

They come before the killable worker, not instead of it.
"""

from __future__ import annotations

import re

from bimetal.rewards.extract import is_bounded

MAX_POWER = 10_000
"""Largest product of an exponent and the exponents of the brackets around it."""

FUNCTIONS = frozenset(
    {
        *("sin", "cos", "tan", "sec", "csc", "cot", "asin", "acos", "atan", "sinh", "cosh", "tanh"),
        *("exp", "log", "ln", "sqrt", "pi"),
    }
)
"""Words an expression may hold besides single letters."""

_LITERAL = re.compile(r"(?:[A-Za-z0-9 \t\n_,'\"\[\]+-]|\.(?=[0-9]))*")
_SYMBOLIC = re.compile(r"(?:[A-Za-z0-9 \t+*/^()=,-]|\.(?!\s*[A-Za-z]))*")
_WORD = re.compile(r"[A-Za-z]+")
_POWER = re.compile(
    r"(?P<compound>\)?)\s*(?:\*\*|\^)\s*(?P<exponent>-?[0-9]+|\(\s*-?[0-9]+(?:/[0-9]+)?\s*\)|[a-z])?"
)


def is_literal(text: str) -> bool:
    """Whether the text can only be numbers, words and lists: nothing to call, no attribute, no power.

    >>> is_literal("['1.5', '-2']"), is_literal("print(1)"), is_literal("[].x")
    (True, False, False)
    """
    return is_bounded(text) and _LITERAL.fullmatch(text) is not None


def is_symbolic(text: str) -> bool:
    """Whether the text can only be a small expression of single letters and functions of calculus.

    >>> is_symbolic("x**2/2 + sin(3*x) + C"), is_symbolic("open('f')"), is_symbolic("9**9**9")
    (True, False, False)
    """
    if not is_bounded(text) or _SYMBOLIC.fullmatch(text) is None:
        return False
    return all(len(word) == 1 or word in FUNCTIONS for word in _WORD.findall(text)) and _has_small_powers(
        text
    )


def _has_small_powers(text: str) -> bool:
    largest, compound, end = 1, 1, -1
    for match in _POWER.finditer(text):
        # No exponent that can be read, or one power directly above another.
        if match["exponent"] is None or (not match["compound"] and match.start() == end):
            return False
        power = max([1, *(int(run) for run in re.findall(r"[0-9]{1,6}", match["exponent"]))])
        largest = max(largest, power)
        compound *= power if match["compound"] else 1
        end = match.end()
    return largest * compound <= MAX_POWER
