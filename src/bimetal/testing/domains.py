"""What every domain must keep, as functions a plug-in's tests can call.

    suite = DomainSuite(domain=my_domain, options=my_domain.Config())
    for check in CHECKS:
        check(suite)

Each check raises ``AssertionError`` with the response that broke it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from bimetal.config.options import Options
from bimetal.core.types import (
    Demonstration,
    Item,
    JsonValue,
    Message,
    Prompt,
    PromptId,
    Services,
    Split,
    Status,
    Verdict,
)

MAX_CASES = 20
"""Problems each check looks at."""

GARBAGE = (
    "",
    " \n\t\n",
    "x" * 100_000,
    "9" * 100_000,
    "(" * 100_000,
    "Answer: " + "9" * 100_000,
    "Answer: " + "(" * 5_000 + "1" + ")" * 5_000,
    "Answer: 9**9**9**9",
    "Answer: __import__('os').getcwd()",
    "Answer: 1e999999999",
    "Answer: 1/0",
    "Answer: nan",
    "Answer: \x00\x00",
    "\x00Answer: 4\x002",
    "Answer: \ud800\udfff",
    "\ud800",
    "Answer: \u200f\u202e24",
    "Answer: \u0664\u0662",
    "<think>" * 5_000,
    "</think>" * 5_000,
    "\\boxed{" * 5_000,
    "\\boxed{}",
    "####",
    "Answer: {}",
    "Answer: []",
    "Answer: null",
    "answer is " * 5_000,
    "Answer:\n" * 5_000,
)
"""Responses no verifier may raise on or reward."""


@runtime_checkable
class Domain(Protocol):
    """A domain module; one that only verifies has no ``load``."""

    def verify(self, items: Sequence[Item], options: Options, services: Services) -> list[Verdict]:
        """One verdict per item, in order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A prompt, a response that is right, and the answer inside it."""

    prompt: Prompt
    response: str
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainSuite:
    """A domain under test with the options it is tried with."""

    domain: Domain
    options: Options

    @property
    def loads(self) -> bool:
        """Whether the domain makes problems of its own."""
        return hasattr(self.domain, "load")

    def rows(
        self, split: Split, options: Options | None = None
    ) -> list[tuple[Prompt, Sequence[Demonstration]]]:
        """All problems of a split."""
        return list(self.domain.load(options or self.options, split))  # type: ignore[attr-defined]  # see loads

    def cases(self) -> list[Case]:
        """Right responses: faultless demonstrations, or the examples of a domain that only verifies."""
        if not self.loads:
            return list(_examples(self.domain))
        found = [
            Case(prompt=prompt, response=demonstration.text, answer=_answer(demonstration.text))
            for prompt, demonstrations in self.rows(Split.TRAIN)[:MAX_CASES]
            for demonstration in demonstrations
            if demonstration.quality == 1.0
        ]
        assert found, "the domain has no faultless demonstration to try its verifier with"
        return found

    def judge(self, prompt: Prompt, response: str) -> Verdict:
        """The verdict of one response."""
        (verdict,) = self.domain.verify([Item(prompt=prompt, response=response)], self.options, Services())
        return verdict


def references_verify(suite: DomainSuite) -> None:
    """Every right response is correct, strictly and leniently."""
    for case in suite.cases():
        verdict = suite.judge(case.prompt, case.response)
        assert verdict.status is Status.CORRECT, f"{case.response!r} for {case.prompt}: {verdict}"
        assert dict(verdict.parts) == {"strict": 1.0, "lenient": 1.0}, verdict
        assert verdict.verifier, "the verdict does not name its verifier"


def references_survive_json(suite: DomainSuite) -> None:
    """A reference that was stored as JSON and read again judges the same."""
    for case in suite.cases():
        stored: JsonValue = json.loads(json.dumps(case.prompt.reference))
        assert suite.judge(replace(case.prompt, reference=stored), case.response).reward == 1.0, stored


def mutations_fail(suite: DomainSuite) -> None:
    """A changed digit or sign, extra text, a part, a repetition, no answer or no answer line earn nothing."""
    for case in suite.cases():
        for answer in _mutations(case.answer):
            response = f"Answer: {answer}"
            assert suite.judge(case.prompt, response).reward == 0.0, f"{response!r} for {case.prompt}"
        for response in (
            case.answer,
            f"The answer is {case.answer}",
            f"Answer: {case.answer}\nAnswer: {case.answer}",
        ):
            assert suite.judge(case.prompt, response).reward == 0.0, f"{response!r} for {case.prompt}"


def other_answers_fail(suite: DomainSuite) -> None:
    """Another problem's answer, all answers in one line, and the prompt itself earn nothing."""
    cases = suite.cases()
    listed = " ".join(dict.fromkeys(case.answer for case in cases))
    for case, other in zip(cases, cases[1:] + cases[:1], strict=True):
        asked = " ".join(message.content for message in case.prompt.messages)
        tried = [f"Answer: {listed}", asked, "Answer: " + " ".join(asked.split())]
        if other.answer != case.answer:
            tried.append(other.response)
        for response in tried:
            assert suite.judge(case.prompt, response).reward == 0.0, f"{response!r} for {case.prompt}"


