from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bimetal.rewards.extract import (
    MAX_CHARACTERS,
    NUMBER,
    answer_region,
    is_bounded,
    last_boxed,
    last_hash,
    last_number,
    lenient_answer,
    plain_text,
    strict_answer,
    strict_block,
)


@pytest.mark.parametrize(
    ("response", "region"),
    [
        ("Answer: 1", "Answer: 1"),
        ("<think>a</think>b", "b"),
        ("a</think>b", "b"),
        ("<think>a</think>b<think>c</think>d", "d"),
        ("<think>a", None),
        ("<think>a</think>b<think>c", None),
        ("<think></think>", ""),
    ],
)
def test_only_what_follows_the_last_closed_reasoning_block_counts(response: str, region: str | None) -> None:
    assert answer_region(response) == region


@pytest.mark.parametrize(
    ("region", "answer"),
    [
        ("Answer: 12", "12"),
        ("7+5=12\nAnswer: 12", "12"),
        ("Answer: 12\n\n \t\r\n", "12"),
        ("Answer: 3 + 4", "3 + 4"),
        ("Answer: Answer: 12", "Answer: 12"),
        ("the answer follows\nAnswer: 12", "12"),
        ("Answer:12", None),
        ("Answer:  12", None),
        ("Answer: ", None),
        ("Answer:", None),
        ("Answer:\n12", None),
        (" Answer: 12", None),
        ("answer: 12", None),
        ("**Answer: 12**", None),
        ("- Answer: 12", None),
        ("so Answer: 12", None),
        ("Answer: 12\nDone.", None),
        ("Answer: 11\nAnswer: 12", None),
        ("**answer**: 11\nAnswer: 12", None),
        ("Final answer: 11\nAnswer: 12", None),
        ("12", None),
        ("", None),
    ],
)
def test_strict_wants_the_only_answer_line_last(region: str, answer: str | None) -> None:
    assert strict_answer(region) == answer


def test_an_unusual_line_separator_does_not_end_a_line() -> None:
    assert strict_answer("Answer: 1\u2028Answer: 2") == "1\u2028Answer: 2"


@pytest.mark.parametrize(
    ("region", "block"),
    [
        ("Answer:\n1 2\n3 4", "1 2\n3 4"),
        ("Answer: 1 2\n3 4\n", "1 2\n3 4"),
        ("so\nAnswer:\n1", "1"),
        ("Answer:\n1\nAnswer:\n2", None),
        ("Answer:\n", None),
        ("answer:\n1", None),
        ("1 2", None),
    ],
)
def test_a_block_is_all_that_follows_the_only_answer_line(region: str, block: str | None) -> None:
    assert strict_block(region) == block


@pytest.mark.parametrize(
    ("region", "answer"),
    [
        ("Answer: 12", "12"),
        ("**Answer:** 12", "12"),
        ("**Answer: 12**", "12"),
        ("The answer is 12.", "12"),
        ("The answer is **12** apples", "12"),
        ("Answer:\n\n12", "12"),
        ("ANSWER = 12", "12"),
        ("answer: 11, no, answer: 12", "12"),
        ("The answer is 11.\nThe answer is 12.", "12"),
        ("Answer: 12\nAnswer:", "12"),
        ("so \\boxed{12}", "12"),
        ("The answer is $\\boxed{12}$.", "12"),
        ("#### 12", "12"),
        ("7 and then 12", "12"),
        ("7+5=12", "12"),
        ("none", None),
        ("", None),
    ],
)
def test_lenient_takes_the_last_announced_boxed_hashed_or_shaped_answer(
    region: str, answer: str | None
) -> None:
    assert lenient_answer(region, shape=NUMBER) == answer


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("\\boxed{1}", "1"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed {1}", "1"),
        ("\\fbox{1}", "1"),
        ("\\boxed 5.", "5"),
        ("\\boxed{1} \\boxed{2}", "2"),
        ("\\boxed{ {a}{b} } c}", "{a}{b}"),
        ("\\boxed{1", None),
        ("\\boxed{}", None),
        ("\\boxed", None),
        ("boxed{1}", None),
        ("", None),
    ],
)
def test_a_box_is_read_to_its_balancing_brace(text: str, content: str | None) -> None:
    assert last_boxed(text) == content


@pytest.mark.parametrize(
    ("text", "answer"),
    [("#### 5", "5"), ("####5\n", "5"), ("#### 4\n#### 5", "5"), ("####", None), ("### 5", None)],
)
def test_the_last_hash_line_wins(text: str, answer: str | None) -> None:
    assert last_hash(text) == answer


@pytest.mark.parametrize(
    ("text", "number"),
    [("1, 2, 3", "3"), ("costs $1,250.50.", "1,250.50"), ("-3/4 left", "-3/4"), (".5", ".5"), ("none", None)],
)
def test_the_last_number_is_whole(text: str, number: str | None) -> None:
    assert last_number(text) == number


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("**red**", "red"),
        ("`red`", "red"),
        ("$red$", "red"),
        ("\\text{red}", "red"),
        ("**\\text{red}**.", "red"),
        ("\u200fred\u200b", "red"),
        ("red.", "red"),
        ("", ""),
    ],
)
def test_plain_text_has_no_markup(text: str, plain: str) -> None:
    assert plain_text(text) == plain


@pytest.mark.parametrize(
    ("text", "bounded"),
    [
        ("9" * 300, True),
        ("9" * 301, False),
        ("(" * 100, True),
        ("(" * 101, False),
        ("()" * 500, True),
        ("x" * MAX_CHARACTERS, True),
        ("x" * (MAX_CHARACTERS + 1), False),
    ],
)
def test_what_is_too_long_too_large_or_too_deep_is_kept_from_parsers(text: str, bounded: bool) -> None:
    assert is_bounded(text) is bounded


def test_only_the_end_of_a_long_response_is_read_leniently() -> None:
    assert lenient_answer("The answer is 5." + "x" * MAX_CHARACTERS, shape=NUMBER) is None


@given(st.text(st.characters(codec=None), max_size=300))
def test_extraction_never_raises_and_a_written_answer_comes_back(text: str) -> None:
    for extract in (
        answer_region,
        strict_answer,
        strict_block,
        last_boxed,
        last_hash,
        last_number,
        plain_text,
        is_bounded,
    ):
        extract(text)
    lenient_answer(text, shape=NUMBER)


@given(
    st.text("abc123 +-", min_size=1, max_size=20).filter(
        lambda t: not t.startswith(" ") and not t.endswith(" ")
    )
)
def test_a_written_answer_comes_back(answer: str) -> None:
    assert strict_answer(f"some steps\nAnswer: {answer}\n") == answer
