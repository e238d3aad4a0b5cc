from __future__ import annotations

import re

import pytest

from bimetal.core.errors import ConfigError, DataError
from bimetal.core.types import Item, Services, Split, Status
from bimetal.domains import reasoning_gym as domain
from bimetal.domains.reasoning_gym import KNOWN_BAD, Config, load, verify
from bimetal.testing.domains import judged

pytest.importorskip("reasoning_gym")

FEW = {"train": 12, "selection": 3, "test": 4}
# leg_counting has the base scorer: exact text, or a share for text that contains the answer.
ROW = {"question": "How many legs?", "answer": "7", "metadata": {}}

RIGHT = ["7", "7 ", "7\n", "7\n\n", "7\t", "7\r\n", "7  \n  ", "7 \r\n", "7\n\t", "7   "]
NEAR_MISSES = ["17", "70", "7 legs", "7.0", "07", "-7", "7 7", "6 7 8", "**7**", "seven", "7 or 8", "7."]


@pytest.mark.parametrize("answer", RIGHT)
def test_blanks_around_the_answer_do_not_count(answer: str) -> None:
    verdict = judged(domain, Config(task="leg_counting"), reference=ROW, response=f"Answer: {answer}")
    assert verdict.status is Status.CORRECT


@pytest.mark.parametrize("answer", NEAR_MISSES)
def test_containing_the_answer_earns_nothing(answer: str) -> None:
    assert (
        judged(domain, Config(task="leg_counting"), reference=ROW, response=f"Answer: {answer}").reward == 0.0
    )


@pytest.mark.parametrize(
    "task", ["chain_sum", "graph_color", "mini_sudoku", "number_sorting", "rearc", "gsm_symbolic"]
)
def test_every_row_accepts_its_own_answer_and_not_the_next_rows(task: str) -> None:
    options = Config(task=task, count=FEW)
    rows = list(load(options, Split.TRAIN))
    for (prompt, (demonstration,)), (_, (other,)) in zip(rows, rows[1:] + rows[:1], strict=True):
        own, swapped = verify(
            [Item(prompt=prompt, response=demonstration.text), Item(prompt=prompt, response=other.text)],
            options,
            Services(),
        )
        assert own.reward == 1.0
        assert swapped.reward == (1.0 if other.text == demonstration.text else 0.0)


def test_an_answer_of_several_lines_follows_the_answer_line() -> None:
    _, (demonstration,) = next(load(Config(task="mini_sudoku", count=FEW), Split.TRAIN))
    assert demonstration.text.startswith("Answer:\n") and demonstration.text.count("\n") == 4


@pytest.mark.parametrize("task", sorted(KNOWN_BAD))
def test_a_task_known_to_score_wrongly_is_refused(task: str) -> None:
    with pytest.raises(ConfigError, match=f"{task}.*allow_known_bad"):
        load(Config(task=task, count=FEW), Split.TRAIN)


def test_a_task_known_to_score_wrongly_loads_if_asked_for() -> None:
    assert len(list(load(Config(task="syllogism", allow_known_bad=True, count=FEW), Split.TRAIN))) == 12


def test_an_unknown_task_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'chain_sum'"):
        load(Config(task="chain_sun"), Split.TRAIN)


def test_an_unknown_option_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="min_terms"):
        load(Config(task="chain_sum", options={"terms": 3}), Split.TRAIN)


def test_options_reach_the_task() -> None:
    options = Config(
        task="chain_sum",
        options={"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
        count=FEW,
    )
    assert all(
        len(str(prompt.reference["answer"])) <= 3 and prompt.messages[0].content.count(" + ") <= 1
        for prompt, _ in load(options, Split.TRAIN)
    )


def test_too_few_distinct_questions_is_an_error_with_the_number_found() -> None:
    options = Config(
        task="chain_sum",
        options={"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1},
        count={"train": 5_000, "selection": 0, "test": 0},
    )
    with pytest.raises(ConfigError, match=r"only \d+ distinct rows of chain_sum"):
        load(options, Split.TRAIN)


def test_rows_that_refuse_their_own_answer_stop_the_run_or_are_counted() -> None:
    # Some solutions of the tower of Hanoi are longer than the 4,000 characters that are graded.
    count = {"train": 30, "selection": 0, "test": 0}
    with pytest.raises(DataError, match="does not score 1 with its own answer"):
        load(Config(task="tower_of_hanoi", count=count), Split.TRAIN)
    prompts = [
        prompt for prompt, _ in load(Config(task="tower_of_hanoi", count=count, on_bad="skip"), Split.TRAIN)
    ]
    assert len(prompts) == 30 and prompts[0].meta["skipped"] > 0


def test_a_hash_dependent_task_asks_for_a_fixed_hash_seed(monkeypatch) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    with pytest.raises(ConfigError, match="PYTHONHASHSEED=0"):
        load(Config(task="word_ladder", count=FEW), Split.TRAIN)


def test_a_scorer_that_raises_means_unparseable() -> None:
    prompt, _ = next(load(Config(task="prime_factorization", count=FEW), Split.TRAIN))
    verdict = judged(
        domain, Config(task="prime_factorization"), reference=prompt.reference, response="Answer: x y"
    )
    assert (verdict.status, verdict.reward) == (Status.UNPARSEABLE, 0.0)


@pytest.mark.parametrize(
    "code", ["__import__('os').getcwd()", "open('x','w')", "[].append(1)", "9**9**9**9", "lambda: 1"]
)
@pytest.mark.parametrize("task", ["countdown", "n_queens", "spiral_matrix"])
def test_code_never_reaches_an_evaluator(task: str, code: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    prompt, _ = next(load(Config(task=task, count=FEW), Split.TRAIN))
    verdict = judged(domain, Config(task=task), reference=prompt.reference, response=f"Answer: {code}")
    assert verdict.reward == 0.0
    assert not list(tmp_path.iterdir())


def test_partial_scores_are_opt_in_and_reduced_by_the_baseline() -> None:
    prompt, _ = next(load(Config(task="knights_knaves", count=FEW), Split.TRAIN))
    other = {"knight": "knave", "knave": "knight"}
    # One of two people is wrong.
    answer = re.sub("knight|knave", lambda match: other[match[0]], str(prompt.reference["answer"]), count=1)
    binary = judged(
        domain, Config(task="knights_knaves"), reference=prompt.reference, response=f"Answer: {answer}"
    )
    partial = Config(task="knights_knaves", scoring="partial")
    whole = judged(domain, partial, reference=prompt.reference, response=f"Answer: {answer}").reward
    reduced = partial.model_copy(update={"baseline": 0.2})
    part = judged(domain, reduced, reference=prompt.reference, response=f"Answer: {answer}").reward
    assert binary.reward == 0.0
    # (s - b) / (1 - b) with b = 0.2
    assert part == pytest.approx(max(0.0, (whole - 0.2) / 0.8), abs=1e-12)
    assert 0.0 < whole < 1.0
