"""Numbers out of text, exactly: integers, decimals and fractions as rationals, never through ``eval``."""

from __future__ import annotations

import re
from fractions import Fraction

from bimetal.rewards.extract import MAX_DIGITS

MAX_EXPONENT = 300
"""Largest power of ten a number may be written with."""

_DIGITS = r"[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+"
_NUMBER = re.compile(
    rf"(?P<sign>[-+\u2212]?)(?:(?P<whole>{_DIGITS})(?:\.(?P<part>[0-9]*))?|\.(?P<only>[0-9]+))"
    r"(?:[eE](?P<exponent>[-+]?[0-9]{1,4}))?"
)
_FRACTION = re.compile(rf"(?P<sign>[-+\u2212]?)(?P<top>{_DIGITS})\s*/\s*(?P<bottom>{_DIGITS})")
_LATEX_FRACTION = re.compile(r"([-+\u2212]?)\\[dt]?frac\{([0-9]+)\}\{([0-9]+)\}")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")


def parse_number(text: str) -> Fraction | None:
    r"""The exact value of a number, or ``None`` where the whole text is not one.

    Signs, thousands separators in their places, decimals, powers of ten and one fraction bar (also
    ``\frac{1}{2}``) are read; a prefix of a longer text never is.

    >>> parse_number("1,234.50"), parse_number("-3/6"), parse_number("12 apples")
    (Fraction(2469, 2), Fraction(-1, 2), None)
    """
    bare = text.strip()
    if len(bare) > 4 * MAX_DIGITS:
        return None
    bare = _LATEX_FRACTION.sub(r"\1\2/\3", bare)
    match = _FRACTION.fullmatch(bare)
    if match is not None:
        return _signed(match["sign"], _ratio(match["top"], match["bottom"]))
    match = _NUMBER.fullmatch(bare)
    return None if match is None else _signed(match["sign"], _decimal(match))


def parse_amount(text: str) -> Fraction | None:
    """As ``parse_number``, with a dollar sign before the digits or a percent sign after them left out.

    >>> parse_amount("$1,250"), parse_amount("-$3"), parse_amount("40%")
    (Fraction(1250, 1), Fraction(-3, 1), Fraction(40, 1))
    """
    bare = text.strip().replace("\\$", "$").replace("\\%", "%").removesuffix("%").rstrip()
    return parse_number(re.sub(r"^([-+\u2212]?)\$\s*", r"\1", bare))


def parse_reference_integer(value: object) -> int | None:
    """An integer a reference may hold: an ``int`` or its plain decimal digits; nothing else.

    >>> parse_reference_integer("42"), parse_reference_integer("042"), parse_reference_integer(True)
    (42, None, None)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and len(value) <= MAX_DIGITS and _INTEGER.fullmatch(value):
        return int(value)
    return None


def same_number(text: str, value: Fraction | int) -> bool | None:
    """Whether the text is a number equal to ``value``; ``None`` where it is no number.

    >>> same_number("42.0", 42), same_number("43", 42), same_number("forty-two", 42)
    (True, False, None)
    """
    number = parse_number(text)
    return None if number is None else number == value


def _ratio(top: str, bottom: str) -> Fraction | None:
    high, low = _integer(top), _integer(bottom)
    return None if high is None or not low else Fraction(high, low)


def _decimal(match: re.Match[str]) -> Fraction | None:
    part = match["only"] or match["part"] or ""
    digits = _integer((match["whole"] or "0") + part)
    exponent = int(match["exponent"] or 0)
    if digits is None or abs(exponent) > MAX_EXPONENT:
        return None
    return Fraction(digits) * Fraction(10) ** (exponent - len(part))


def _integer(digits: str) -> int | None:
    bare = digits.replace(",", "")
    return int(bare) if len(bare) <= MAX_DIGITS else None


def _signed(sign: str, value: Fraction | None) -> Fraction | None:
    return -value if value is not None and sign in ("-", "\u2212") else value