def garbage_earns_nothing(suite: DomainSuite) -> None:
    """No junk raises or is rewarded, and the items after it are judged as if alone."""
    case = suite.cases()[0]
    for junk in GARBAGE:
        assert suite.judge(case.prompt, junk).reward == 0.0, repr(junk[:80])
    items = [Item(prompt=case.prompt, response=text) for text in (*GARBAGE, case.response)]
    verdicts = suite.domain.verify(items, suite.options, Services())
    assert [v.reward for v in verdicts] == [0.0] * len(GARBAGE) + [1.0]
    assert suite.domain.verify([], suite.options, Services()) == []


def verdicts_repeat(suite: DomainSuite) -> None:
    """The same texts get the same verdicts, together or one by one."""
    case = suite.cases()[0]
    texts = (case.response, "", f"Answer: {case.answer} apples", "I do not know.")
    items = [Item(prompt=case.prompt, response=text) for text in texts]
    together = suite.domain.verify(items, suite.options, Services())
    assert together == suite.domain.verify(items, suite.options, Services())
    assert together == [suite.judge(case.prompt, text) for text in texts]


def missing_references_are_unknown(suite: DomainSuite) -> None:
    """A row without a usable reference is nobody's fault: unknown, not wrong."""
    for case in suite.cases()[:5]:
        for reference in (None, [], {"no": "such"}, True):
            verdict = suite.judge(replace(case.prompt, reference=reference), case.response)
            assert (verdict.status, verdict.reward, verdict.reason) == (Status.UNKNOWN, None, "bad_row"), (
                verdict
            )


def problems_repeat(suite: DomainSuite) -> None:
    """Loading twice gives the same rows, ids are unique, and demonstrations belong to their prompt."""
    if not suite.loads:
        return
    for split in Split:
        rows = suite.rows(split)
        assert rows == suite.rows(split), f"{split} differs when loaded again"
        ids = [prompt.id for prompt, _ in rows]
        assert len(set(ids)) == len(ids), f"{split} repeats an id"
        assert all(d.prompt_id == prompt.id for prompt, found in rows for d in found)


def splits_are_disjoint(suite: DomainSuite) -> None:
    """No problem of one split is in another, whatever the seeds they were drawn with."""
    if not suite.loads:
        return
    reseeded = (
        suite.options.model_copy(update={"seed": 1}) if "seed" in type(suite.options).model_fields else None
    )
    train = {prompt.problem for prompt, _ in suite.rows(Split.TRAIN)}
    for options in (suite.options, reseeded or suite.options):
        selection = {prompt.problem for prompt, _ in suite.rows(Split.SELECTION, options)}
        test = {prompt.problem for prompt, _ in suite.rows(Split.TEST, options)}
        assert not (train & selection or train & test or selection & test), "two splits share a problem"


def judged(domain: Domain, options: Options, *, reference: JsonValue, response: str) -> Verdict:
    """The verdict of one response to a made-up prompt with this reference."""
    prompt = Prompt(id=PromptId("made/up"), domain="made", messages=(), reference=reference)
    return DomainSuite(domain=domain, options=options).judge(prompt, response)


CHECKS: tuple[Callable[[DomainSuite], None], ...] = (
    references_verify,
    references_survive_json,
    mutations_fail,
    other_answers_fail,
    garbage_earns_nothing,
    verdicts_repeat,
    missing_references_are_unknown,
    problems_repeat,
    splits_are_disjoint,
)
"""All checks, in the order of the list in the documentation."""


def _answer(response: str) -> str:
    return response.rpartition("Answer:")[2].strip()


def _examples(domain: Domain) -> Iterator[Case]:
    examples: Sequence[tuple[JsonValue, str]] = domain.EXAMPLES  # type: ignore[attr-defined]  # what such a domain exports
    for index, (reference, answer) in enumerate(examples):
        messages = (Message(role="user", content=f"Problem number {index}?"),)
        prompt = Prompt(id=PromptId(str(index)), domain="example", messages=messages, reference=reference)
        yield Case(prompt=prompt, response=f"Answer: {answer}", answer=answer)


def _mutations(answer: str) -> Iterator[str]:
    yield from (
        "",
        f"{answer} apples",
        f"about {answer}",
        f"{answer} or {answer}",
        f"[{answer}]",
    )
    yield from (part for part in (answer[:-1], answer[1:]) if part and part != answer)
    if answer != "0":
        yield from (f"-{answer}", answer + answer)
    digits = [index for index, character in enumerate(answer) if character in "0123456789"]
    if digits:
        last = digits[-1]
        yield f"{answer[:last]}{(int(answer[last]) + 1) % 10}{answer[last + 1 :]}"
