"""One right answer per row, compared exactly: for files of problems such as GSM8K.

Only verifies; the problems come from the recipe's data.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from bimetal.config.options import Options
from bimetal.core.errors import DataError
from bimetal.core.types import Item, JsonValue, Services, Verdict
from bimetal.rewards.extract import (
    MAX_CHARACTERS,
    NUMBER,
    is_bounded,
    last_boxed,
    last_hash,
    last_number,
    plain_text,
    strict_answer,
)
from bimetal.rewards.grade import grade_answers
from bimetal.rewards.numeric import parse_amount

NAME = "exact_answer"

REFERENCE_FORM = 'The answer as a number or as text: "1,250", 0.5 or "Paris".'

EXAMPLES: tuple[tuple[JsonValue, str], ...] = (("42", "42"), ("1,250", "1250"), (0.5, "1/2"), (-3, "-3"))
"""References with an answer that is right under the default options; the conformance suite tries them."""


class Config(Options):
    """Options of this domain."""

    extraction: Literal["answer_line", "hash", "boxed", "last_number", "whole"] = "answer_line"
    """Where the answer stands: on a last line "Answer: X", after the only "####", in the only box, in the
    last number (for evaluation: it rewards guessing), or in the whole response."""

    comparison: Literal["number", "text"] = "number"
    """Equal as exact numbers, without thousands separators, dollar and percent signs; or equal as text,
    without regard to case and spacing."""


def verify(items: Sequence[Item], options: Config, services: Services) -> list[Verdict]:
    """Correct where the extracted answer equals the reference."""
    grade = functools.partial(
        grade_answers,
        verifier=f"{NAME}/1",
        shape=NUMBER,
        extract=lambda region: _extract(options, region),
    )
    if options.comparison == "number":
        return grade(items, read_reference=_read_number, judge=_judge_number)
    return grade(items, read_reference=_read_text, judge=_judge_text)


def _extract(options: Config, region: str) -> str | None:
    tail = region[-MAX_CHARACTERS:]
    found: str | None
    if options.extraction == "answer_line":
        found = strict_answer(region)
    elif options.extraction == "hash":
        found = last_hash(tail) if region.count("####") == 1 else None
    elif options.extraction == "boxed":
        found = last_boxed(tail) if region.count("\\boxed") + region.count("\\fbox") == 1 else None
    elif options.extraction == "last_number":
        found = last_number(tail)
    else:
        found = region.strip() or None
    return found if found is not None and is_bounded(found) else None


def _read_number(reference: JsonValue) -> Fraction:
    is_real = (
        isinstance(reference, (int, float)) and not isinstance(reference, bool) and math.isfinite(reference)
    )
    # repr, so that the float 0.1 is one tenth and not its nearest binary fraction.
    text = repr(reference) if is_real else reference
    value = parse_amount(text) if isinstance(text, str) else None
    if value is None:
        raise DataError(
            f"{NAME}: the reference must be a number; found {reference!r}. "
            'Where answers are words, set comparison = "text"'
        )
    return value


def _judge_number(reference: Fraction, answer: str) -> bool | None:
    value = parse_amount(answer)
    return None if value is None else value == reference


def _read_text(reference: JsonValue) -> str:
    if isinstance(reference, str) and _folded(reference):
        return _folded(reference)
    if isinstance(reference, (int, float)) and not isinstance(reference, bool):
        return repr(reference)
    raise DataError(f"{NAME}: the reference must be text that is not blank; found {reference!r}")


def _judge_text(reference: str, answer: str) -> bool | None:
    folded = _folded(answer)
    return (folded == reference or _folded(plain_text(answer)) == reference) if folded else None


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
