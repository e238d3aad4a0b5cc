"""Addition and subtraction of whole numbers with carries (math).

``47+85=?`` is solved column by column, the last digits first: each step adds two digits and the
carry, which is the tens digit of the step before (``7+5+0=12;4+8+1=13``). A difference writes what
it subtracts from with its tens digit, and the next column gives back what was borrowed
(``12-5-0=7;04-1-1=2`` for 42-15). So all steps have one length, and a small model finds each digit
at a fixed distance.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from bimetal.core.errors import DataError
from bimetal.core.types import Demonstration, Item, JsonValue, Prompt, Services, Split, Verdict
from bimetal.data.procedural import Lab, LabOptions, Slips, Solution, distinct_found, load_lab
from bimetal.rewards.extract import NUMBER
from bimetal.rewards.grade import grade_answers
from bimetal.rewards.numeric import parse_reference_integer, same_number

NAME = "lab_arithmetic"

REFERENCE_FORM = 'The whole number that is the result, as decimal digits: "132".'


class Config(LabOptions):
    """Options of this domain."""

    operations: tuple[Literal["add", "subtract"], ...] = Field(default=("add", "subtract"), min_length=1)
    """Which operations are asked; results are never negative."""

    least_digits: int = Field(default=3, ge=1, le=12)
    """Digits of the shortest operand."""

    most_digits: int = Field(default=3, ge=1, le=12)
    """Digits of the longest operand."""

    least_carries: int = Field(default=1, ge=0, le=11)
    """Carries or borrows into another column that every problem has at least."""

    @model_validator(mode="after")
    def _reachable(self) -> Config:
        if self.least_digits > self.most_digits:
            raise ValueError(f"least_digits {self.least_digits} is above most_digits {self.most_digits}")
        if self.least_carries >= self.most_digits:
            raise ValueError(
                f"least_carries {self.least_carries} must be below most_digits {self.most_digits}"
            )
        return self


@dataclass(frozen=True, slots=True)
class Sum:
    """``Sum(47, "+", 85)``."""

    left: int
    sign: Literal["+", "-"]
    right: int

    @property
    def value(self) -> int:
        """The result."""
        return self.left + self.right if self.sign == "+" else self.left - self.right


def load(options: Config, split: Split) -> Iterator[tuple[Prompt, tuple[Demonstration, ...]]]:
    """The problems of a split with the solver's demonstrations."""
    return load_lab(_lab(options), options, split=split)


def distinct(options: Config, limit: int = 20_000) -> int:
    """How many distinct problems this difficulty has, counted up to ``limit``."""
    return distinct_found(_lab(options), options.seed, limit=limit)


def verify(items: Sequence[Item], options: Config, services: Services) -> list[Verdict]:
    """Correct where the one answer line holds a number equal to the reference."""
    return grade_answers(
        items, verifier=f"{NAME}/1", shape=NUMBER, read_reference=_read_reference, judge=_judge
    )


def _lab(options: Config) -> Lab[Sum]:
    return Lab(
        name=NAME,
        draw=lambda generator: _draw(options, generator),
        key=_key,
        problem=_key,
        question=lambda p: f"{p.left}{p.sign}{p.right}=?",
        reference=lambda p: str(p.value),
        difficulty=lambda p: float(_carries(p)),
        solve=_solve,
    )


def _draw(options: Config, generator: np.random.Generator) -> Sum | None:
    operation = options.operations[int(generator.integers(len(options.operations)))]
    left, right = _draw_operand(options, generator), _draw_operand(options, generator)
    low, high = min(left, right), max(left, right)
    problem = Sum(left, "+", right) if operation == "add" else Sum(high, "-", low)
    return problem if _carries(problem) >= options.least_carries else None


def _draw_operand(options: Config, generator: np.random.Generator) -> int:
    digits = int(generator.integers(options.least_digits, options.most_digits + 1))
    return int(generator.integers(0 if digits == 1 else 10 ** (digits - 1), 10**digits))


def _key(problem: Sum) -> str:
    # 47+85 and 85+47 are one problem.
    swapped = problem.sign == "+" and problem.left > problem.right
    left, right = (problem.right, problem.left) if swapped else (problem.left, problem.right)
    return f"{left}{problem.sign}{right}"


def _columns(problem: Sum) -> list[tuple[int, int]]:
    width = max(len(str(problem.left)), len(str(problem.right)))
    top, bottom = str(problem.left).zfill(width), str(problem.right).zfill(width)
    return [(int(x), int(y)) for x, y in zip(reversed(top), reversed(bottom), strict=True)]


def _carries(problem: Sum) -> int:
    carry = count = 0
    for x, y in _columns(problem)[:-1]:
        carry = int(x + y + carry > 9) if problem.sign == "+" else int(x - y - carry < 0)
        count += carry
    return count


def _solve(problem: Sum, slips: Slips) -> Solution:
    return _add(problem, slips) if problem.sign == "+" else _subtract(problem, slips)


def _add(problem: Sum, slips: Slips) -> Solution:
    steps, digits, carry = list[str](), "", 0
    for x, y in _columns(problem):
        total = slips.number(x + y + carry, least=0, most=19)
        steps.append(f"{x}+{y}+{carry}={total:02d}")
        digits, carry = f"{total % 10}{digits}", total // 10
    return Solution(steps=tuple(steps), answer=str(int(f"{carry}{digits}")))


def _subtract(problem: Sum, slips: Slips) -> Solution:
    steps, digits, borrow = list[str](), "", 0
    for x, y in _columns(problem):
        top = x if x - y - borrow >= 0 else x + 10
        rest = slips.number(top - y - borrow, least=0, most=9)
        steps.append(f"{top:02d}-{y}-{borrow}={rest}")
        digits, borrow = f"{rest}{digits}", int(top != x)
    return Solution(steps=tuple(steps), answer=str(int(digits)))


def _read_reference(reference: JsonValue) -> int:
    value = parse_reference_integer(reference)
    if value is None:
        raise DataError(f"{NAME}: the reference must be a whole number in digits; found {reference!r}")
    return value


def _judge(reference: int, answer: str) -> bool | None:
    return same_number(answer, reference)
