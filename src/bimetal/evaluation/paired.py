"""The difference between two models on the problems both answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from bimetal.core.errors import DataError
from bimetal.evaluation.intervals import Estimate, average, paired_difference
from bimetal.evaluation.result import SuiteResult
from bimetal.evaluation.summary import ProblemResult, covers_sentence

Measure = Literal["accuracy", "lenient"]
"""Which reading of an answer is compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """``after`` minus ``before``, by domain and on average over domains.

    ``unshared`` counts the problems that only one of the two has a known answer to; they are left out.
    """

    before: str
    after: str
    domains: Mapping[str, Estimate]
    overall: Estimate
    unshared: int

    def to_json(self) -> Mapping[str, object]:
        """The differences as plain values."""
        return asdict(self) | {"covers": covers_sentence()}


def paired(before: SuiteResult, after: SuiteResult, *, measure: Measure = "accuracy") -> Paired:
    """The paired differences over the domains that both have.

    Raises:
        DataError: The two have no domain in common, or one id names two problems.
    """
    shared = [name for name in before.problems if name in after.problems]
    if not shared:
        raise DataError(
            f"the evaluations {before.label!r} and {after.label!r} have no domain in common; "
            f"found {', '.join(before.problems)} and {', '.join(after.problems)}"
        )
    domains: dict[str, Estimate] = {}
    unshared = 0
    for name in shared:
        _check_same_problems(before, after, domain=name)
        first, second = _scores(before.problems[name], measure), _scores(after.problems[name], measure)
        domains[name] = paired_difference(first, second)
        unshared += len(first.keys() ^ second.keys())
    return Paired(
        before=before.label,
        after=after.label,
        domains=domains,
        overall=average(list(domains.values())),
        unshared=unshared,
    )


def _scores(problems: tuple[ProblemResult, ...], measure: Measure) -> dict[str, float]:
    return {
        p.prompt_id: (p.correct if measure == "accuracy" else p.lenient) / p.known
        for p in problems
        if p.known
    }


def _check_same_problems(before: SuiteResult, after: SuiteResult, *, domain: str) -> None:
    """An id is stable across runs; where the domain's options changed it may name another problem."""
    first = {p.prompt_id: p.problem for p in before.problems[domain]}
    for problem in after.problems[domain]:
        if first.get(problem.prompt_id, problem.problem) != problem.problem:
            raise DataError(
                f"{domain}: id {problem.prompt_id!r} is problem {first[problem.prompt_id]!r} in "
                f"{before.label!r} and {problem.problem!r} in {after.label!r}; "
                "evaluate both on the same suite"
            )
