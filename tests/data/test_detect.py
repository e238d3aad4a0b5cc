"""The format of a file, told by its columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bimetal.config.data import SourceOptions
from bimetal.core.errors import DataError
from bimetal.data.records import load_source

CHAT = [{"role": "user", "content": "a"}]
ANSWERED = [*CHAT, {"role": "assistant", "content": "b"}]


def formats_of(folder: Path, row: dict[str, object], **options: object) -> str:
    (folder / "a.jsonl").write_text(json.dumps(row), encoding="utf-8")
    return load_source(SourceOptions(path="a.jsonl", **options), base=folder).formats[0]


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"prompt": "a"}, "canonical"),
        ({"prompt": "a", "reference": "b"}, "canonical"),
        ({"prompt": "a", "demonstrations": ["b"]}, "canonical"),
        ({"messages": CHAT}, "canonical"),
        ({"messages": CHAT, "prompt": "a"}, "canonical"),
        ({"messages": CHAT, "demonstrations": ["b"]}, "canonical"),
        ({"messages": ANSWERED}, "messages"),
        ({"messages": ANSWERED, "reference": "c"}, "messages"),
        ({"messages": json.dumps(ANSWERED), "source": 3}, "messages"),
        ({"prompt": "a", "completion": "b"}, "prompt_completion"),
        ({"prompt": "a", "completion": "b", "reference": "c"}, "prompt_completion"),
        ({"question": "a", "answer": "#### 1"}, "gsm8k"),
        ({"prompt": CHAT, "reward_model": {"ground_truth": "1"}}, "verl"),
        ({"prompt": CHAT, "reward_model": {}, "question": "a", "answer": "#### 1"}, "verl"),
    ],
)
def test_each_set_of_columns_has_one_format(tmp_path: Path, row: dict[str, object], name: str):
    assert formats_of(tmp_path, row) == f"a.jsonl: 1 rows read as '{name}'"


def test_renamed_columns_count_as_the_fields_they_hold(tmp_path: Path):
    row = {"instruction": "a", "response": "b"}
    pair = {"prompt": "instruction", "completion": "response"}
    assert "'prompt_completion'" in formats_of(tmp_path, row, columns=pair)
    single = {"prompt": "instruction", "demonstration": "response"}
    assert "'canonical'" in formats_of(tmp_path, row, columns=single)
    verl = {"prompt": "p", "reward_model": {}, "hint": "h"}
    assert "'verl'" in formats_of(tmp_path, verl, columns={"demonstration": "hint"})


def test_columns_that_fit_nothing_are_listed_with_what_was_tried(tmp_path: Path):
    with pytest.raises(DataError) as caught:
        formats_of(tmp_path, {"problem": "a", "solution": "b"})
    message = str(caught.value)
    assert "a.jsonl: its format cannot be told; columns found: problem, solution. Tried: " in message
    assert "gsm8k needs question and answer" in message
    assert 'columns = {prompt = "your column"' in message


def test_columns_that_fit_two_formats_ask_for_a_choice(tmp_path: Path):
    row = {"prompt": "a", "completion": "b", "question": "a", "answer": "#### 1"}
    with pytest.raises(
        DataError, match=r'several formats: prompt_completion, gsm8k.*format = "prompt_completion"'
    ):
        formats_of(tmp_path, row)
    assert "'gsm8k'" in formats_of(tmp_path, row, format="gsm8k")


def test_a_missing_column_is_named_with_the_nearest_one(tmp_path: Path):
    with pytest.raises(DataError) as caught:
        formats_of(tmp_path, {"question": "a", "answers": "#### 1"}, format="gsm8k")
    assert str(caught.value) == (
        "a.jsonl: missing column 'answer', which the format 'gsm8k' needs, which no row holds; "
        "columns found: question, answers; did you mean 'answers'?. "
        'Rename it in the recipe: columns = {answer = "your column"}'
    )


def test_a_renamed_column_that_is_not_there_is_named(tmp_path: Path):
    with pytest.raises(DataError, match=r"columns\.reference names the column 'gold', which no row holds"):
        formats_of(tmp_path, {"prompt": "a"}, columns={"reference": "gold"})
