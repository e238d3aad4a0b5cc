from __future__ import annotations

import itertools
import re

import pytest

from bimetal.core.types import Split, Status
from bimetal.domains import lab_registers
from bimetal.domains.lab_registers import Config, load
from bimetal.testing.domains import judged

SMALL = {"train": 200, "selection": 20, "test": 40}

RIGHT = ["8", "8 ", "08", "+8", "8.0", "8.", "16/2", "8e0", "0.8e1", "8.00"]

NEAR_MISSES = [
    "7",
    "-8",
    "88",
    "8.5",
    "a=8",
    "8 5",
    "8;5",
    "[8]",
    "**8**",
    "eight",
    "8 or 9",
    "0x8",
    "8e1",
    "\u0668",
]


@pytest.mark.parametrize("answer", RIGHT)
def test_an_equivalent_answer_is_right(answer: str) -> None:
    assert (
        judged(lab_registers, Config(), reference="8", response=f"5 8\nAnswer: {answer}").status
        is Status.CORRECT
    )


@pytest.mark.parametrize("answer", NEAR_MISSES)
def test_a_near_miss_earns_nothing(answer: str) -> None:
    assert judged(lab_registers, Config(), reference="8", response=f"5 8\nAnswer: {answer}").reward == 0.0


def _run(question: str) -> list[dict[str, int]]:
    """The slow way: the program is read from its text and run."""
    start, *steps, _ = question.split("; ")
    state = {name: int(value) for name, value in re.findall(r"(\w)=(\d+)", start)}
    states = [state]
    for step in steps:
        state = dict(state)
        if match := re.fullmatch(r"swap (\w) (\w)", step):
            state[match[1]], state[match[2]] = state[match[2]], state[match[1]]
        else:
            target, sign, operand = re.fullmatch(r"(\w)(\+=|-=|=)(\w+)", step).groups()
            value = int(operand) if operand.isdigit() else state[operand]
            state[target] = {"=": value, "+=": state[target] + value, "-=": state[target] - value}[sign]
        states.append(state)
    return states


@pytest.mark.parametrize("registers", [2, 3])
def test_the_solver_writes_every_state_and_the_asked_value(registers: int) -> None:
    for prompt, (demonstration,) in load(Config(registers=registers, count=SMALL), Split.TRAIN):
        question = prompt.messages[0].content
        states = _run(question)
        asked = question[-2]
        steps = question.split("; ")[1:-1]
        told = [
            " ".join([step, *map(str, state.values())]) for step, state in zip(steps, states[1:], strict=True)
        ]
        written = ";".join([" ".join(map(str, states[0].values())), *told])
        assert demonstration.text == f"{written}\nAnswer: {states[-1][asked]}"
        assert prompt.reference == str(states[-1][asked])


def test_no_step_is_idle_and_no_value_leaves_its_range() -> None:
    for prompt, _ in load(Config(count=SMALL, largest=12), Split.TRAIN):
        states = _run(prompt.messages[0].content)
        assert all(before != after for before, after in itertools.pairwise(states))
        assert all(0 <= value <= 12 for state in states for value in state.values())
        assert states[0][prompt.messages[0].content[-2]] != states[-1][prompt.messages[0].content[-2]]


def test_the_difficulty_is_kept() -> None:
    for prompt, _ in load(Config(registers=3, steps=6, least_sums=4, count=SMALL), Split.TRAIN):
        start, *steps, _ = prompt.messages[0].content.split("; ")
        assert len(steps) == 6 and len(start.split(" ")) == 3
        assert sum("+=" in step or "-=" in step for step in steps) >= 4
        assert prompt.difficulty == 6.0


def test_only_the_kinds_asked_for_occur() -> None:
    for prompt, _ in load(Config(kinds=("swap", "add"), count=SMALL), Split.TRAIN):
        _, *steps, _ = prompt.messages[0].content.split("; ")
        assert all(step.startswith("swap") or "+=" in step for step in steps)


@pytest.mark.parametrize(
    "wrong", [{"steps": 2, "least_sums": 3}, {"kinds": ("swap", "set")}, {"registers": 1}]
)
def test_an_impossible_difficulty_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"least_sums|registers"):
        Config(**wrong)
