"""Looking up and adding up in a small table (tabular).

``sum red? ann 3 red; bob 7 blue; cat 5 red`` is solved by copying out the rows in order, each with
the total so far (``ann 3 red 3;bob 7 blue 3;cat 5 red 8``), so that every step looks only at its
own row, the question and the total before it. Rows in another order are the same problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from bimetal.core.errors import DataError
from bimetal.core.types import Demonstration, Item, JsonValue, Prompt, Services, Split, Verdict
from bimetal.data.procedural import Lab, LabOptions, Slips, Solution, distinct_found, load_lab
from bimetal.rewards.grade import grade_answers
from bimetal.rewards.numeric import parse_reference_integer, same_number

NAME = "lab_table"

REFERENCE_FORM = (
    'A whole number in digits ("8"), or a word of the table ("bob"); words are compared without case.'
)

NAMES = ("ann", "bob", "cat", "dan", "eve", "fay", "gus", "hal", "ivy", "joe")
COLORS = ("red", "blue", "green", "pink")

Question = Literal["lookup", "color", "sum", "count", "max"]

_WORD_OR_NUMBER = re.compile(
    r"[-+]?[0-9]+(?:\.[0-9]+)?|\b(?:" + "|".join((*NAMES, *COLORS)) + r")\b", re.IGNORECASE
)
_WORD = re.compile(r"[a-z]+")


class Config(LabOptions):
    """Options of this domain."""

    rows: int = Field(default=4, ge=2, le=len(NAMES))
    """Rows of the table."""

    largest: int = Field(default=9, ge=2, le=99)
    """Largest number in the table; the smallest is 1."""

    colors: int = Field(default=2, ge=2, le=len(COLORS))
    """How many colors occur."""

    questions: tuple[Question, ...] = Field(default=("lookup", "color", "sum", "count", "max"), min_length=1)
    """What is asked: a number by name, a color by name, or sum, count or maximum over the rows of a color."""

    least_matches: int = Field(default=2, ge=1, le=len(NAMES))
    """Rows that a sum, count or maximum runs over, at least."""

    @model_validator(mode="after")
    def _reachable(self) -> Config:
        if self.least_matches > self.rows:
            raise ValueError(f"least_matches {self.least_matches} is above rows {self.rows}")
        return self


@dataclass(frozen=True, slots=True, order=True)
class Row:
    """``Row("ann", 3, "red")``."""

    name: str
    number: int
    color: str

    def __str__(self) -> str:
        return f"{self.name} {self.number} {self.color}"


@dataclass(frozen=True, slots=True)
class Query:
    """A table, what is asked of it, and the name or color it is asked about."""

    rows: tuple[Row, ...]
    question: Question
    about: str

    def __str__(self) -> str:
        asked = {"lookup": "num", "color": "color"}.get(self.question, self.question)
        return f"{asked} {self.about}? {'; '.join(map(str, self.rows))}"

    @property
    def matches(self) -> tuple[Row, ...]:
        """The rows the answer is made from, in table order."""
        return tuple(row for row in self.rows if self.about in (row.name, row.color))


def load(options: Config, split: Split) -> Iterator[tuple[Prompt, tuple[Demonstration, ...]]]:
    """The problems of a split with the solver's demonstrations."""
    return load_lab(_lab(options), options, split=split)


def distinct(options: Config, limit: int = 20_000) -> int:
    """How many distinct problems this difficulty has, counted up to ``limit``."""
    return distinct_found(_lab(options), options.seed, limit=limit)


def verify(items: Sequence[Item], options: Config, services: Services) -> list[Verdict]:
    """Correct where the one answer line holds the number or the word of the reference."""
    return grade_answers(
        items, verifier=f"{NAME}/1", shape=_WORD_OR_NUMBER, read_reference=_read_reference, judge=_judge
    )


def _lab(options: Config) -> Lab[Query]:
    return Lab(
        name=NAME,
        draw=lambda generator: _draw(options, generator),
        key=_key,
        problem=_key,
        question=str,
        reference=lambda p: _solve(p, Slips.never()).answer,
        difficulty=lambda p: float(len(p.matches)),
        solve=_solve,
    )


def _key(problem: Query) -> str:
    return str(Query(tuple(sorted(problem.rows)), problem.question, problem.about))


def _draw(options: Config, generator: np.random.Generator) -> Query | None:
    names = [NAMES[int(i)] for i in generator.permutation(len(NAMES))[: options.rows]]
    numbers = generator.integers(1, options.largest + 1, size=options.rows)
    colors = [COLORS[int(i)] for i in generator.integers(options.colors, size=options.rows)]
    rows = tuple(Row(name, int(n), color) for name, n, color in zip(names, numbers, colors, strict=True))
    question = options.questions[int(generator.integers(len(options.questions)))]
    row = rows[int(generator.integers(options.rows))]
    if question in ("lookup", "color"):
        return Query(rows, question, row.name)
    query = Query(rows, question, row.color)
    return query if len(query.matches) >= options.least_matches else None


def _solve(query: Query, slips: Slips) -> Solution:
    if query.question in ("lookup", "color"):
        return _look_up(query, slips)
    total, written = 0, list[str]()
    for row in query.rows:
        if row in query.matches:
            total = slips.number(_with(total, row, query.question), least=1, most=99 * len(NAMES))
        written.append(f"{row} {total}")
    return Solution(steps=tuple(written), answer=str(total))


def _with(total: int, row: Row, question: Question) -> int:
    """The count, sum or maximum so far, with one more row."""
    if question == "count":
        return total + 1
    return total + row.number if question == "sum" else max(total, row.number)


def _look_up(query: Query, slips: Slips) -> Solution:
    (row,) = query.matches
    answers = {
        other: str(other.number) if query.question == "lookup" else other.color for other in query.rows
    }
    taken = slips.choice(row, [other for other in query.rows if answers[other] != answers[row]])
    return Solution(steps=(str(taken),), answer=answers[taken])


def _read_reference(reference: JsonValue) -> int | str:
    number = parse_reference_integer(reference)
    if number is not None:
        return number
    if isinstance(reference, str) and _WORD.fullmatch(reference):
        return reference
    raise DataError(
        f"{NAME}: the reference must be a whole number in digits or one lower-case word; found {reference!r}"
    )


def _judge(reference: int | str, answer: str) -> bool | None:
    if isinstance(reference, int):
        return same_number(answer, reference)
    return answer.lower() == reference if answer.isascii() and answer.isalpha() else None
