"""Knights and knaves: who is honest, if liars say only false things (logic).

``A: B lies. B: A honest or B lies. Who is honest?`` is answered by ``A yes B no``. Every puzzle has
exactly one solution, proved by trying all assignments. The solver tries them in a fixed order, from
everybody honest (``yy``) to everybody lying (``nn``), and names the first person whose words do not
fit, until all fit.

With two people there are only 72 patterns of statements, so names are drawn from the whole alphabet
and belong to the problem. With three or more, puzzles that differ only in who bears which name are
one problem, so that a test problem is never a renamed training problem.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import Field

from bimetal.core.errors import DataError
from bimetal.core.types import Demonstration, Item, JsonValue, Prompt, Services, Split, Verdict
from bimetal.data.procedural import Lab, LabOptions, Slips, Solution, distinct_found, load_lab
from bimetal.rewards.grade import grade_answers

NAME = "lab_knights"

REFERENCE_FORM = 'Every person with yes (honest) or no (lies), in the order of the names: "A yes B no".'

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

Kind = Literal["is", "and", "or", "same", "differ"]

Assignment = tuple[bool, ...]

_HONEST = ("yes", "honest", "knight", "truthful")
_LIAR = ("no", "lies", "knave", "liar")
_VALUE = "|".join((*_HONEST, *_LIAR))
_CLAIM = re.compile(rf"([A-Z])(?:\s*[:=]\s*|\s+is\s+(?:an?\s+)?|\s+)({_VALUE})\b", re.ASCII)
_JOIN = re.compile(r"\s*(?:[,;]|\.)?\s*(?:and\s+)?", re.ASCII)
_SHAPE = re.compile(rf"{_CLAIM.pattern}(?:{_JOIN.pattern}{_CLAIM.pattern})*", re.ASCII)
_REFERENCE = re.compile(r"[A-Z] (?:yes|no)(?: [A-Z] (?:yes|no))*")


class Config(LabOptions):
    """Options of this domain."""

    people: int = Field(default=3, ge=2, le=4)
    """How many people speak; each makes one statement."""

    kinds: tuple[Kind, ...] = Field(default=("is", "and", "or", "same", "differ"), min_length=1)
    """Which statements occur: about one person, about two joined by "and" or "or", alike, unlike."""


@dataclass(frozen=True, slots=True)
class Statement:
    """``Statement("or", ((0, True), (1, False)))`` is "A honest or B lies".

    For "same" and "differ" only the people count.
    """

    kind: Kind
    claims: tuple[tuple[int, bool], ...]

    def is_true(self, honest: Assignment) -> bool:
        """Whether the statement holds if exactly these people are honest."""
        if self.kind in ("same", "differ"):
            (first, _), (second, _) = self.claims
            return (honest[first] == honest[second]) == (self.kind == "same")
        held = [honest[person] == value for person, value in self.claims]
        return any(held) if self.kind == "or" else all(held)

    def text(self, names: Sequence[str]) -> str:
        """The statement in words."""
        if self.kind in ("same", "differ"):
            first, second = (names[person] for person, _ in self.claims)
            return f"{first} {'like' if self.kind == 'same' else 'unlike'} {second}"
        return f" {self.kind} ".join(
            f"{names[person]} {'honest' if value else 'lies'}" for person, value in self.claims
        )


@dataclass(frozen=True, slots=True)
class Puzzle:
    """Names in alphabetical order, and what each says."""

    names: tuple[str, ...]
    statements: tuple[Statement, ...]

    def __str__(self) -> str:
        told = (f"{n}: {s.text(self.names)}." for n, s in zip(self.names, self.statements, strict=True))
        return " ".join([*told, "Who is honest?"])


def load(options: Config, split: Split) -> Iterator[tuple[Prompt, tuple[Demonstration, ...]]]:
    """The problems of a split with the solver's demonstrations."""
    return load_lab(_lab(options), options, split=split)


def distinct(options: Config, limit: int = 20_000) -> int:
    """How many distinct problems this difficulty has, counted up to ``limit``."""
    return distinct_found(_lab(options), options.seed, limit=limit)


def verify(items: Sequence[Item], options: Config, services: Services) -> list[Verdict]:
    """Correct where the answer names every person exactly once, each with the right value."""
    return grade_answers(
        items, verifier=f"{NAME}/1", shape=_SHAPE, read_reference=_read_reference, judge=_judge
    )


def solutions(puzzle: Puzzle) -> list[Assignment]:
    """All assignments that fit: everybody honest says something true, everybody else something false."""
    return [honest for honest in _assignments(len(puzzle.names)) if _misfit(puzzle, honest) is None]


