from __future__ import annotations

import pytest

from bimetal.core.types import Status
from bimetal.domains import exact_answer
from bimetal.domains.exact_answer import Config
from bimetal.testing.domains import judged

RIGHT = [
    "1250",
    "1,250",
    "$1,250",
    "1250.00",
    "+1250",
    "1250%",
    "2500/2",
    "1.25e3",
    "$ 1250",
    "1250.",
    "\\$1,250",
]
NEAR_MISSES = [
    "1251",
    "-1250",
    "125",
    "12500",
    "1,25,0",
    "1250 dollars",
    "1250 or 1300",
    "1250.5",
    "12 50",
    "$",
    "1250$1",
]


@pytest.mark.parametrize("answer", RIGHT)
def test_an_equivalent_number_is_right(answer: str) -> None:
    assert (
        judged(exact_answer, Config(), reference="1,250", response=f"Answer: {answer}").status
        is Status.CORRECT
    )


@pytest.mark.parametrize("answer", NEAR_MISSES)
def test_a_near_miss_earns_nothing(answer: str) -> None:
    assert judged(exact_answer, Config(), reference="1,250", response=f"Answer: {answer}").reward == 0.0


@pytest.mark.parametrize(
    ("extraction", "response", "reward"),
    [
        ("answer_line", "so\nAnswer: 18", 1.0),
        ("answer_line", "#### 18", 0.0),
        ("hash", "9 * 2 = <<9*2=18>>18\n#### 18", 1.0),
        ("hash", "#### 17\n#### 18", 0.0),
        ("hash", "18", 0.0),
        ("boxed", "thus \\boxed{18}.", 1.0),
        ("boxed", "thus $\\boxed{\\frac{36}{2}}$", 1.0),
        ("boxed", "thus $\\boxed{\\frac{36}{4}}$", 0.0),
        ("boxed", "\\boxed{17} or \\boxed{18}", 0.0),
        ("boxed", "\\boxed{18", 0.0),
        ("last_number", "first 17, then 18 apples.", 1.0),
        ("last_number", "18 and then 17", 0.0),
        ("whole", " 18\n", 1.0),
        ("whole", "it is 18", 0.0),
    ],
)
def test_the_answer_is_taken_from_where_the_option_says(extraction, response: str, reward: float) -> None:
    assert (
        judged(exact_answer, Config(extraction=extraction), reference="18", response=response).reward
        == reward
    )


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ("Paris", 1.0),
        ("paris", 1.0),
        ("PARIS ", 1.0),
        ("**Paris**", 1.0),
        ("Paris.", 1.0),
        ("Pari", 0.0),
        ("Paris, France", 0.0),
        ("not Paris", 0.0),
        ("London", 0.0),
        ("Paris or London", 0.0),
    ],
)
def test_words_are_compared_without_case_and_spacing(answer: str, reward: float) -> None:
    options = Config(comparison="text")
    assert judged(exact_answer, options, reference="Paris", response=f"Answer: {answer}").reward == reward


def test_a_float_reference_is_the_decimal_that_was_written() -> None:
    # The nearest binary fraction to 0.1 is not one tenth.
    assert judged(exact_answer, Config(), reference=0.1, response="Answer: 1/10").reward == 1.0


@pytest.mark.parametrize("reference", ["Paris", "", None, True, "12 apples", float("nan"), float("inf"), []])
def test_a_reference_that_is_no_number_is_a_bad_row_that_says_so(reference) -> None:
    verdict = judged(exact_answer, Config(), reference=reference, response="Answer: 1")
    assert (verdict.status, verdict.reason) == (Status.UNKNOWN, "bad_row")
    assert "must be a number" in verdict.detail
