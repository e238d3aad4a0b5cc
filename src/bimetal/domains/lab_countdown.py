"""Reaching a target with given numbers, each used exactly once (logic).

``3 5 8 make 6`` is answered by an expression such as ``3+8-5``. The verifier parses the expression
with a grammar of its own and computes with exact rationals, so every correct expression counts.
With ``numbers=4`` and ``target=24`` this is the game of 24.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from bimetal.core.errors import DataError
from bimetal.core.types import Demonstration, Item, JsonValue, Prompt, Services, Split, Verdict
from bimetal.data.procedural import Lab, LabOptions, Slips, Solution, distinct_found, load_lab
from bimetal.rewards.expression import parse_expression
from bimetal.rewards.grade import grade_answers
from bimetal.rewards.numeric import parse_number

NAME = "lab_countdown"

REFERENCE_FORM = 'The numbers and the target: {"numbers": [3, 5, 8], "target": 6}.'

Operation = Literal["+", "-", "*", "/"]

ALL_OPERATIONS: tuple[Operation, ...] = ("+", "-", "*", "/")

MAX_TARGET = 999

_EXPRESSION = re.compile(r"[0-9(][0-9 ()+*/\u00d7\u00f7\u2212-]*[0-9)]")


class Config(LabOptions):
    """Options of this domain."""

    numbers: int = Field(default=3, ge=2, le=4)
    """How many numbers are given."""

    largest: int = Field(default=20, ge=2, le=99)
    """Largest number given; the smallest is 1."""

    operations: tuple[Operation, ...] = Field(default=("+", "-"), min_length=1)
    """Operations the problems are made from; an answer may use all four and parentheses."""

    target: int | Literal["any"] = "any"
    """The number to reach, 1 to 999, or "any"."""

    @model_validator(mode="after")
    def _target_in_range(self) -> Config:
        if self.target != "any" and not 1 <= self.target <= MAX_TARGET:
            raise ValueError(f"target must be in 1 to 999, or 'any'; got {self.target}")
        return self


@dataclass(frozen=True, slots=True)
class Cards:
    """``Cards((3, 5, 8), 6)``."""

    numbers: tuple[int, ...]
    target: int


@dataclass(frozen=True, slots=True)
class _Term:
    # A number or a bracketed part of the answer; ``sign`` is the operation written last in it.
    value: int
    text: str
    sign: Operation | None = None


@dataclass(frozen=True, slots=True)
class _Step:
    # Which two of the remaining terms are joined; the result goes in front of the rest.
    left: int
    sign: Operation
    right: int


def load(options: Config, split: Split) -> Iterator[tuple[Prompt, tuple[Demonstration, ...]]]:
    """The problems of a split with the solver's demonstrations."""
    return load_lab(_lab(options), options, split=split)


def distinct(options: Config, limit: int = 20_000) -> int:
    """How many distinct problems this difficulty has, counted up to ``limit``."""
    return distinct_found(_lab(options), options.seed, limit=limit)


def verify(items: Sequence[Item], options: Config, services: Services) -> list[Verdict]:
    """Correct where the answer uses the numbers exactly once each and is worth the target."""
    return grade_answers(
        items, verifier=f"{NAME}/1", shape=_EXPRESSION, read_reference=_read_reference, judge=_judge
    )


def _lab(options: Config) -> Lab[Cards]:
    # The search is the slow part, and few sets of numbers exist.
    @functools.cache
    def is_solvable(cards: Cards) -> bool:
        return _search(_terms(cards), cards.target, options.operations) is not None

    return Lab(
        name=NAME,
        draw=lambda generator: _draw(options, generator, is_solvable=is_solvable),
        key=_key,
        problem=_key,
        question=lambda p: f"{' '.join(map(str, p.numbers))} make {p.target}",
        reference=lambda p: {"numbers": list(p.numbers), "target": p.target},
        difficulty=lambda p: float(len(p.numbers)),
        solve=lambda p, slips: _solve(p, slips, options.operations),
    )


def _key(problem: Cards) -> str:
    return f"{','.join(map(str, sorted(problem.numbers)))}={problem.target}"


def _draw(
    options: Config, generator: np.random.Generator, *, is_solvable: Callable[[Cards], bool]
) -> Cards | None:
    numbers = tuple(int(n) for n in generator.integers(1, options.largest + 1, size=options.numbers))
    if options.target != "any":
        solvable = is_solvable(Cards(tuple(sorted(numbers)), options.target))
        return Cards(numbers, options.target) if solvable else None
    value = numbers[0]
    for number in numbers[1:]:
        sign = options.operations[int(generator.integers(len(options.operations)))]
        joined = _joined(value, sign, number)
        if joined is None:
            return None
        value = joined
    shuffled = tuple(numbers[int(i)] for i in generator.permutation(len(numbers)))
    return Cards(shuffled, value) if 1 <= value <= MAX_TARGET else None


