"""The line between a pool and its workers carries every string and number exactly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bimetal.core.types import Item, Message, Prompt, PromptId, Status, Stream, Verdict
from bimetal.rewards.wire import (
    decode,
    encode,
    finite,
    items_of,
    prompt_document,
    verdict_document,
    verdict_of,
)

ANY_TEXT = st.text(st.characters(exclude_categories=()))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(text=ANY_TEXT, reference=JSON, difficulty=st.none() | st.floats(0, 1))
def test_an_item_survives_the_line(text: str, reference: object, difficulty: float | None) -> None:
    prompt = Prompt(
        id=PromptId(text),
        domain=text,
        messages=(Message(role="user", content=text),),
        reference=reference,  # type: ignore[arg-type]
        difficulty=difficulty,
        problem=text,
        stream=Stream.DEMONSTRATIONS,
        source=text,
        meta={text: reference},  # type: ignore[dict-item]
    )
    line = encode({"prompt": prompt_document(prompt), "responses": [text], "finishes": ["length"]})
    assert line.count(b"\n") == 1
    (item,) = items_of(decode(line[:-1]))
    assert item.prompt == prompt and item.response == text and item.finish == "length"


@given(text=ANY_TEXT, reward=st.floats(0, 1, exclude_max=True), part=st.floats(-1e9, 1e9))
def test_a_verdict_survives_the_line(text: str, reward: float, part: float) -> None:
    verdict = Verdict(
        status=Status.WRONG,
        reward=reward,
        reason=text,
        parts={text: part},
        extracted=text,
        verifier=text,
        seconds=0.25,
        detail=text,
    )
    assert verdict_of(decode(encode(verdict_document(verdict)))) == verdict


def test_long_text_of_a_verdict_is_cut() -> None:
    verdict = Verdict(status=Status.WRONG, reward=0.0, extracted="x" * 5000)
    assert verdict_document(verdict)["extracted"] == "x" * 4000


@pytest.mark.parametrize("line", [b"[]", b"3", b"nonsense", b"", b"\xff"])
def test_a_line_that_is_no_document_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(line)


@pytest.mark.parametrize("value", ["1", None, [1], float("nan"), float("-inf"), 1j])
def test_what_is_not_a_finite_number_is_none(value: object) -> None:
    assert finite(value) is None


def test_an_item_is_what_it_was_without_data_of_its_own() -> None:
    prompt = Prompt(id=PromptId("p"), domain="d", messages=())
    document = {"prompt": prompt_document(prompt), "responses": ["a"], "finishes": ["stop"]}
    assert items_of(decode(encode(document))) == [Item(prompt=prompt, response="a")]
