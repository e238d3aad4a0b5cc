"""Following a small program through the states of its registers (simulation).

``a=3 b=5; a+=b; swap a b; b-=2; a?`` is solved by writing the registers, then each step with all
registers after it (``3 5;a+=b 8 5;swap a b 5 8;b-=2 5 6``), so that no step needs to be counted off
and every state stands right behind the one before.
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

NAME = "lab_registers"

REFERENCE_FORM = 'The final value of the asked register, as decimal digits: "8".'

Kind = Literal["set", "copy", "add", "subtract", "swap"]

REGISTERS = "abcd"


class Config(LabOptions):
    """Options of this domain."""

    registers: int = Field(default=2, ge=2, le=4)
    """How many registers the program has."""

    steps: int = Field(default=3, ge=1, le=20)
    """How many steps the program has."""

    largest: int = Field(default=19, ge=9, le=999)
    """Largest value any register may take on the way; the smallest is 0."""

    kinds: tuple[Kind, ...] = Field(default=("set", "copy", "add", "subtract", "swap"), min_length=1)
    """Which steps occur."""

    least_sums: int = Field(default=2, ge=0, le=20)
    """Steps that add or subtract, at least; every step of a problem changes the state."""

    @model_validator(mode="after")
    def _reachable(self) -> Config:
        if self.least_sums > self.steps:
            raise ValueError(f"least_sums {self.least_sums} is above steps {self.steps}")
        if self.least_sums and not {"add", "subtract"} & set(self.kinds):
            raise ValueError("least_sums asks for sums, but kinds has neither add nor subtract; set it to 0")
        return self


State = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """``Step("add", 0, 1)`` is ``a+=b``; ``Step("add", 0, None, 3)`` is ``a+=3``."""

    kind: Kind
    target: int
    source: int | None
    number: int = 0

    def __str__(self) -> str:
        target = REGISTERS[self.target]
        other = str(self.number) if self.source is None else REGISTERS[self.source]
        if self.kind == "swap":
            return f"swap {target} {other}"
        return f"{target}{ {'add': '+=', 'subtract': '-='}.get(self.kind, '=') }{other}"


@dataclass(frozen=True, slots=True)
class Program:
    """Initial values, steps, and which register is asked for."""

    start: State
    steps: tuple[Step, ...]
    asked: int

    def __str__(self) -> str:
        start = " ".join(f"{name}={value}" for name, value in zip(REGISTERS, self.start, strict=False))
        return "; ".join([start, *map(str, self.steps), f"{REGISTERS[self.asked]}?"])


def load(options: Config, split: Split) -> Iterator[tuple[Prompt, tuple[Demonstration, ...]]]:
    """The problems of a split with the solver's demonstrations."""
    return load_lab(_lab(options), options, split=split)


def distinct(options: Config, limit: int = 20_000) -> int:
    """How many distinct problems this difficulty has, counted up to ``limit``."""
    return distinct_found(_lab(options), options.seed, limit=limit)


def verify(items: Sequence[Item], options: Config, services: Services) -> list[Verdict]:
    """Correct where the one answer line holds a number equal to the final value."""
    return grade_answers(
        items, verifier=f"{NAME}/1", shape=NUMBER, read_reference=_read_reference, judge=_judge
    )


def _lab(options: Config) -> Lab[Program]:
    return Lab(
        name=NAME,
        draw=lambda generator: _draw(options, generator),
        key=_key,
        problem=_key,
        question=str,
        reference=lambda p: str(_states(p)[-1][p.asked]),
        difficulty=lambda p: float(len(p.steps)),
        solve=lambda p, slips: _solve(p, slips, options.largest),
    )


def _key(problem: Program) -> str:
    return str(problem).replace(" ", "")


def _draw(options: Config, generator: np.random.Generator) -> Program | None:
    start = tuple(int(value) for value in generator.integers(10, size=options.registers))
    state, steps = start, list[Step]()
    for _ in range(options.steps):
        following = _draw_step(options, state, generator)
        if following is None:
            return None
        steps.append(following)
        state = _after(state, following)
    asked = int(generator.integers(options.registers))
    sums = sum(step.kind in ("add", "subtract") for step in steps)
    is_changed = state[asked] != start[asked]
    return Program(start, tuple(steps), asked) if is_changed and sums >= options.least_sums else None


def _draw_step(options: Config, state: State, generator: np.random.Generator) -> Step | None:
    """A step that changes the state and stays in range, or ``None`` where twenty tries found none."""
    for shares in generator.random((20, 5)).tolist():
        kind = options.kinds[int(shares[0] * len(options.kinds))]
        target = int(shares[1] * options.registers)
        source = (target + 1 + int(shares[2] * (options.registers - 1))) % options.registers
        if kind == "swap":
            step = Step(kind, min(target, source), max(target, source))
        elif kind == "copy" or (kind != "set" and shares[3] < 0.5):
            step = Step(kind, target, source)
        else:
            step = Step(kind, target, None, 1 + int(shares[4] * 9))
        after = _after(state, step)
        if after != state and all(0 <= value <= options.largest for value in after):
            return step
    return None


def _after(state: State, step: Step) -> State:
    values = list(state)
    operand = step.number if step.source is None else state[step.source]
    if step.kind == "swap" and step.source is not None:
        values[step.source], values[step.target] = state[step.target], operand
    elif step.kind == "add":
        values[step.target] += operand
    elif step.kind == "subtract":
        values[step.target] -= operand
    else:
        values[step.target] = operand
    return tuple(values)


def _states(program: Program) -> list[State]:
    states = [program.start]
    for step in program.steps:
        states.append(_after(states[-1], step))
    return states


def _solve(program: Program, slips: Slips, largest: int) -> Solution:
    state = program.start
    written = [" ".join(map(str, state))]
    for step in program.steps:
        right = _after(state, step)
        near = [value for value in range(right[step.target] - 2, right[step.target] + 3) if value >= 0]
        wrong = [_replaced(right, step.target, value) for value in near if value != right[step.target]]
        state = slips.choice(right, wrong)
        written.append(" ".join([str(step), *map(str, state)]))
    return Solution(steps=tuple(written), answer=str(state[program.asked]))


def _replaced(state: State, index: int, value: int) -> State:
    return (*state[:index], value, *state[index + 1 :])


def _read_reference(reference: JsonValue) -> int:
    value = parse_reference_integer(reference)
    if value is None:
        raise DataError(f"{NAME}: the reference must be a whole number in digits; found {reference!r}")
    return value


def _judge(reference: int, answer: str) -> bool | None:
    return same_number(answer, reference)
