"""The reported numbers of a domain, counted by hand."""

from __future__ import annotations

import pytest

from bimetal.evaluation.passk import Votes
from bimetal.evaluation.summary import ProblemResult, covers_sentence, summarized

# Four answers each. a: 2 of 4 correct, a third right in another form. b: one unknown, the rest wrong.
# c: nothing could be judged.
A = ProblemResult(
    prompt_id="a", known=4, unknown=0, correct=2, lenient=3, unparseable=1, truncated=1, tokens=40,
    votes=(Votes(2, 2), Votes(1, 0)),
)  # fmt: skip
B = ProblemResult(
    prompt_id="b", known=3, unknown=1, correct=0, lenient=0, unparseable=0, truncated=0, tokens=20,
    votes=(Votes(3, 0),),
)  # fmt: skip
C = ProblemResult(
    prompt_id="c", known=0, unknown=4, correct=0, lenient=0, unparseable=0, truncated=4, tokens=80, votes=()
)


def test_unknown_answers_are_left_out_of_scores_and_counted() -> None:
    found = summarized({"d": (A, B, C)}, samples=4, max_tokens=20).domains["d"]
    assert found.n == 2
    assert found.accuracy.value == 0.25  # (2/4 + 0/3) / 2
    assert found.lenient.value == 0.375  # (3/4 + 0) / 2
    assert found.unparseable.value == 0.125  # (1/4 + 0) / 2
    assert found.unknown.value == pytest.approx(5 / 12, rel=1e-12)  # (0 + 1/4 + 1) / 3
    assert found.truncated.value == pytest.approx(5 / 12, rel=1e-12)  # (1/4 + 0 + 1) / 3
    assert found.tokens.value == pytest.approx(35 / 3, rel=1e-12)  # (10 + 5 + 20) / 3


def test_pass_and_majority_are_over_the_problems_with_enough_known_answers() -> None:
    found = summarized({"d": (A, B, C)}, samples=4, max_tokens=20).domains["d"]
    assert [(k, e.value, e.n) for k, e in found.pass_at.items()] == [
        (1, 0.25, 2),
        (2, pytest.approx(5 / 12, rel=1e-12), 2),  # (5/6 + 0) / 2
        (3, 0.5, 2),  # (1 + 0) / 2
        (4, 1.0, 1),  # b has three known answers
    ]
    # a: A A B and one without a vote. Pairs: AA 1, AB 1/2 twice, A- 1 twice, B- 0 -> 4/6.
    assert found.maj_at[2].value == pytest.approx((4 / 6) / 2, rel=1e-12)
    assert (found.maj_at[4].value, found.maj_at[4].n) == (1.0, 1)


def test_a_domain_whose_answers_cannot_vote_reports_no_majority() -> None:
    silent = ProblemResult(
        prompt_id="a",
        known=2,
        unknown=0,
        correct=1,
        lenient=1,
        unparseable=0,
        truncated=0,
        tokens=4,
        votes=(),
    )
    assert summarized({"d": (silent, silent)}, samples=2, max_tokens=20).domains["d"].maj_at == {}


def test_a_problem_without_a_readable_answer_is_a_lost_vote() -> None:
    mute = ProblemResult(
        prompt_id="a",
        known=2,
        unknown=0,
        correct=0,
        lenient=0,
        unparseable=2,
        truncated=0,
        tokens=4,
        votes=(),
    )
    assert summarized({"d": (mute, mute)}, samples=2, max_tokens=20).domains["d"].maj_at[2].value == 0.0


def test_the_average_weighs_domains_equally_whatever_their_size() -> None:
    def solved(name: str, correct: int) -> ProblemResult:
        return ProblemResult(
            prompt_id=name, known=1, unknown=0, correct=correct, lenient=1, unparseable=0, truncated=0,
            tokens=1, votes=(),
        )  # fmt: skip

    few = tuple(solved(str(i), 1) for i in range(2))
    many = tuple(solved(str(i), 0) for i in range(8))
    found = summarized({"few": few, "many": many}, samples=1, max_tokens=20)
    assert (found.accuracy.value, found.lenient.value) == (0.5, 1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"correct": 3, "lenient": 2},
        {"lenient": 5},
        {"unparseable": 3},
        {"truncated": 5},
        {"unknown": -1},
        {"votes": (Votes(5, 0),)},
        {"votes": (Votes(1, 2),)},
        {"tokens": -1},
    ],
)
def test_counts_that_contradict_each_other_are_refused(change: dict[str, object]) -> None:
    counts = {
        "prompt_id": "a", "known": 4, "unknown": 0, "correct": 2, "lenient": 3, "unparseable": 1,
        "truncated": 1, "tokens": 40, "votes": (Votes(2, 2),),
    }  # fmt: skip
    with pytest.raises(ValueError, match="contradict each other"):
        ProblemResult(**{**counts, **change})


def test_what_the_intervals_cover_is_said() -> None:
    assert "over problems" in covers_sentence()
    assert "do not cover the training seed" in covers_sentence()
