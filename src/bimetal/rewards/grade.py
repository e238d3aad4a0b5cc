"""From responses to verdicts for domains whose answer stands on one line.

The statuses of design contract C5: a right strict answer is correct, a readable one that is not
right is wrong, everything else the response could do is unparseable with reward 0, and a row whose
reference cannot be read is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

from bimetal.core.errors import DataError
from bimetal.core.types import Item, JsonValue, Status, Verdict
from bimetal.rewards.extract import answer_region, lenient_answer, strict_answer

MAX_EXTRACTED = 200
"""Longest ``extracted`` a verdict keeps, in characters."""

Reference = TypeVar("Reference")

Judge = Callable[[Reference, str], bool | None]
"""Whether an answer is right; ``None`` where it cannot be read. Never raises on any text."""


def grade_answers(
    items: Sequence[Item],
    *,
    verifier: str,
    shape: re.Pattern[str],
    read_reference: Callable[[JsonValue], Reference],
    judge: Judge[Reference],
    extract: Callable[[str], str | None] = strict_answer,
) -> list[Verdict]:
    """One verdict per item, in order, for responses that hold one answer.

    Args:
        items: The responses of one group.
        verifier: Name and version that the verdicts carry, as in ``"lab_arithmetic/1"``.
        shape: What an answer looks like inside running text; used by the lenient reading alone.
        read_reference: The strict reader of references; raises ``DataError`` on one it cannot use.
        judge: Compares a reference with the text of one answer.
        extract: The strict reading of what follows the reasoning: ``Answer: X`` on the last line.
    """
    rules = _Rules(verifier, shape, read_reference, judge, extract)
    return [_grade(item, rules) for item in items]


def verdict_of(*, strict: bool | None, lenient: bool | None, extracted: str | None, verifier: str) -> Verdict:
    """The verdict of a strict and a lenient judgement; ``None`` means that nothing readable was found.

    ``extracted`` is kept as text that any file can hold: cut to 200 characters, surrogates escaped.
    """
    parts = MappingProxyType({"strict": float(strict is True), "lenient": float(lenient is True)})
    if strict is None:
        status, reason = Status.UNPARSEABLE, "no_answer" if extracted is None else "unparseable"
    else:
        status, reason = Status.CORRECT if strict else Status.WRONG, "ok"
    return Verdict(
        status=status,
        reward=float(strict is True),
        reason=reason,
        parts=parts,
        extracted=None if extracted is None else storable(extracted),
        verifier=verifier,
    )


def bad_row(message: str, *, verifier: str) -> Verdict:
    """The verdict of a row whose reference cannot be used; ``detail`` says why."""
    return Verdict(
        status=Status.UNKNOWN,
        reward=None,
        reason="bad_row",
        verifier=verifier,
        detail=storable(message),
    )


def storable(text: str) -> str:
    r"""The text cut to 200 characters, with lone surrogates and NUL bytes escaped.

    >>> storable("4\x002\ud800")
    '4\\x002\\ud800'
    """
    escaped = text[:MAX_EXTRACTED].encode("utf-8", "backslashreplace").decode("utf-8")
    return escaped.replace("\x00", "\\x00")


@dataclass(frozen=True, slots=True)
class _Rules(Generic[Reference]):
    verifier: str
    shape: re.Pattern[str]
    read_reference: Callable[[JsonValue], Reference]
    judge: Judge[Reference]
    extract: Callable[[str], str | None]


def _grade(item: Item, rules: _Rules[Reference]) -> Verdict:
    try:
        reference = rules.read_reference(item.prompt.reference)
    except DataError as error:
        return bad_row(str(error), verifier=rules.verifier)
    region = answer_region(item.response)
    if region is None:
        return verdict_of(strict=None, lenient=None, extracted=None, verifier=rules.verifier)
    strict, lenient = rules.extract(region), lenient_answer(region, shape=rules.shape)
    judged = None if strict is None else rules.judge(reference, strict)
    loosely = judged is True or (lenient is not None and rules.judge(reference, lenient))
    extracted = lenient if strict is None else strict
    return verdict_of(strict=judged, lenient=loosely, extracted=extracted, verifier=rules.verifier)
