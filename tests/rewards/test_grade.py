from __future__ import annotations

import re

import pytest

from bimetal.core.errors import DataError
from bimetal.core.types import Item, JsonValue, Prompt, PromptId, Status
from bimetal.rewards.grade import MAX_EXTRACTED, bad_row, grade_answers, storable, verdict_of


def _read(reference: JsonValue) -> str:
    if not isinstance(reference, str):
        raise DataError(f"the reference must be text; found {reference!r}")
    return reference


def graded(*responses: str, reference: JsonValue = "yes"):
    prompt = Prompt(id=PromptId("p"), domain="d", messages=(), reference=reference)
    return grade_answers(
        [Item(prompt=prompt, response=response) for response in responses],
        verifier="d/1",
        shape=re.compile("yes|no"),
        read_reference=_read,
        judge=lambda right, answer: answer == right if answer in ("yes", "no") else None,
    )


def test_every_response_gets_one_verdict_in_order() -> None:
    found = graded("Answer: yes", "junk", "Answer: no", "", "Answer: yes")
    assert [v.reward for v in found] == [1.0, 0.0, 0.0, 0.0, 1.0]
    assert [v.extracted for v in found] == ["yes", None, "no", None, "yes"]
    assert {v.verifier for v in found} == {"d/1"}


@pytest.mark.parametrize(
    ("response", "status", "reason", "strict", "lenient"),
    [
        ("Answer: yes", Status.CORRECT, "ok", 1.0, 1.0),
        ("Answer: no", Status.WRONG, "ok", 0.0, 0.0),
        ("Answer: maybe", Status.UNPARSEABLE, "unparseable", 0.0, 0.0),
        ("Answer: yes\nAnswer: yes", Status.UNPARSEABLE, "unparseable", 0.0, 1.0),
        ("I say yes", Status.UNPARSEABLE, "unparseable", 0.0, 1.0),
        ("I do", Status.UNPARSEABLE, "no_answer", 0.0, 0.0),
        ("<think>yes", Status.UNPARSEABLE, "no_answer", 0.0, 0.0),
    ],
)
def test_status_reason_and_parts(response, status, reason, strict, lenient) -> None:
    (verdict,) = graded(response)
    assert (verdict.status, verdict.reason) == (status, reason)
    assert dict(verdict.parts) == {"strict": strict, "lenient": lenient}


def test_a_bad_reference_is_unknown_whatever_the_response() -> None:
    for verdict in graded("Answer: yes", "", reference=None):
        assert (verdict.status, verdict.reward, verdict.reason) == (Status.UNKNOWN, None, "bad_row")
        assert verdict.detail == "the reference must be text; found None"


def test_what_is_kept_can_be_stored_anywhere() -> None:
    kept = storable("4\x002\ud800" + "x" * 1_000)
    assert kept.startswith("4\\x002\\ud800")
    kept.encode("utf-8")
    assert len(storable("x" * 1_000)) == MAX_EXTRACTED


def test_a_verdict_without_a_readable_answer_says_whether_there_was_one() -> None:
    assert verdict_of(strict=None, lenient=None, extracted=None, verifier="v").reason == "no_answer"
    assert verdict_of(strict=None, lenient=None, extracted="x", verifier="v").reason == "unparseable"
    assert bad_row("why", verifier="v").detail == "why"
