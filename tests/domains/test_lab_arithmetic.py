from __future__ import annotations

import pytest

from bimetal.core.errors import ConfigError
from bimetal.core.types import Split, Status
from bimetal.domains import lab_arithmetic
from bimetal.domains.lab_arithmetic import Config, load
from bimetal.testing.domains import judged

SMALL = {"train": 200, "selection": 20, "test": 40}

RIGHT = [
    "Answer: 132",
    "Answer: 132\n",
    "Answer: 132  ",
    "Answer: 132\r\n",
    "Answer: 132.",
    "Answer: 132.0",
    "Answer: +132",
    "Answer: 0132",
    "Answer: 264/2",
    "Answer: 1.32e2",
    "7+5=12;4+8+1=13\nAnswer: 132",
    "<think>Answer: 131</think>\nAnswer: 132",
]

NEAR_MISSES = [
    "Answer: 131",
    "Answer: 1320",
    "Answer: 13",
    "Answer: 32",
    "Answer: -132",
    "Answer: 132.5",
    "Answer: 1,32",
    "Answer: 132 or 133",
    "Answer: 47+85",
    "Answer: **132**",
    "answer: 132",
    "Answer:132",
    " Answer: 132",
    "132",
    "The answer is 132",
    "Answer: 131\nAnswer: 132",
    "Answer: 132\nThat was easy.",
    "Answer: 132\nAnswer: 132",
    "<think>Answer: 132",
    "Answer: \u0661\u0663\u0662",
]


@pytest.mark.parametrize("response", RIGHT)
def test_an_equivalent_answer_is_right(response: str) -> None:
    verdict = judged(lab_arithmetic, Config(), reference="132", response=response)
    assert (verdict.status, verdict.reward, verdict.reason) == (Status.CORRECT, 1.0, "ok")


@pytest.mark.parametrize("response", NEAR_MISSES)
def test_a_near_miss_earns_nothing(response: str) -> None:
    verdict = judged(lab_arithmetic, Config(), reference="132", response=response)
    assert verdict.reward == 0.0
    assert verdict.status in (Status.WRONG, Status.UNPARSEABLE)


@pytest.mark.parametrize(
    ("response", "status", "reason", "lenient", "extracted"),
    [
        ("Answer: 131", Status.WRONG, "ok", 0.0, "131"),
        ("The answer is **132**.", Status.UNPARSEABLE, "unparseable", 1.0, "132"),
        ("so 132", Status.UNPARSEABLE, "unparseable", 1.0, "132"),
        ("Answer: many", Status.UNPARSEABLE, "unparseable", 0.0, "many"),
        ("I do not know", Status.UNPARSEABLE, "no_answer", 0.0, None),
        ("<think>132", Status.UNPARSEABLE, "no_answer", 0.0, None),
    ],
)
def test_a_verdict_says_whether_form_or_task_was_missed(response, status, reason, lenient, extracted) -> None:
    verdict = judged(lab_arithmetic, Config(), reference="132", response=response)
    assert (verdict.status, verdict.reason, verdict.extracted) == (status, reason, extracted)
    assert dict(verdict.parts) == {"strict": 0.0, "lenient": lenient}


def _by_counting(question: str) -> int:
    """The slow way: one step of one for each unit of the right operand."""
    sign = "+" if "+" in question else "-"
    left, right = question.removesuffix("=?").split(sign)
    value = int(left)
    for _ in range(int(right)):
        value = value + 1 if sign == "+" else value - 1
    return value


def test_the_solver_is_right() -> None:
    for prompt, (demonstration,) in load(Config(count=SMALL), Split.TRAIN):
        value = _by_counting(prompt.messages[0].content)
        assert prompt.reference == str(value)
        assert demonstration.text.endswith(f"\nAnswer: {value}")


def test_every_step_of_a_faultless_demonstration_is_true() -> None:
    for _, (demonstration,) in load(Config(count=SMALL), Split.TRAIN):
        for step in demonstration.text.split("\n")[0].split(";"):
            left, right = step.split("=")
            terms = left.replace("-", "+-").split("+")
            assert sum(int(term) for term in terms) == int(right), step


def test_two_demonstrations_by_hand() -> None:
    texts = {p.messages[0].content: d[0].text for p, d in load(Config(count=SMALL), Split.TRAIN)}
    # 3+3=6; 5+7=12 carries 1 into 6+6+1=13.
    assert texts["653+673=?"] == "3+3+0=06;5+7+0=12;6+6+1=13\nAnswer: 1326"
    # 0-9 borrows ten: 10-9=1; 6-6-1 borrows again: 16-6-1=9; 5-2-1=2.
    assert texts["560-269=?"] == "10-9-0=1;16-6-1=9;05-2-1=2\nAnswer: 291"


def test_all_steps_have_one_length() -> None:
    for _, (demonstration,) in load(Config(count=SMALL), Split.TRAIN):
        assert {len(step) for step in demonstration.text.split("\n")[0].split(";")} == {8}


@pytest.mark.parametrize("digits", [1, 2, 3, 5])
def test_the_number_of_digits_is_kept(digits: int) -> None:
    options = Config(
        least_digits=digits,
        most_digits=digits,
        least_carries=0,
        operations=("add",),
        count={"train": 20, "selection": 2, "test": 3},
    )
    for prompt, _ in load(options, Split.TRAIN):
        assert [len(n) for n in prompt.messages[0].content.removesuffix("=?").split("+")] == [digits, digits]


def test_the_carries_are_at_least_those_asked_for() -> None:
    options = Config(least_digits=3, most_digits=3, least_carries=2, operations=("subtract",), count=SMALL)
    for prompt, _ in load(options, Split.TRAIN):
        left, right = prompt.messages[0].content.removesuffix("=?").split("-")
        # With two borrows, the last one and the last two digits of the left operand are the smaller ones.
        assert int(left[-1]) < int(right[-1]) and int(left[-2:]) < int(right[-2:])


def test_results_are_never_negative() -> None:
    options = Config(operations=("subtract",), count=SMALL)
    assert all(int(str(prompt.reference)) >= 0 for prompt, _ in load(options, Split.TRAIN))


def test_both_orders_of_a_sum_are_one_problem() -> None:
    options = Config(
        least_digits=2, most_digits=2, operations=("add",), count={"train": 500, "selection": 0, "test": 0}
    )
    seen = [p.messages[0].content.removesuffix("=?").split("+") for p, _ in load(options, Split.TRAIN)]
    assert len({tuple(sorted(pair)) for pair in seen}) == len(seen)


def test_too_few_problems_is_an_error_with_the_number_found() -> None:
    # One-digit sums: 55 pairs in all, none of which has a carry into another column.
    options = Config(
        least_digits=1,
        most_digits=1,
        least_carries=0,
        operations=("add",),
        count={"train": 60, "selection": 0, "test": 0},
    )
    with pytest.raises(ConfigError, match=r"count.train is 60, but only \d\d distinct"):
        load(options, Split.TRAIN)
    assert lab_arithmetic.distinct(options) == 55


@pytest.mark.parametrize(
    "wrong",
    [{"least_digits": 3, "most_digits": 2}, {"most_digits": 3, "least_carries": 3}, {"operations": ()}],
)
def test_an_impossible_difficulty_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"least_digits|least_carries|operations"):
        Config(**wrong)
