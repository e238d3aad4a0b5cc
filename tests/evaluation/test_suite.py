"""A suite of two domains, answered from a script and counted."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bimetal.backends.scripted import Config, Reply, connect
from bimetal.core.errors import DataError
from bimetal.core.streams import Streams
from bimetal.core.types import Finish, Item, Message, Prompt, PromptId, Split, Status, Verdict
from bimetal.evaluation.passk import Votes
from bimetal.evaluation.sample import Plan, Subject
from bimetal.evaluation.suite import Suite, evaluate
from bimetal.rollout.backend import Sampling
from bimetal.rollout.group import Rendering

PLAN = Plan(sampling=Sampling(temperature=1.0, max_tokens=12), samples=3)


def test_answers_are_counted_problem_by_problem() -> None:
    found = evaluate(suite(), subject=subject(SCRIPT), judge=judge, streams=Streams(seed=3), plan=PLAN)
    first, second = found.problems["math"]
    assert (first.correct, first.lenient, first.unparseable, first.known) == (1, 2, 1, 3)
    assert first.votes == (Votes(1, 1), Votes(1, 0))
    assert (second.correct, second.truncated, second.tokens) == (0, 3, 36)
    assert second.votes == (Votes(3, 0),)
    assert found.problems["logic"][0].correct == 3


def test_a_result_carries_what_made_it() -> None:
    found = evaluate(suite(), subject=subject(SCRIPT), judge=judge, streams=Streams(seed=3), plan=PLAN)
    assert (found.suite, found.split, found.label, found.seed, found.samples) == (
        "toy", Split.SELECTION, "scripted", 3, 3,
    )  # fmt: skip
    assert found.sampling == PLAN.sampling
    assert found.settings == {"math": {"digits": 1}}


def test_the_first_answers_of_each_domain_are_kept_as_text() -> None:
    found = evaluate(suite(), subject=subject(SCRIPT), judge=judge, streams=Streams(seed=3), plan=PLAN)
    assert [(e.domain, e.prompt, e.reference, e.response, e.status) for e in found.examples] == [
        ("math", "1+1", "2", "Answer: 2", Status.CORRECT),
        ("math", "5+5", "10", "x" * 12, Status.WRONG),
        ("logic", "true?", "yes", "Answer: yes", Status.CORRECT),
    ]
    assert found.examples[1].finish is Finish.LENGTH


def test_a_suite_that_measures_nothing_is_refused() -> None:
    with pytest.raises(DataError, match="'toy': has no domains"):
        Suite(name="toy", domains={})
    with pytest.raises(DataError, match="'math' has no problems on the test split"):
        Suite(name="toy", domains={"math": ()})
    with pytest.raises(DataError, match="math/1 is of domain 'math' and stands under 'logic'"):
        Suite(name="toy", domains={"logic": (prompt("math", "1", "1"),)})


SCRIPT = Config(
    replies=(
        Reply(request="math/1+1#0.0*", text="Answer: 2"),
        Reply(request="math/1+1#0.1*", text="it is 2"),
        Reply(request="math/1+1#0.2*", text="Answer: 3"),
        Reply(request="math/5+5#*", text="x" * 40),
        Reply(request="logic/*", text="Answer: yes"),
    )
)


def suite() -> Suite:
    return Suite(
        name="toy",
        domains={
            "math": (prompt("math", "1+1", "2"), prompt("math", "5+5", "10")),
            "logic": (prompt("logic", "true?", "yes"),),
        },
        split=Split.SELECTION,
        settings={"math": {"digits": 1}},
    )


def prompt(domain: str, text: str, reference: str) -> Prompt:
    messages = (Message(role="user", content=text),)
    return Prompt(id=PromptId(f"{domain}/{text}"), domain=domain, messages=messages, reference=reference)


def subject(script: Config) -> Subject:
    rendering = Rendering(
        prompt_ids=lambda messages: tuple(map(ord, messages[-1].content)),
        response_ids=lambda text: tuple(map(ord, text)),
        text_of=lambda ids: "".join(map(chr, ids)),
    )
    backend = connect(script, encode=rendering.response_ids, decode=rendering.text_of)
    return Subject(name="scripted", backend=backend, rendering=rendering, positions=64)


def judge(groups: Sequence[Sequence[Item]]) -> list[list[Verdict]]:
    return [[verdict(item) for item in group] for group in groups]


def verdict(item: Item) -> Verdict:
    """Strict wants ``Answer:``, lenient takes the last word; crosses are a readable wrong answer."""
    found = item.response.split()[-1]
    right = found == item.prompt.reference
    strict = item.response.startswith("Answer:") or found.startswith("x")
    if not strict:
        parts = {"lenient": float(right)}
        return Verdict(status=Status.UNPARSEABLE, reward=0.0, parts=parts, extracted=found)
    return Verdict(status=Status.CORRECT if right else Status.WRONG, reward=float(right), extracted=found)
