"""References and demonstrations against their own verifier."""

from __future__ import annotations

from collections.abc import Sequence

from bimetal.core.types import Demonstration, Item, Message, Prompt, PromptId, Status, Verdict
from bimetal.data.corpus import Corpus, Place
from bimetal.data.references import Failure, check_references, set_failures_aside

MESSAGES = (Message(role="user", content="?"),)
GOOD, BAD, FREE = PromptId("good"), PromptId("bad"), PromptId("free")
CORPUS = Corpus(
    prompts=(
        Prompt(id=GOOD, domain="d", messages=MESSAGES, reference="1"),
        Prompt(id=BAD, domain="d", messages=MESSAGES, reference="broken"),
        Prompt(id=FREE, domain="d", messages=MESSAGES),
    ),
    demonstrations={
        GOOD: (
            Demonstration(prompt_id=GOOD, text="it is 1"),
            Demonstration(prompt_id=GOOD, text="it is 2"),
        ),
        FREE: (Demonstration(prompt_id=FREE, text="anything"),),
    },
    places={
        GOOD: Place(file="a.jsonl", unit="line", number=1),
        BAD: Place(file="a.jsonl", unit="line", number=2),
    },
)
WRONG = Verdict(status=Status.WRONG, reward=0.0, extracted="2")
BAD_ROW = Verdict(status=Status.UNKNOWN, reward=None, reason="bad_row")


def verify(items: Sequence[Item]) -> list[Verdict]:
    """Right where the response ends with the reference; it cannot judge a reference that is no number."""
    return [_judged(item) for item in items]


def _judged(item: Item) -> Verdict:
    reference = str(item.prompt.reference)
    if not reference.isdigit():
        return BAD_ROW
    return Verdict(status=Status.CORRECT, reward=1.0) if item.response.endswith(reference) else WRONG


def written(prompt: Prompt) -> str:
    return f"it is {prompt.reference}"


def test_every_claim_is_judged_once_and_prompts_without_reference_are_skipped():
    check = check_references(CORPUS, verify, write_reference=written)
    assert (check.references, check.demonstrations) == (2, 2)
    assert check.failures == (
        Failure(prompt_id=GOOD, kind="demonstration", index=1, verdict=WRONG),
        Failure(prompt_id=BAD, kind="reference", index=0, verdict=BAD_ROW),
    )


def test_without_a_way_to_write_references_only_demonstrations_are_judged():
    check = check_references(CORPUS, verify)
    assert (check.references, check.demonstrations) == (0, 2)
    assert [failure.prompt_id for failure in check.failures] == [GOOD]


def test_failures_become_bad_rows_only_of_the_kinds_asked_for():
    check = check_references(CORPUS, verify, write_reference=written)
    assert set_failures_aside(CORPUS, check, kinds=()) == CORPUS
    without = set_failures_aside(CORPUS, check, kinds=("reference",))
    assert [prompt.id for prompt in without.prompts] == [GOOD, FREE]
    assert without.demonstrations == CORPUS.demonstrations
    (bad,) = without.bad_rows
    assert (bad.file, bad.unit, bad.row) == ("a.jsonl", "line", 2)
    assert bad.reason == "its own reference is judged unknown (bad_row); correct it"
    strict = set_failures_aside(CORPUS, check, kinds=("reference", "demonstration"))
    assert [one.text for one in strict.demonstrations[GOOD]] == ["it is 1"]
    assert strict.bad_rows[0].reason == "its own demonstration 1 is judged wrong (ok); correct it"
    assert strict.bad_rows[0].excerpt == "'2'"
