"""Problems made by a program: what every lab domain shares.

A lab domain says how to draw a problem, how to write it and how to solve it; this module draws the
distinct problems of a split and has the solver write demonstrations of a stated quality. Which
split a problem belongs to is a hash of its canonical key alone, so train, selection and test are
disjoint whatever the seeds and the difficulty of two runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import numpy as np
from pydantic import Field

from bimetal.config.options import Options
from bimetal.core.errors import ConfigError
from bimetal.core.streams import Streams, stable_hash
from bimetal.core.types import Demonstration, JsonValue, Message, Prompt, PromptId, Split

LEAST_MISSES, MISSES_PER_PROBLEM = 2_000, 10
"""A split counts as exhausted after so many draws in a row without a problem not seen before: the first
number plus the second for every problem found."""

ANSWER = "Answer: "
"""What the last line of a response starts with."""

_PLAIN_KEY = re.compile(r"[\w+*=:.,;-]{1,40}", re.ASCII)

P = TypeVar("P")
T = TypeVar("T")


class Counts(Options):
    """How many distinct problems each split holds."""

    train: int = Field(default=4_000, ge=0)
    """Problems to train on."""

    selection: int = Field(default=400, ge=0)
    """Problems to choose settings by."""

    test: int = Field(default=500, ge=0)
    """Problems for the final numbers."""

    def of(self, split: Split) -> int:
        """The count of one split."""
        return {Split.TRAIN: self.train, Split.SELECTION: self.selection, Split.TEST: self.test}[split]


class LabOptions(Options):
    """Options every lab domain has: how many problems, and how good their demonstrations are."""

    count: Counts = Counts()
    """Distinct problems per split."""

    seed: int = Field(default=0, ge=0)
    """Seed of the problems and of the solver's slips."""

    instruction: str = ""
    """Text on a line of its own after every problem; says how to answer, to a model that was not shown."""

    verbosity: Literal["terse", "full"] = "full"
    """Whether a demonstration shows its steps or the answer line alone."""

    style: Literal["plain", "chatty"] = "plain"
    """Wording of the steps: bare, or in sentences that a policy trained on bare ones would not write."""

    wrong_step_share: float = Field(default=0.0, ge=0.0, le=1.0)
    """Share of a demonstration's steps that are wrong, in [0, 1]; what follows builds on the wrong step."""

    covered_share: float = Field(default=1.0, ge=0.0, le=1.0)
    """Share of prompts that have a demonstration, in [0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """``Solution(steps=("7+5=12", "4+8+1=13"), answer="132")``."""

    steps: tuple[str, ...]
    answer: str


class Slips:
    """Decides step by step whether the solver errs, and counts how often it did."""

    def __init__(self, share: float, generator: np.random.Generator) -> None:
        self._share = share
        self._generator = generator
        self._steps = 0
        self._wrong = 0

    @classmethod
    def never(cls) -> Slips:
        """A solver that does not err."""
        return cls(0.0, Streams(seed=0).generator("slip"))

    def choice(self, right: T, wrong: Sequence[T]) -> T:
        """``right``, or at the stated rate one of ``wrong``; where ``wrong`` is empty, always ``right``."""
        self._steps += 1
        if self._share <= 0.0 or not wrong or self._generator.random() >= self._share:
            return right
        self._wrong += 1
        return wrong[int(self._generator.integers(len(wrong)))]

    def number(self, right: int, *, least: int, most: int) -> int:
        """``right``, or at the stated rate a number within 2 of it and within the bounds."""
        near = (right - 2, right - 1, right + 1, right + 2)
        return self.choice(right, [n for n in near if least <= n <= most])

    @property
    def quality(self) -> float:
        """One minus the share of wrong steps; 1 where there was no step."""
        return 1.0 - self._wrong / self._steps if self._steps else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab(Generic[P]):
    """What a lab domain tells this module; ``P`` is the domain's own record of a problem.

    ``draw`` returns ``None`` for a draw it rejects. ``key`` names one prompt; ``problem`` is equal for
    prompts that are the same problem in another wording, and decides the split.
    """

    name: str
    draw: Callable[[np.random.Generator], P | None]
    key: Callable[[P], str]
    problem: Callable[[P], str]
    question: Callable[[P], str]
    reference: Callable[[P], JsonValue]
    difficulty: Callable[[P], float]
    solve: Callable[[P, Slips], Solution]


def split_of(domain: str, key: str) -> Split:
    """The split a problem belongs to, whatever the seed: 80 % train, 8 % selection, 12 % test."""
    bucket = stable_hash("split", domain, key) % 100
    if bucket < 80:
        return Split.TRAIN
    return Split.SELECTION if bucket < 88 else Split.TEST


def load_lab(
    lab: Lab[P], options: LabOptions, *, split: Split
) -> Iterator[tuple[Prompt, tuple[Demonstration, ...]]]:
    """The problems of a split with their demonstrations.

    Raises:
        ConfigError: The difficulty leaves fewer distinct problems than the split should hold.
    """
    wanted = options.count.of(split)
    problems = _draw_split(lab, options.seed, wanted, split)
    if len(problems) < wanted:
        raise ConfigError(
            f"{lab.name}: count.{split.value} is {wanted}, but only {len(problems)} distinct prompts of "
            f"this difficulty were found in the {split.value} split; lower the count or widen the difficulty"
        )
    return (_row(lab, options, key, problem) for key, problem in problems.items())


def distinct_found(lab: Lab[P], seed: int, *, limit: int) -> int:
    """How many distinct problems drawing finds, all splits together: all there are, or ``limit``."""
    generator = Streams(seed=seed).generator("problem", lab.name, "all")
    return len(_draw_distinct(lab, lab.problem, generator=generator, limit=limit))


def _draw_split(lab: Lab[P], seed: int, wanted: int, split: Split) -> dict[str, P]:
    def key(problem: P) -> str | None:
        return lab.key(problem) if split_of(lab.name, lab.problem(problem)) is split else None

    generator = Streams(seed=seed).generator("problem", lab.name, split.value)
    return _draw_distinct(lab, key, generator=generator, limit=wanted)


def _draw_distinct(
    lab: Lab[P], key: Callable[[P], str | None], *, generator: np.random.Generator, limit: int
) -> dict[str, P]:
    """Problems by key, in the order they were first drawn; those without a key are passed over."""
    found: dict[str, P] = {}
    misses = 0
    while len(found) < limit and misses < LEAST_MISSES + MISSES_PER_PROBLEM * len(found):
        misses += 1
        problem = lab.draw(generator)
        name = None if problem is None else key(problem)
        if problem is not None and name is not None and name not in found:
            found[name] = problem
            misses = 0
    return found


def _row(lab: Lab[P], options: LabOptions, key: str, problem: P) -> tuple[Prompt, tuple[Demonstration, ...]]:
    name = key if _PLAIN_KEY.fullmatch(key) else f"{stable_hash(key):032x}"
    question = lab.question(problem)
    prompt = Prompt(
        id=PromptId(f"{lab.name}/{name}"),
        domain=lab.name,
        messages=(Message(role="user", content="\n".join(filter(None, (question, options.instruction)))),),
        reference=lab.reference(problem),
        difficulty=lab.difficulty(problem),
        problem=lab.problem(problem),
        source="lab",
    )
    streams = Streams(seed=options.seed)
    if streams.generator("covered", lab.name, key).random() >= options.covered_share:
        return prompt, ()
    slips = streams.generator("slip", lab.name, key)
    text, quality = _demonstrate(lab, options, problem, slips)
    return prompt, (Demonstration(prompt_id=prompt.id, text=text, author="solver", quality=quality),)


def _demonstrate(
    lab: Lab[P], options: LabOptions, problem: P, generator: np.random.Generator
) -> tuple[str, float]:
    if options.verbosity == "full":
        slips = Slips(options.wrong_step_share, generator)
        solution = lab.solve(problem, slips)
        return written(solution, style=options.style), slips.quality
    right = lab.solve(problem, Slips.never()).answer
    if generator.random() >= options.wrong_step_share:
        return ANSWER + right, 1.0
    # The answer is the only step shown, so it alone must be wrong at the stated rate.
    for _ in range(20):
        answer = lab.solve(problem, Slips(1.0, generator)).answer
        if answer != right:
            return ANSWER + answer, 0.0
    return ANSWER + right, 1.0


def written(solution: Solution, *, style: Literal["plain", "chatty"]) -> str:
    r"""The steps and the answer line as text.

    >>> written(Solution(steps=("7+5=12", "4+8+1=13"), answer="132"), style="plain")
    '7+5=12;4+8+1=13\nAnswer: 132'
    >>> written(Solution(steps=("7+5=12", "4+8+1=13"), answer="132"), style="chatty")
    'Let me see. First, 7+5=12. Then 4+8+1=13. That is all.\nAnswer: 132'
    """
    if not solution.steps:
        return ANSWER + solution.answer
    if style == "plain":
        return ";".join(solution.steps) + "\n" + ANSWER + solution.answer
    first, *rest = solution.steps
    told = "".join(f" Then {step}." for step in rest)
    return f"Let me see. First, {first}.{told} That is all.\n{ANSWER}{solution.answer}"
