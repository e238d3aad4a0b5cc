from __future__ import annotations

import itertools
import re

import pytest

from bimetal.core.types import Split, Status
from bimetal.domains import lab_countdown
from bimetal.domains.lab_countdown import Config, load
from bimetal.testing.domains import judged

SMALL = {"train": 200, "selection": 20, "test": 40}
REFERENCE = {"numbers": [3, 5, 8], "target": 6}

RIGHT = [
    "3+8-5",
    "8-5+3",
    "3-5+8",
    "8+3-5",
    "(8+3)-5",
    "3 + 8 - 5",
    "((3)+(8))-5",
    "8-(5-3)",
    "3-(5-8)",
    "3+8-5=6",
    "3 + 8 - 5 = 6",
    "3+8\u22125",
]

NEAR_MISSES = [
    "3+8+5",
    "3+8-6",
    "3+8",
    "3+8-5-0",
    "3+3",
    "6",
    "3*8-5*3",
    "3+8-5=7",
    "3+8-5=6=6",
    "6=3+8-5",
    "-5+3+8",
    "3+8-5)",
    "(3+8-5",
    "38-5",
    "3 8 - 5 +",
    "3+8--5",
    "3.0+8-5",
    "8-5+3/1",
    "3+8-5+0*1",
    "**3+8-5**",
    "3+8-5 apples",
    "3+8-5 or 3+8+5",
    "8/(5-5)+3",
]


@pytest.mark.parametrize("expression", RIGHT)
def test_any_correct_expression_counts(expression: str) -> None:
    verdict = judged(lab_countdown, Config(), reference=REFERENCE, response=f"Answer: {expression}")
    assert verdict.status is Status.CORRECT


@pytest.mark.parametrize("expression", NEAR_MISSES)
def test_a_near_miss_earns_nothing(expression: str) -> None:
    verdict = judged(lab_countdown, Config(), reference=REFERENCE, response=f"Answer: {expression}")
    assert verdict.reward == 0.0


def test_fractions_on_the_way_are_exact() -> None:
    # 8 / (3 - 8/3) = 8 / (1/3) = 24; a float would give 23.999999999999993.
    reference = {"numbers": [3, 3, 8, 8], "target": 24}
    verdict = judged(lab_countdown, Config(), reference=reference, response="Answer: 8/(3-8/3)")
    assert verdict.status is Status.CORRECT


def test_division_by_zero_is_wrong_and_not_an_error() -> None:
    reference = {"numbers": [3, 3, 8], "target": 1}
    assert (
        judged(lab_countdown, Config(), reference=reference, response="Answer: 8/(3-3)").status
        is Status.WRONG
    )


def test_an_expression_in_running_text_counts_leniently_alone() -> None:
    verdict = judged(lab_countdown, Config(), reference=REFERENCE, response="I found that 3+8-5 works")
    assert (verdict.reward, dict(verdict.parts)) == (0.0, {"strict": 0.0, "lenient": 1.0})


@pytest.mark.parametrize(
    "reference", ["6", {"numbers": [], "target": 6}, {"numbers": [1, True], "target": 2}, {"numbers": [1, 2]}]
)
def test_a_reference_of_another_form_is_a_bad_row(reference) -> None:
    assert judged(lab_countdown, Config(), reference=reference, response="Answer: 1+2").reason == "bad_row"


def _reachable(numbers: list[int], target: int) -> bool:
    """The slow way: every order, every operation, grouped from the left or from the right."""
    operations = [lambda a, b: a + b, lambda a, b: a - b]
    for a, b, c in itertools.permutations(numbers):
        for f, g in itertools.product(operations, repeat=2):
            if target in (g(f(a, b), c), f(a, g(b, c))):
                return True
    return False


def test_every_problem_is_reachable_and_the_solver_reaches_it() -> None:
    for prompt, (demonstration,) in load(Config(count=SMALL), Split.TRAIN):
        numbers, target = prompt.reference["numbers"], prompt.reference["target"]
        assert _reachable(numbers, target)
        expression = demonstration.text.rpartition("Answer: ")[2]
        assert re.fullmatch(r"[0-9()+-]+", expression)
        assert sorted(map(int, re.findall(r"[0-9]+", expression))) == sorted(numbers)
        # Only digits, brackets, plus and minus, written by our own solver.
        assert eval(expression) == target


def test_every_step_is_true_and_starts_from_numbers_at_hand() -> None:
    for prompt, (demonstration,) in load(Config(count=SMALL), Split.TRAIN):
        held = list(prompt.reference["numbers"])
        for step in demonstration.text.split("\n")[0].split(";"):
            left, sign, right, value = re.fullmatch(r"(\d+)([+-])(\d+)=(\d+)", step).groups()
            held.remove(int(left))
            held.remove(int(right))
            assert int(left) + int(sign + right) == int(value)
            held.append(int(value))
        assert held == [prompt.reference["target"]]


def test_the_game_of_24() -> None:
    options = Config(
        numbers=4,
        target=24,
        largest=13,
        operations=("+", "-", "*", "/"),
        count={"train": 40, "selection": 4, "test": 6},
    )
    for prompt, (demonstration,) in load(options, Split.TRAIN):
        assert prompt.reference["target"] == 24 and len(prompt.reference["numbers"]) == 4
        assert (
            judged(lab_countdown, options, reference=prompt.reference, response=demonstration.text).reward
            == 1.0
        )


def test_numbers_stay_in_range_and_their_order_makes_no_other_problem() -> None:
    rows = list(load(Config(count={"train": 600, "selection": 0, "test": 0}, largest=15), Split.TRAIN))
    assert all(1 <= n <= 15 for prompt, _ in rows for n in prompt.reference["numbers"])
    keys = {(*sorted(prompt.reference["numbers"]), prompt.reference["target"]) for prompt, _ in rows}
    assert len(keys) == len(rows)


@pytest.mark.parametrize("target", [0, 1000, -24])
def test_a_target_out_of_range_is_refused(target: int) -> None:
    with pytest.raises(ValueError, match="1 to 999"):
        Config(target=target)
