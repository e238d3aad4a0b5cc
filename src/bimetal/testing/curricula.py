"""The conformance suite of curricula: what every one must keep, as importable checks.

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_curriculum(check):
        check(CurriculumSuite(build=lambda candidates, streams: my.build(my.Config(), candidates, streams)))

Each check raises ``AssertionError`` with what it found.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bimetal.core.errors import BimetalError
from bimetal.core.streams import Streams
from bimetal.core.types import (
    Draft,
    Finish,
    Group,
    Message,
    Origin,
    Prompt,
    PromptId,
    Segment,
    Status,
    Trace,
    TraceId,
    Verdict,
)
from bimetal.rollout.curriculum import Candidate, Curriculum

DRAWS = (1, 5, 3, 8, 2, 13, 4)
"""Sizes of the draws of a check; together more than one pass over the candidates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurriculumSuite:
    """A curriculum to be examined: ``build`` makes a fresh one."""

    build: Callable[[Sequence[Candidate], Streams], Curriculum]


def draws_as_many_as_asked_from_its_candidates(suite: CurriculumSuite) -> None:
    """Every draw has the size asked for, and holds candidates only, also where there are fewer of them."""
    known = {c.prompt_id for c in _candidates()}
    curriculum = suite.build(_candidates(), Streams(1))
    for count in (*DRAWS, 2 * len(known)):
        drawn = curriculum.draw(count)
        _require(len(drawn) == count, f"a draw of {count} has {len(drawn)} prompts")
        _require(set(drawn) <= known, f"drew what is no candidate: {sorted(set(drawn) - known)}")
    single = suite.build(_candidates()[:1], Streams(1))
    _require(
        single.draw(3) == [_candidates()[0].prompt_id] * 3, "a single candidate is not drawn three times"
    )
    _require(curriculum.draw(0) == [], "a draw of 0 is not empty")


def the_same_seed_gives_the_same_draws(suite: CurriculumSuite) -> None:
    """Draws depend on candidates, streams and what was observed, on nothing else."""
    one, other = (_history(suite.build(_candidates(), Streams(1))) for _ in range(2))
    _require(one == other, f"two curricula of one seed differ: {one} and {other}")


def another_seed_gives_other_draws(suite: CurriculumSuite) -> None:
    """Random choices come from the run's streams."""
    one, other = (_history(suite.build(_candidates(), Streams(seed))) for seed in (1, 2))
    _require(one != other, "two seeds give the same draws, so the streams are not used")


def resumes_exactly_at_every_point(suite: CurriculumSuite) -> None:
    """A curriculum restored from JSON goes on as the one that was never interrupted (design contract C4)."""
    expected = _history(suite.build(_candidates(), Streams(1)))
    for cut in range(len(DRAWS) + 1):
        first = suite.build(_candidates(), Streams(1))
        found = _history(first, DRAWS[:cut])
        second = suite.build(_candidates(), Streams(1))
        second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
        _require(dict(second.metrics()) == dict(first.metrics()), "metrics differ after a restore")
        found += _history(second, DRAWS[cut:])
        _require(found == expected, f"interrupted after {cut} draws: {found} instead of {expected}")


def a_state_does_not_change_later(suite: CurriculumSuite) -> None:
    """What ``state_dict`` gave is a picture, not a window: later draws leave it as it is."""
    curriculum = suite.build(_candidates(), Streams(1))
    _history(curriculum, DRAWS[:3])
    state = curriculum.state_dict()
    before = json.dumps(state)
    _history(curriculum, DRAWS[3:])
    _require(json.dumps(state) == before, "a state changed when the curriculum went on")


def every_candidate_is_drawn_in_the_end(suite: CurriculumSuite) -> None:
    """No prompt that is neither solved nor hopeless is left out for ever."""
    curriculum = suite.build(_candidates(), Streams(1))
    seen: set[PromptId] = set()
    for _ in range(40):
        drawn = curriculum.draw(len(_candidates()))
        seen |= set(drawn)
        curriculum.observe([_group(name, number) for number, name in enumerate(drawn)])
    missing = {c.prompt_id for c in _candidates()} - seen
    _require(not missing, f"never drawn: {sorted(missing)}")


def metrics_are_finite_numbers(suite: CurriculumSuite) -> None:
    """Its metrics can be written down at the start and later."""
    curriculum = suite.build(_candidates(), Streams(1))
    for count in (0, *DRAWS):
        _history(curriculum, (count,))
        bad = {name: value for name, value in curriculum.metrics().items() if not math.isfinite(value)}
        _require(not bad, f"metrics are not finite: {bad}")


def without_candidates_it_says_so(suite: CurriculumSuite) -> None:
    """A curriculum of nothing is a user's mistake, with a message."""
    try:
        suite.build([], Streams(1))
    except BimetalError as error:
        _require("prompt" in str(error), f"the message does not speak of prompts: {error}")
    else:
        raise AssertionError("no candidates are no error")


CHECKS: tuple[Callable[[CurriculumSuite], None], ...] = (
    draws_as_many_as_asked_from_its_candidates,
    the_same_seed_gives_the_same_draws,
    another_seed_gives_other_draws,
    resumes_exactly_at_every_point,
    a_state_does_not_change_later,
    every_candidate_is_drawn_in_the_end,
    metrics_are_finite_numbers,
    without_candidates_it_says_so,
)
"""Every check of this suite."""


def _candidates() -> list[Candidate]:
    """Two pools of unequal size and weight, with difficulties."""
    return [
        Candidate(
            prompt_id=PromptId(f"{pool}/{n}"), pool=pool, weight=weight, difficulty=(n + 1) / (size + 1)
        )
        for pool, size, weight in (("a", 7, 1.0), ("b", 4, 2.0))
        for n in range(size)
    ]


def _history(curriculum: Curriculum, counts: Sequence[int] = DRAWS) -> list[list[PromptId]]:
    """Draws of these sizes, each observed with verdicts that differ by prompt."""
    found: list[list[PromptId]] = []
    for count in counts:
        drawn = curriculum.draw(count)
        found.append(list(drawn))
        curriculum.observe([_group(name, number) for number, name in enumerate(drawn)])
    return found


def _group(name: PromptId, number: int) -> Group:
    """Two rollouts, of which none, one or both are right, by the prompt's name."""
    prompt = Prompt(id=name, domain="d", messages=(Message(role="user", content="?"),))
    right = sum(name.encode()) % 3
    traces = tuple(
        Trace(
            id=TraceId(f"{name}#{number}.{member}"),
            prompt_id=name,
            domain="d",
            visit=number,
            member=member,
            draft=Draft(),
            contexts=((Segment(origin=Origin.POLICY, token_ids=(1,), logprobs=(-1.0,), version=0),),),
            finish=Finish.STOP,
            verdict=_verdict(is_right=member < right),
        )
        for member in range(2)
    )
    return Group(prompt=prompt, visit=number, traces=traces)


def _verdict(*, is_right: bool) -> Verdict:
    return Verdict(status=Status.CORRECT if is_right else Status.WRONG, reward=float(is_right))


def _require(condition: bool, message: str) -> None:  # noqa: FBT001 - an assertion with a message
    if not condition:
        raise AssertionError(message)
