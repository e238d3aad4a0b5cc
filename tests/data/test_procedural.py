from __future__ import annotations

import numpy as np
import pytest

from bimetal.core.errors import ConfigError
from bimetal.core.types import Split
from bimetal.data.procedural import (
    Counts,
    Lab,
    LabOptions,
    Slips,
    Solution,
    distinct_found,
    load_lab,
    split_of,
    written,
)

COUNT = {"train": 300, "selection": 20, "test": 30}


def _digits(number: int, slips: Slips) -> Solution:
    """Copies the number digit by digit."""
    copied = [str(slips.number(int(digit), least=0, most=9)) for digit in f"{number:04d}"]
    return Solution(steps=tuple(copied), answer="".join(copied))


def lab(size: int = 10_000) -> Lab[int]:
    return Lab(
        name="copy",
        draw=lambda generator: int(generator.integers(size)),
        key=str,
        problem=str,
        question=lambda n: f"copy {n:04d}",
        reference=lambda n: f"{n:04d}",
        difficulty=lambda n: 4.0,
        solve=_digits,
    )


def rows(split: Split = Split.TRAIN, **options: object) -> list:
    return list(load_lab(lab(), LabOptions(**{"count": COUNT, **options}), split=split))


def test_a_split_holds_as_many_distinct_problems_as_asked_for() -> None:
    for split, count in zip(Split, (300, 20, 30), strict=True):
        found = rows(split)
        assert len(found) == count == len({prompt.id for prompt, _ in found})


def test_splits_are_disjoint_for_any_two_seeds() -> None:
    problems = {
        (split, seed): {p.problem for p, _ in rows(split, seed=seed)} for split in Split for seed in (0, 1, 2)
    }
    for (split, _), found in problems.items():
        assert not any(found & others for (other, _), others in problems.items() if other is not split)


def test_the_split_of_a_problem_is_fixed_forever() -> None:
    # A change of these values would move problems between training and test of existing runs.
    keys = (2, 3, 5, 20, 27, 0, 1)
    assert [split_of("copy", str(n)).value for n in keys] == ["train"] * 3 + ["selection"] * 2 + ["test"] * 2


def test_splits_have_their_shares() -> None:
    shares = [sum(split_of("copy", str(n)) is split for n in range(10_000)) / 10_000 for split in Split]
    # Four standard errors of 0.8 over 10,000 keys: 4 * sqrt(0.16 / 10000) = 0.016.
    assert np.allclose(shares, (0.80, 0.08, 0.12), rtol=0, atol=0.016)


def test_loading_again_gives_the_same_rows_and_another_seed_others() -> None:
    assert rows() == rows()
    assert [p.id for p, _ in rows()] != [p.id for p, _ in rows(seed=1)]


def test_a_larger_count_begins_with_the_same_problems() -> None:
    larger = rows(count={"train": 400, "selection": 0, "test": 0})
    assert larger[:300] == rows()


def test_demonstration_options_do_not_change_the_problems() -> None:
    noisy = rows(wrong_step_share=0.5, covered_share=0.3, style="chatty", verbosity="terse")
    assert [p for p, _ in noisy] == [p for p, _ in rows()]


def test_an_exhausted_split_is_an_error_with_the_number_found() -> None:
    with pytest.raises(ConfigError, match=r"copy: count.test is 30, but only \d+ distinct"):
        load_lab(lab(size=50), LabOptions(count=COUNT), split=Split.TEST)


def test_the_distinct_problems_of_a_small_space_are_counted() -> None:
    assert distinct_found(lab(size=50), 0, limit=1_000) == 50
    assert distinct_found(lab(size=50), 0, limit=20) == 20


def test_the_instruction_stands_below_the_question() -> None:
    prompt, _ = rows(instruction="Copy it.")[0]
    assert prompt.messages[0].content == f"copy {prompt.reference}\nCopy it."


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_the_stated_share_of_prompts_has_a_demonstration(share: float) -> None:
    covered = sum(bool(found) for _, found in rows(covered_share=share)) / 300
    # Four standard errors of 0.3 over 300 prompts: 4 * sqrt(0.21 / 300) = 0.106.
    assert abs(covered - share) <= (0.106 if 0 < share < 1 else 0)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_stated_share_of_steps_is_wrong_and_quality_says_so(share: float) -> None:
    wrong = []
    for prompt, (demonstration,) in rows(wrong_step_share=share):
        copied = demonstration.text.split("\n")[0].split(";")
        errors = sum(step != digit for step, digit in zip(copied, str(prompt.reference), strict=True))
        assert demonstration.quality == 1 - errors / 4
        assert demonstration.text.endswith("Answer: " + "".join(copied))
        wrong.append(errors / 4)
    # Four standard errors of 0.25 over 1,200 steps: 4 * sqrt(0.1875 / 1200) = 0.05.
    assert abs(np.mean(wrong) - share) <= (0.05 if 0 < share < 1 else 0)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_terse_demonstration_is_wrong_at_the_stated_rate(share: float) -> None:
    found = rows(wrong_step_share=share, verbosity="terse")
    for prompt, (demonstration,) in found:
        assert demonstration.quality == float(demonstration.text == f"Answer: {prompt.reference}")
    wrong = np.mean([1 - demonstration.quality for _, (demonstration,) in found])
    # Four standard errors of 0.25 over 300 demonstrations: 4 * sqrt(0.1875 / 300) = 0.1.
    assert abs(wrong - share) <= (0.1 if 0 < share < 1 else 0)


def test_the_styles_differ_in_words_and_agree_in_steps_and_answer() -> None:
    solution = Solution(steps=("1", "2", "3"), answer="123")
    assert written(solution, style="plain") == "1;2;3\nAnswer: 123"
    assert (
        written(solution, style="chatty") == "Let me see. First, 1. Then 2. Then 3. That is all.\nAnswer: 123"
    )
    assert written(Solution(steps=(), answer="1"), style="chatty") == "Answer: 1"


def test_every_demonstration_names_its_author_and_prompt() -> None:
    assert all(d.author == "solver" and d.prompt_id == p.id for p, found in rows() for d in found)


def test_counts_name_their_split() -> None:
    counts = Counts(train=1, selection=2, test=3)
    assert [counts.of(split) for split in Split] == [1, 2, 3]
