"""The loader on whole files of public data sets, where a folder of them is at hand.

The folder is ``$BIMETAL_DATA``, or ``../shared/data`` beside the checkout.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest

from bimetal.config.data import SourceOptions
from bimetal.data.corpus import Corpus
from bimetal.data.records import load_source

CHECKOUT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("BIMETAL_DATA", CHECKOUT.parent / "shared" / "data"))


def load(path: str, **options: object) -> Corpus:
    if not (FOLDER / path).exists():
        pytest.skip(f"{path} is not in {FOLDER.name}; set BIMETAL_DATA to a folder that has it")
    return load_source(SourceOptions(path=path, **options), base=FOLDER)


@pytest.mark.parametrize(
    ("path", "rows", "first", "last", "commas", "total"),
    [
        ("math/gsm8k_test.jsonl", 1319, "18", "14", 14, 9009187),
        ("demonstrations/gsm8k_train_2000.jsonl", 2000, "72", "5", 24, 323305484),
    ],
)
def test_gsm8k(path: str, rows: int, first: str, last: str, commas: int, total: int):
    corpus = load(path, domain="math")
    references = [str(prompt.reference) for prompt in corpus.prompts]
    assert len(references) == len(corpus.demonstrations) == rows
    assert (references[0], references[-1]) == (first, last)
    assert all(re.fullmatch(r"-?\d+", reference) for reference in references)
    assert sum(map(int, references)) == total
    texts = [demonstrations[0].text for demonstrations in corpus.demonstrations.values()]
    assert not any("<<" in text or ">>" in text for text in texts)
    assert sum("," in text.split("####")[1] for text in texts) == commas
    assert len({prompt.problem for prompt in corpus.prompts}) == rows


@pytest.mark.parametrize(
    ("path", "rows"),
    [("logic/countdown_test.parquet", 1024), ("demonstrations/countdown_hints_2000.parquet", 2000)],
)
def test_countdown(path: str, rows: int):
    corpus = load(path, columns={"demonstration": "hint"}, author="solver")
    assert len(corpus.prompts) == len(corpus.demonstrations) == rows
    for prompt in corpus.prompts:
        assert isinstance(prompt.reference, dict)
        assert prompt.reference == {"numbers": prompt.meta["nums"], "target": prompt.meta["target"]}
        assert f"create an equation that equals {prompt.reference['target']}." in prompt.messages[0].content
        (demonstration,) = corpus.demonstrations[prompt.id]
        # The file has the same solution once more as one text, with tags around the answer.
        assert str(prompt.meta["answer"]).startswith(demonstration.text)


def test_knights_and_knaves_folder():
    corpus = load("logic/knights_knaves")
    assert len(corpus.prompts) == 1000
    assert corpus.demonstrations == {}
    people = Counter(len(prompt.meta["names"]) for prompt in corpus.prompts)
    assert people == {3: 200, 4: 200, 5: 200, 6: 200, 7: 200}
    for prompt in corpus.prompts:
        assert prompt.reference == {
            "solution_text_format": prompt.meta["solution_text_format"],
            "statements": prompt.meta["statements"],
        }


def test_knights_and_knaves_hints():
    corpus = load("demonstrations/knights_knaves_hints_1000.parquet", columns={"demonstration": "hint"})
    assert len(corpus.prompts) == len(corpus.demonstrations) == 1000
    for prompt in corpus.prompts:
        assert isinstance(prompt.reference, dict)
        (demonstration,) = corpus.demonstrations[prompt.id]
        assert demonstration.text.endswith(str(prompt.reference["solution_text_format"]))


def test_arc_challenge():
    corpus = load("science/arc_challenge_test.parquet")
    assert len(corpus.prompts) == 1172
    assert [[message.role for message in prompt.messages] for prompt in corpus.prompts] == [
        ["system", "user"]
    ] * 1172
    assert Counter(str(prompt.reference) for prompt in corpus.prompts) == {
        "1": 3,
        "2": 10,
        "3": 7,
        "4": 2,
        "A": 263,
        "B": 301,
        "C": 303,
        "D": 283,
    }


def test_deepmath():
    corpus = load("math/deepmath_1000.jsonl", columns={"reference": "ground_truth"}, domain="math")
    assert [prompt.id for prompt in corpus.prompts] == [f"math/{number}" for number in range(1, 1001)]
    assert Counter(prompt.difficulty for prompt in corpus.prompts) == {4.5: 213, 5.5: 718, 6.0: 69}
    assert {prompt.messages[0].content for prompt in corpus.prompts} == {
        "Please reason step by step, and put your final answer within \\boxed{}."
    }
    assert (corpus.prompts[0].reference, corpus.prompts[0].source) == ("1", "deepmath_103k")


def test_marco_o1():
    corpus = load(
        "demonstrations/marco_o1_cot_demo.json", columns={"prompt": "instruction", "completion": "response"}
    )
    assert len(corpus.prompts) == len(corpus.demonstrations) == 125
    assert all(prompt.reference is None for prompt in corpus.prompts)
    texts = [demonstrations[0].text for demonstrations in corpus.demonstrations.values()]
    assert sum(text.startswith("<Thought>") for text in texts) == 125
