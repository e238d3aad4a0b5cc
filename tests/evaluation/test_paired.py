"""Differences between two evaluations of the same problems."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bimetal.core.errors import DataError
from bimetal.core.types import Split
from bimetal.evaluation.paired import paired
from bimetal.evaluation.result import SuiteResult
from bimetal.evaluation.summary import ProblemResult
from bimetal.rollout.backend import Sampling


def test_the_difference_is_over_the_problems_both_have() -> None:
    before = result("before", {"math": {"a": 0, "b": 1, "c": 0}})
    after = result("after", {"math": {"b": 1, "c": 1, "d": 1}})
    found = paired(before, after)
    assert (found.before, found.after, found.unshared) == ("before", "after", 2)
    # b: 1 - 1, c: 1 - 0
    assert (found.domains["math"].value, found.domains["math"].n) == (0.5, 2)


def test_the_overall_difference_weighs_domains_equally() -> None:
    before = result("before", {"math": dict.fromkeys("abcd", 0), "logic": dict.fromkeys("ab", 1)})
    after = result("after", {"math": dict.fromkeys("abcd", 1), "logic": dict.fromkeys("ab", 1)})
    assert paired(before, after).overall.value == 0.5


def test_the_lenient_reading_can_be_compared() -> None:
    before = result("before", {"math": {"a": 0, "b": 0}})
    after = replace(before, label="after", problems={
        "math": tuple(replace(p, lenient=1) for p in before.problems["math"])
    })  # fmt: skip
    assert paired(before, after).domains["math"].value == 0.0
    assert paired(before, after, measure="lenient").domains["math"].value == 1.0


def test_a_problem_without_a_known_answer_is_no_pair() -> None:
    before = result("before", {"math": {"a": 0, "b": 1}})
    unknown = replace(before.problems["math"][0], known=0, unknown=1, correct=0, lenient=0)
    after = replace(before, problems={"math": (unknown, before.problems["math"][1])})
    assert (paired(before, after).domains["math"].n, paired(before, after).unshared) == (1, 1)


def test_one_id_for_two_problems_is_refused() -> None:
    before = result("before", {"math": {"a": 0}})
    changed = replace(before.problems["math"][0], problem="other")
    after = replace(before, label="after", problems={"math": (changed,)})
    with pytest.raises(DataError, match="id 'a' is problem 'a' in 'before' and 'other' in 'after'"):
        paired(before, after)


def test_evaluations_without_a_common_domain_are_refused() -> None:
    with pytest.raises(DataError, match="no domain in common; found math and logic"):
        paired(result("before", {"math": {"a": 0}}), result("after", {"logic": {"a": 0}}))


def result(label: str, solved: dict[str, dict[str, int]]) -> SuiteResult:
    def problem(name: str, correct: int) -> ProblemResult:
        return ProblemResult(
            prompt_id=name, known=1, unknown=0, correct=correct, lenient=correct, unparseable=0, truncated=0,
            tokens=1, votes=(), problem=name,
        )  # fmt: skip

    return SuiteResult(
        suite="final", split=Split.TEST, label=label, seed=1, samples=1, sampling=Sampling(temperature=0.0),
        problems={d: tuple(problem(n, c) for n, c in some.items()) for d, some in solved.items()},
    )  # fmt: skip