def _lab(options: Config) -> Lab[Puzzle]:
    renamed = functools.cache(_renamed)
    return Lab(
        name=NAME,
        draw=_drawing(options),
        key=str,
        problem=lambda p: _canonical(p, renamed) if options.people > 2 else str(p),
        question=str,
        reference=lambda p: _answer(p, solutions(p)[0]),
        difficulty=lambda p: float(len(p.names)),
        solve=_solve,
    )


def _assignments(people: int) -> Iterator[Assignment]:
    return itertools.product((True, False), repeat=people)


def _misfit(puzzle: Puzzle, honest: Assignment) -> int | None:
    """The first person whose words do not fit the assignment."""
    for person, statement in enumerate(puzzle.statements):
        if statement.is_true(honest) != honest[person]:
            return person
    return None


def _drawing(options: Config) -> Callable[[np.random.Generator], Puzzle | None]:
    """The function that draws; for each statement it knows beforehand which assignments fit."""
    everybody = list(_assignments(options.people))
    menus = [
        [
            [
                (s, {h for h in everybody if s.is_true(h) == h[speaker]})
                for s in _statements(kind, speaker, options)
            ]
            for kind in options.kinds
        ]
        for speaker in range(options.people)
    ]
    pool = len(LETTERS) if options.people == 2 else options.people

    def draw(generator: np.random.Generator) -> Puzzle | None:
        said, left = list[Statement](), set(everybody)
        for menu, (kind_share, share) in zip(
            menus, generator.random((options.people, 2)).tolist(), strict=True
        ):
            choices = menu[int(kind_share * len(menu))]
            statement, fitting = choices[int(share * len(choices))]
            said.append(statement)
            left &= fitting
        if len(left) != 1:
            return None
        letters = sorted(int(i) for i in generator.permutation(pool)[: options.people])
        return Puzzle(tuple(LETTERS[i] for i in letters), tuple(said))

    return draw


def _statements(kind: Kind, speaker: int, options: Config) -> list[Statement]:
    """Everything of one kind that a speaker may say; nobody calls himself honest or a liar."""
    people, values = range(options.people), (True, False)
    if kind == "is":
        return [Statement(kind, ((p, value),)) for p in people if p != speaker for value in values]
    pairs = itertools.combinations(people, 2)
    if kind in ("same", "differ"):
        return [Statement(kind, ((p, True), (q, True))) for p, q in pairs]
    return [Statement(kind, ((p, x), (q, y))) for p, q in pairs for x in values for y in values]


def _canonical(puzzle: Puzzle, renamed: Callable[[Statement, tuple[int, ...]], str]) -> str:
    """The text of the puzzle under that renaming of its people which sorts first."""
    texts = list[tuple[str, ...]]()
    for order in itertools.permutations(range(len(puzzle.names))):
        said = {order[speaker]: renamed(s, order) for speaker, s in enumerate(puzzle.statements)}
        texts.append(tuple(said[person] for person in range(len(order))))
    return ". ".join(min(texts))


def _renamed(statement: Statement, order: tuple[int, ...]) -> str:
    claims = tuple(sorted((order[person], value) for person, value in statement.claims))
    return Statement(statement.kind, claims).text(LETTERS)


def _solve(puzzle: Puzzle, slips: Slips) -> Solution:
    written, honest = list[str](), (True,) * len(puzzle.names)
    for honest in _assignments(len(puzzle.names)):
        misfit = _misfit(puzzle, honest)
        right = "ok" if misfit is None else puzzle.names[misfit]
        # A solver errs by accepting what does not fit, or by refusing what does.
        noted = slips.choice(right, puzzle.names if misfit is None else ("ok",))
        written.append(f"{''.join('y' if value else 'n' for value in honest)} {noted}")
        if noted == "ok":
            break
    return Solution(steps=tuple(written), answer=_answer(puzzle, honest))


def _answer(puzzle: Puzzle, honest: Assignment) -> str:
    return " ".join(f"{n} {'yes' if value else 'no'}" for n, value in zip(puzzle.names, honest, strict=True))


def _read_reference(reference: JsonValue) -> Mapping[str, bool]:
    if isinstance(reference, str) and _REFERENCE.fullmatch(reference):
        words = reference.split(" ")
        values = dict(zip(words[::2], (word == "yes" for word in words[1::2]), strict=True))
        if 2 * len(values) == len(words):
            return values
    raise DataError(f'{NAME}: the reference must look like "A yes B no", each name once; found {reference!r}')


def _judge(reference: Mapping[str, bool], answer: str) -> bool | None:
    claims, position = list[tuple[str, bool]](), 0
    while position < len(answer):
        match = _CLAIM.match(answer, position)
        if match is None:
            return None
        claims.append((match[1], match[2] in _HONEST))
        join = _JOIN.match(answer, match.end())
        position = len(answer) if join is None else join.end()
    return len(claims) == len(reference) and dict(claims) == reference
