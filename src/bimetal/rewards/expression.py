"""Arithmetic expressions over whole numbers, read by a grammar of our own and computed exactly.

    sum     = product (("+" | "-") product)*
    product = atom (("*" | "/") atom)*
    atom    = digits | "(" sum ")"

There is no sign before a number and no power, so nothing large can be written shortly.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from bimetal.rewards.extract import is_bounded

MAX_LENGTH = 200
"""Longest expression that is read, in characters."""

_SPELLINGS = str.maketrans({"\u00d7": "*", "\u00f7": "/", "\u2212": "-", "\u22c5": "*"})
_TOKEN = re.compile(r"[ \t]*([0-9]{1,9}(?![0-9])|[-+*/()])[ \t]*")


@dataclass(frozen=True, slots=True)
class Expression:
    """``Expression(value=Fraction(6), numbers=(3, 8, 5))`` is ``3+8-5``.

    ``value`` is ``None`` where the expression divides by zero.
    """

    value: Fraction | None
    numbers: tuple[int, ...]


def parse_expression(text: str) -> Expression | None:
    """The value of an expression and the numbers it uses, in order; ``None`` where it is none.

    >>> parse_expression("(8-2)/3")
    Expression(value=Fraction(2, 1), numbers=(8, 2, 3))
    >>> parse_expression("2**9"), parse_expression("3 5"), parse_expression("-3+5")
    (None, None, None)
    """
    if len(text) > MAX_LENGTH or not is_bounded(text):
        return None
    tokens = _tokens(text.strip().translate(_SPELLINGS))
    if tokens is None:
        return None
    reader = _Reader(tokens)
    try:
        value = reader.sum()
    except _NotAnExpressionError:
        return None
    if reader.position != len(tokens):
        return None
    return Expression(value, tuple(int(token) for token in tokens if token.isdigit()))


class _NotAnExpressionError(Exception):
    """The tokens do not follow the grammar."""


def _tokens(text: str) -> list[str] | None:
    tokens, position = list[str](), 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            return None
        tokens.append(match[1])
        position = match.end()
    return tokens


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self.position = 0

    def sum(self) -> Fraction | None:
        value = self._product()
        while (sign := self._take("+-")) is not None:
            value = _apply(value, sign, self._product())
        return value

    def _product(self) -> Fraction | None:
        value = self._atom()
        while (sign := self._take("*/")) is not None:
            value = _apply(value, sign, self._atom())
        return value

    def _atom(self) -> Fraction | None:
        if self._take("(") is not None:
            value = self.sum()
            if self._take(")") is None:
                raise _NotAnExpressionError
            return value
        if self.position < len(self._tokens) and self._tokens[self.position].isdigit():
            self.position += 1
            return Fraction(int(self._tokens[self.position - 1]))
        raise _NotAnExpressionError

    def _take(self, choices: str) -> str | None:
        if self.position < len(self._tokens) and self._tokens[self.position] in choices:
            self.position += 1
            return self._tokens[self.position - 1]
        return None


def _apply(left: Fraction | None, sign: str, right: Fraction | None) -> Fraction | None:
    if left is None or right is None:
        return None
    if sign == "/":
        return left / right if right else None
    return left + right if sign == "+" else left - right if sign == "-" else left * right
