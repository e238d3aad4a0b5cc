from __future__ import annotations

import pytest

from bimetal.core.types import Split, Status
from bimetal.domains import lab_table
from bimetal.domains.lab_table import Config, load
from bimetal.testing.domains import judged

SMALL = {"train": 200, "selection": 20, "test": 40}

RIGHT = [
    ("18", "18"),
    ("18", "18.0"),
    ("18", "018"),
    ("18", "+18"),
    ("18", "36/2"),
    ("18", "18."),
    ("red", "red"),
    ("red", "Red"),
    ("red", "RED"),
    ("red", "red "),
    ("bob", "Bob"),
    (18, "18"),
]

NEAR_MISSES = [
    ("18", "17"),
    ("18", "81"),
    ("18", "-18"),
    ("18", "18.5"),
    ("18", "1 8"),
    ("18", "red"),
    ("18", "18 red"),
    ("18", "9+9"),
    ("red", "blue"),
    ("red", "re"),
    ("red", "redd"),
    ("red", "red blue"),
    ("red", "red."),
    ("red", "not red"),
    ("red", "**red**"),
    ("red", "r\u0435d"),
    ("red", "18"),
]


@pytest.mark.parametrize(("reference", "answer"), RIGHT)
def test_an_equivalent_answer_is_right(reference, answer: str) -> None:
    verdict = judged(lab_table, Config(), reference=reference, response=f"Answer: {answer}")
    assert verdict.status is Status.CORRECT


@pytest.mark.parametrize(("reference", "answer"), NEAR_MISSES)
def test_a_near_miss_earns_nothing(reference, answer: str) -> None:
    assert judged(lab_table, Config(), reference=reference, response=f"Answer: {answer}").reward == 0.0


def _answer(question: str) -> str:
    """The slow way: the table is read from the prompt's text."""
    asked, _, table = question.partition("? ")
    rows = [text.split(" ") for text in table.split("; ")]
    kind, about = asked.split(" ")
    if kind in ("num", "color"):
        return next(row[1 if kind == "num" else 2] for row in rows if row[0] == about)
    numbers = [int(row[1]) for row in rows if row[2] == about]
    return str({"sum": sum(numbers), "count": len(numbers), "max": sorted(numbers)[-1]}[kind])


@pytest.mark.parametrize("rows", [3, 5])
def test_the_solver_is_right(rows: int) -> None:
    for prompt, (demonstration,) in load(Config(rows=rows, count=SMALL), Split.TRAIN):
        assert prompt.reference == _answer(prompt.messages[0].content)
        assert demonstration.text.endswith(f"\nAnswer: {prompt.reference}")


def test_every_row_is_copied_with_the_total_so_far() -> None:
    for prompt, (demonstration,) in load(Config(count=SMALL), Split.TRAIN):
        asked, table = prompt.messages[0].content.split("? ")
        question, about = asked.split(" ")
        if question in ("num", "color"):
            continue
        steps, totals = demonstration.text.split("\n")[0].split(";"), [0]
        for row in table.split("; "):
            _, number, color = row.split(" ")
            if color == about:
                told = {
                    "count": totals[-1] + 1,
                    "sum": totals[-1] + int(number),
                    "max": max(totals[-1], int(number)),
                }
                totals.append(told[question])
            else:
                totals.append(totals[-1])
        assert steps == [f"{row} {total}" for row, total in zip(table.split("; "), totals[1:], strict=True)]


def test_every_kind_of_question_is_asked() -> None:
    asked = {p.messages[0].content.split(" ")[0] for p, _ in load(Config(count=SMALL), Split.TRAIN)}
    assert asked == {"num", "color", "sum", "count", "max"}


def test_rows_in_another_order_are_one_problem() -> None:
    options = Config(
        rows=2, colors=2, largest=2, questions=("lookup",), count={"train": 300, "selection": 0, "test": 0}
    )
    rows = [p.messages[0].content.split("? ") for p, _ in load(options, Split.TRAIN)]
    assert len({(asked, *sorted(table.split("; "))) for asked, table in rows}) == len(rows)


def test_the_difficulty_is_kept() -> None:
    options = Config(rows=6, colors=3, largest=30, questions=("sum",), least_matches=3, count=SMALL)
    for prompt, _ in load(options, Split.TRAIN):
        asked, _, table = prompt.messages[0].content.partition("? ")
        rows = [text.split(" ") for text in table.split("; ")]
        assert len(rows) == 6 == len({row[0] for row in rows})
        assert all(1 <= int(row[1]) <= 30 and row[2] in ("red", "blue", "green") for row in rows)
        assert sum(row[2] == asked.split(" ")[1] for row in rows) >= 3


def test_more_matches_than_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="least_matches"):
        Config(rows=2, least_matches=3)
