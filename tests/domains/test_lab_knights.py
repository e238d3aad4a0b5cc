from __future__ import annotations

import itertools
import re

import pytest

from bimetal.core.types import Split, Status
from bimetal.domains import lab_knights
from bimetal.domains.lab_knights import Config, load
from bimetal.testing.domains import judged

SMALL = {"train": 200, "selection": 20, "test": 40}
REFERENCE = "A yes B no C no"

RIGHT = [
    "A yes B no C no",
    "B no A yes C no",
    "C no, B no, A yes",
    "A yes, B no and C no",
    "A yes; B no; C no",
    "A: yes B: no C: no",
    "A=yes, B=no, C=no",
    "A is honest, B lies, C lies",
    "A is a knight, B is a knave, and C is a knave",
    "A honest B liar C liar",
    "A  yes  B  no  C  no",
    "A is truthful. B lies. C lies.",
]

NEAR_MISSES = [
    "A no B no C no",
    "A yes B yes C no",
    "A yes B no C yes",
    "A no B yes C yes",
    "A yes B no",
    "B no C no",
    "A yes B no C no D no",
    "A yes B no C no A yes",
    "A yes A no B no C no",
    "yes no no",
    "A",
    "A yes B no C maybe",
    "A yes B no C no, I think",
    "a yes b no c no",
    "A yesB noC no",
    "A not yes B no C no",
    "Ayes Bno Cno",
    "D yes E no F no",
]


@pytest.mark.parametrize("answer", RIGHT)
def test_an_equivalent_answer_is_right(answer: str) -> None:
    assert (
        judged(lab_knights, Config(), reference=REFERENCE, response=f"Answer: {answer}").status
        is Status.CORRECT
    )


@pytest.mark.parametrize("answer", NEAR_MISSES)
def test_a_near_miss_earns_nothing(answer: str) -> None:
    assert judged(lab_knights, Config(), reference=REFERENCE, response=f"Answer: {answer}").reward == 0.0


@pytest.mark.parametrize("reference", ["A yes A no", "A maybe", "", "yes no", 3])
def test_a_reference_of_another_form_is_a_bad_row(reference) -> None:
    assert judged(lab_knights, Config(), reference=reference, response="Answer: A yes").reason == "bad_row"


def _holds(statement: str, honest: dict[str, bool]) -> bool:
    """The slow way: the statement is read from its text."""
    if match := re.fullmatch(r"(\w) (like|unlike) (\w)", statement):
        return (honest[match[1]] == honest[match[3]]) == (match[2] == "like")
    parts = re.split(r" (?:and|or) ", statement)
    held = [honest[part[0]] == (part[2:] == "honest") for part in parts]
    return any(held) if " or " in statement else all(held)


def _solutions(question: str) -> list[str]:
    told = dict(re.findall(r"(\w): ([^.]+)\.", question))
    found = []
    for values in itertools.product((True, False), repeat=len(told)):
        honest = dict(zip(told, values, strict=True))
        if all(_holds(statement, honest) == honest[name] for name, statement in told.items()):
            found.append(" ".join(f"{name} {'yes' if value else 'no'}" for name, value in honest.items()))
    return found


@pytest.mark.parametrize("people", [2, 3, 4])
def test_every_puzzle_has_one_solution_and_the_solver_finds_it(people: int) -> None:
    for prompt, (demonstration,) in load(Config(people=people, count=SMALL), Split.TRAIN):
        assert _solutions(prompt.messages[0].content) == [prompt.reference]
        assert demonstration.text.endswith(f"ok\nAnswer: {prompt.reference}")


def test_the_solver_names_the_first_person_whose_words_do_not_fit() -> None:
    for prompt, (demonstration,) in load(Config(count=SMALL), Split.TRAIN):
        told = dict(re.findall(r"(\w): ([^.]+)\.", prompt.messages[0].content))
        for step in demonstration.text.split("\n")[0].split(";"):
            values, noted = step.split(" ")
            honest = {name: value == "y" for name, value in zip(told, values, strict=True)}
            misfits = [n for n, statement in told.items() if _holds(statement, honest) != honest[n]]
            assert noted == (misfits[0] if misfits else "ok")


def test_solutions_are_balanced_over_the_eight_assignments() -> None:
    rows = list(load(Config(count={"train": 800, "selection": 0, "test": 0}), Split.TRAIN))
    shares = [sum(p.reference == r for p, _ in rows) / len(rows) for r in {p.reference for p, _ in rows}]
    assert len(shares) == 8
    # Four standard errors of a share of 1/8 over 800 puzzles: 4 * sqrt(0.109 / 800) = 0.047.
    assert all(abs(share - 0.125) < 0.047 for share in shares)


def test_a_test_puzzle_is_no_renamed_training_puzzle() -> None:
    def shape(question: str) -> tuple[str, ...]:
        """The least text over all renamings, with claims of a pair in either order."""
        told = re.findall(r"(\w): ([^.]+)\.", question)
        names, texts = [name for name, _ in told], []
        for order in itertools.permutations(names):
            to = dict(zip(names, order, strict=True))
            said = {}
            for name, statement in told:
                renamed = re.sub(r"\b[A-Z]\b", lambda m, to=to: to[m[0]], statement)
                word = next((w for w in (" and ", " or ", " like ", " unlike ") if w in renamed), " and ")
                said[to[name]] = word.join(sorted(renamed.split(word)))
            texts.append(tuple(said[name] for name in names))
        return min(texts)

    count = {"train": 400, "selection": 40, "test": 60}
    shapes = {s: {shape(p.messages[0].content) for p, _ in load(Config(count=count), s)} for s in Split}
    assert not shapes[Split.TRAIN] & shapes[Split.TEST]
    assert not shapes[Split.TRAIN] & shapes[Split.SELECTION]
    assert not shapes[Split.SELECTION] & shapes[Split.TEST]


def test_two_people_bear_names_from_the_whole_alphabet() -> None:
    names = {p.messages[0].content[0] for p, _ in load(Config(people=2, count=SMALL), Split.TRAIN)}
    assert len(names) > 15