def _terms(cards: Cards) -> tuple[_Term, ...]:
    return tuple(_Term(number, str(number)) for number in cards.numbers)


def _joined(left: int, sign: Operation, right: int) -> int | None:
    """The value of an operation whose result is a whole number and not negative."""
    if sign == "/":
        return left // right if right and left % right == 0 else None
    value = {"+": left + right, "-": left - right, "*": left * right}[sign]
    return value if value >= 0 else None


def _search(terms: tuple[_Term, ...], target: int, operations: Sequence[Operation]) -> list[_Step] | None:
    """The first way to the target: earlier operations and earlier numbers first, whole numbers only."""
    if len(terms) == 1:
        return [] if terms[0].value == target else None
    for sign in operations:
        for left, right in itertools.permutations(range(len(terms)), 2):
            if sign in "+*" and left > right:
                continue
            step = _Step(left, sign, right)
            if _value(terms, step) is None:
                continue
            rest = _search(_join(terms, step), target, operations)
            if rest is not None:
                return [step, *rest]
    return None


def _value(terms: tuple[_Term, ...], step: _Step) -> int | None:
    return _joined(terms[step.left].value, step.sign, terms[step.right].value)


def _join(terms: tuple[_Term, ...], step: _Step) -> tuple[_Term, ...]:
    left, right = terms[step.left], terms[step.right]
    value = _value(terms, step)
    if value is None:
        raise ValueError(f"{left.value} {step.sign} {right.value} is no whole number")
    text = f"{_on_the_left(left, step.sign)}{step.sign}{_on_the_right(right, step.sign)}"
    kept = [term for index, term in enumerate(terms) if index not in (step.left, step.right)]
    return (_Term(value, text, step.sign), *kept)


def _on_the_left(term: _Term, outer: Operation) -> str:
    return f"({term.text})" if term.sign in ("+", "-") and outer in "*/" else term.text


def _on_the_right(term: _Term, outer: Operation) -> str:
    # a-(b+c) and a/(b*c) need their brackets as well.
    bound = term.sign is not None and outer in "-/"
    return f"({term.text})" if bound else _on_the_left(term, outer)


def _solve(cards: Cards, slips: Slips, operations: Sequence[Operation]) -> Solution:
    terms = _terms(cards)
    plan = _search(terms, cards.target, operations)
    if plan is None:
        raise DataError(f"{NAME}: {cards} has no solution in whole numbers with {' '.join(operations)}")
    written = list[str]()
    for planned in plan:
        # After a slip the planned operation may be impossible; the solver then adds.
        right = planned if _value(terms, planned) is not None else replace(planned, sign="+")
        useless = (None, _value(terms, right), cards.target)
        wrong = [step for step in _rivals(planned) if _value(terms, step) not in useless]
        familiar = [step for step in wrong if step.sign in operations]
        step = slips.choice(right, familiar or wrong)
        left_value, right_value = terms[step.left].value, terms[step.right].value
        written.append(f"{left_value}{step.sign}{right_value}={_value(terms, step)}")
        terms = _join(terms, step)
    return Solution(steps=tuple(written), answer=terms[0].text)


def _rivals(step: _Step) -> list[_Step]:
    same_order = [_Step(step.left, sign, step.right) for sign in ALL_OPERATIONS]
    return [*same_order, _Step(step.right, "-", step.left), _Step(step.right, "/", step.left)]


def _read_reference(reference: JsonValue) -> Cards:
    if isinstance(reference, Mapping) and set(reference) == {"numbers", "target"}:
        numbers, target = reference["numbers"], reference["target"]
        if isinstance(numbers, Sequence) and not isinstance(numbers, str):
            cards = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool) and n >= 0]
            if (
                cards
                and len(cards) == len(numbers)
                and isinstance(target, int)
                and not isinstance(target, bool)
            ):
                return Cards(tuple(cards), target)
    raise DataError(
        f'{NAME}: the reference must look like {{"numbers": [3, 5, 8], "target": 6}}; found {reference!r}'
    )


def _judge(cards: Cards, answer: str) -> bool | None:
    left, *rest = answer.split("=")
    expression = parse_expression(left)
    stated = parse_number(rest[0]) if rest else Fraction(cards.target)
    if expression is None or stated is None or len(rest) > 1:
        return None
    return (
        sorted(expression.numbers) == sorted(cards.numbers)
        and expression.value == cards.target
        and stated == cards.target
    )
