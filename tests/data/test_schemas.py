"""Each row format: which prompt, reference and demonstrations a row becomes."""

# long: tests mirror the modules, one file each, and this module knows every row format
from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bimetal.config.data import SourceOptions
from bimetal.core.errors import ConfigError, DataError
from bimetal.core.types import Demonstration, Message, Stream
from bimetal.data.corpus import Corpus
from bimetal.data.records import load_source

SAMPLES = Path(__file__).parent / "samples"


def load(folder: Path, rows: list[dict[str, object]], **options: object) -> Corpus:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return load_source(SourceOptions(path=path.name, **options), base=folder)


def only_demonstration(corpus: Corpus) -> Demonstration:
    ((demonstration,),) = corpus.demonstrations.values()
    return demonstration


def test_gsm8k_takes_the_reference_behind_the_hashes_and_removes_calculator_marks():
    corpus = load_source(SourceOptions(path="gsm8k.jsonl", domain="math", author="human"), base=SAMPLES)
    assert [prompt.reference for prompt in corpus.prompts] == ["72", "10", "5"]
    first = corpus.prompts[0]
    assert first.messages[0].role == "user"
    assert first.messages[0].content.startswith("Natalia sold clips to 48 of her friends")
    (demonstration,) = corpus.demonstrations[first.id]
    assert demonstration.text == (
        "Natalia sold 48/2 = 24 clips in May.\n"
        "Natalia sold 48+24 = 72 clips altogether in April and May.\n#### 72"
    )
    assert (demonstration.author, demonstration.prompt_id) == ("human", first.id)


def test_gsm8k_keeps_calculator_marks_when_asked():
    corpus = load_source(SourceOptions(path="gsm8k.jsonl", calculator_marks="keep"), base=SAMPLES)
    assert "48/2 = <<48/2=24>>24" in corpus.demonstrations[corpus.prompts[0].id][0].text


def test_gsm8k_removes_commas_from_the_reference_only(tmp_path: Path):
    corpus = load(tmp_path, [{"question": "2000 * 1000?", "answer": "It is 2,000,000.\n#### 2,000,000 "}])
    assert corpus.prompts[0].reference == "2000000"
    assert only_demonstration(corpus).text == "It is 2,000,000.\n#### 2,000,000 "


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("just 7", "exactly one '####' (it has 0)"),
        ("#### 7 #### 8", "exactly one '####' (it has 2)"),
        ("so\n####  ", "with an answer after '####'"),
        (7, "must be text; found 7"),
        ("", "must be text that is not blank"),
        (None, "column 'answer' is missing or null"),
    ],
)
def test_gsm8k_refuses_answers_without_one_marked_result(tmp_path: Path, answer: object, said: str):
    rows = [{"question": "a", "answer": "#### 1"}, {"question": "b", "answer": answer}]
    with pytest.raises(DataError) as caught:
        load(tmp_path, rows)
    assert "rows.jsonl line 2: field 'answer'" in str(caught.value)
    assert said in str(caught.value)


def test_canonical_holds_everything(tmp_path: Path):
    row = {
        "id": "7",
        "domain": "lab",
        "prompt": "7 + 5?",
        "reference": 12,
        "difficulty": 2,
        "demonstrations": [
            {
                "text": "12",
                "author": "solver",
                "quality": 0.5,
                "token_ids": [1, 2],
                "author_logprobs": [-0.5, 0],
            },
            "twelve",
        ],
        "problem": "5+7",
        "meta": {"digits": 1},
        "seen": True,
    }
    corpus = load(tmp_path, [row])
    (prompt,) = corpus.prompts
    assert (prompt.id, prompt.domain, prompt.reference, prompt.difficulty) == ("7", "lab", 12, 2.0)
    assert prompt.messages == (Message(role="user", content="7 + 5?"),)
    assert (prompt.problem, prompt.meta, prompt.stream) == ("5+7", {"digits": 1, "seen": True}, Stream.MAIN)
    assert corpus.demonstrations[prompt.id] == (
        Demonstration(
            prompt_id=prompt.id,
            text="12",
            author="solver",
            quality=0.5,
            token_ids=(1, 2),
            author_logprobs=(-0.5, 0.0),
        ),
        Demonstration(prompt_id=prompt.id, text="twelve"),
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"demonstrations": [{"txt": "a"}]}, "field 'demonstrations[0].txt': is not known"),
        ({"demonstrations": "a"}, "field 'demonstrations': must be a list, or such a thing as JSON text"),
        (
            {"demonstrations": [{"text": " "}]},
            "field 'demonstrations[0].text': must be text that is not blank",
        ),
        ({"demonstrations": [{"text": "a", "token_ids": [1]}]}, "token_ids and author_logprobs go together"),
        (
            {"demonstrations": [{"text": "a", "token_ids": [1, 2], "author_logprobs": [-1.0]}]},
            "must be one per token id; 1 for 2",
        ),
        (
            {"demonstrations": [{"text": "a", "token_ids": [1], "author_logprobs": [0.5]}]},
            "none above 0; found [0.5]",
        ),
        (
            {"demonstrations": [{"text": "a", "token_ids": [-1], "author_logprobs": [-0.5]}]},
            "whole numbers from 0 up; found [-1]",
        ),
        ({"demonstrations": [{"text": "a", "quality": 2}]}, "must be in [0, 1]; found 2"),
        ({"difficulty": "hard"}, "field 'difficulty': must be a number; found \"hard\""),
        ({"difficulty": float("nan")}, "field 'difficulty': must be a finite number"),
        (
            {"reference": float("nan")},
            "field 'reference': must be a finite number (use null where it is unknown)",
        ),
        ({"reference": {"a": [float("inf")]}}, "field 'reference': must be a finite number"),
        ({"id": 1.5}, "field 'id': must be text; found 1.5"),
        ({"id": ""}, "field 'id': must be text that is not blank"),
        ({"prompt": 5}, "field 'prompt': must be a list of messages"),
        ({"prompt": "  "}, "field 'prompt': must be text that is not blank"),
        ({"prompt": []}, "field 'prompt': must be a list of messages"),
        ({"prompt": [{"role": "human", "content": "x"}]}, "field 'prompt[0].role': must be one of system"),
        ({"prompt": [{"role": "system", "content": "x"}]}, "must hold a user's message that is not blank"),
        ({"stream": "second"}, "field 'stream': must be one of main, demonstrations; found \"second\""),
        ({"meta": 3}, "field 'meta': must be an object; found 3"),
        ({"meta": {"seen": 1}, "seen": 2}, "field 'meta': holds 'seen', which is also a column"),
    ],
)
def test_canonical_names_the_field_that_is_wrong(tmp_path: Path, change: dict[str, object], said: str):
    good: dict[str, object] = {"id": "a", "prompt": "x", "reference": "y"}
    with pytest.raises(DataError) as caught:
        load(tmp_path, [good, {"id": "b", "prompt": "x2", "reference": "y"} | change])
    assert "1 row cannot be used" in str(caught.value)
    assert "rows.jsonl line 2: " in str(caught.value)
    assert said in str(caught.value)


def test_a_missing_domain_leaves_ids_as_they_are_and_a_recipe_domain_prefixes_them(tmp_path: Path):
    rows: list[dict[str, object]] = [{"id": 3, "prompt": "x"}, {"id": "math/4", "prompt": "y"}]
    assert [prompt.id for prompt in load(tmp_path, rows).prompts] == ["3", "math/4"]
    assert [prompt.id for prompt in load(tmp_path, rows, domain="math").prompts] == ["math/3", "math/4"]


def test_messages_take_the_last_assistant_turn_as_the_demonstration(tmp_path: Path):
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "Times 3?"},
        {"role": "assistant", "content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}]},
    ]
    corpus = load(tmp_path, [{"messages": turns, "reference": "12"}])
    assert [(m.role, m.content) for m in corpus.prompts[0].messages] == [
        ("system", "Be brief."),
        ("user", "2+2?"),
        ("assistant", "4"),
        ("user", "Times 3?"),
    ]
    assert only_demonstration(corpus).text == "12"
    assert corpus.prompts[0].reference == "12"


def test_messages_as_json_text_are_read_and_those_that_lose_content_are_refused(tmp_path: Path):
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert only_demonstration(load(tmp_path, [{"messages": json.dumps(turns)}])).text == "b"
    turns[1]["tool_calls"] = "f(1)"
    with pytest.raises(
        DataError, match=r"messages\[1\]\.tool_calls': is not read, and leaving it out would change"
    ):
        load(tmp_path, [{"messages": turns}], format="messages")
    with pytest.raises(DataError, match="holds an answer and no prompt"):
        load(tmp_path, [{"messages": [{"role": "assistant", "content": "b"}]}])


def test_identical_prompts_of_prompt_completion_are_one_prompt_with_several_demonstrations(tmp_path: Path):
    rows: list[dict[str, object]] = [
        {"prompt": "2+2?", "completion": "4"},
        {
            "prompt": [{"role": "user", "content": "2+2?"}],
            "completion": [{"role": "assistant", "content": "four"}],
        },
        {"prompt": "2+2?", "completion": "4"},
        {"prompt": "3+3?", "completion": "6", "reference": "6"},
        {"prompt": "3+3?", "completion": "six"},
    ]
    corpus = load(tmp_path, rows)
    assert [m.content for p in corpus.prompts for m in p.messages] == ["2+2?", "3+3?"]
    assert [[d.text for d in ds] for ds in corpus.demonstrations.values()] == [["4", "four"], ["6", "six"]]
    assert corpus.prompts[1].reference == "6"
    assert "1 rows repeat an earlier row exactly and were counted once" in corpus.formats


def test_a_completion_with_several_messages_is_refused(tmp_path: Path):
    completion = [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]
    with pytest.raises(DataError, match="a chat of one assistant message"):
        load(tmp_path, [{"prompt": "x", "completion": completion}])


def test_a_prompt_that_begins_with_a_bracket_is_text(tmp_path: Path):
    for text in ("[1, 2] reversed?", '["a", "b"]', "[]", '[{"role": "user"}]'):
        corpus = load(tmp_path, [{"prompt": text, "completion": "x"}])
        assert corpus.prompts[0].messages == (Message(role="user", content=text),)


def test_verl_reads_the_chat_the_truth_and_keeps_the_rest():
    corpus = load_source(SourceOptions(path="countdown_verl.parquet", domain="countdown"), base=SAMPLES)
    first = corpus.prompts[0]
    assert first.reference == {"numbers": [44, 19, 35], "target": 98}
    assert first.messages[0].content.endswith("Let me solve this step by step.\n<think> ")
    assert first.source == "countdown"
    assert first.meta["extra_info"] == {"index": 0, "split": "train"}
    assert first.meta["reward_model"] == {"style": "rule"}
    assert corpus.demonstrations == {}


def test_verl_takes_the_steps_of_a_mapped_column_as_one_demonstration():
    options = SourceOptions(path="countdown_verl.parquet", columns={"demonstration": "hint"}, quality=1.0)
    corpus = load_source(options, base=SAMPLES)
    demonstration = corpus.demonstrations[corpus.prompts[0].id][0]
    assert demonstration.text == "19 + 35 = 54\n44 + 54 = 98\nTherefore, the final equation is 44 + (19 + 35)"
    assert demonstration.quality == 1.0


def test_verl_columns_may_be_json_text_or_null_padded_structs(tmp_path: Path):
    text = {
        "prompt": json.dumps([{"role": "user", "content": "a?"}]),
        "reward_model": '{"ground_truth": "1"}',
    }
    corpus = load(tmp_path, [text])
    assert (corpus.prompts[0].messages[0].content, corpus.prompts[0].reference) == ("a?", "1")
    rows = [
        {
            "prompt": [{"role": "user", "content": "b?"}],
            "reward_model": {"ground_truth": {"a": 0}, "style": "rule"},
        },
        {
            "prompt": [{"role": "user", "content": "c?"}],
            "reward_model": {"ground_truth": {"b": ""}, "style": None},
        },
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "padded.parquet")
    padded = load_source(SourceOptions(path="padded.parquet"), base=tmp_path)
    # Arrow pads both structs to {"a", "b"}; the nulls are gone again, the 0 and the empty text are not.
    assert [prompt.reference for prompt in padded.prompts] == [{"a": 0}, {"b": ""}]
    assert padded.prompts[1].meta == {}


def test_a_rubric_row_of_verl_has_no_reference(tmp_path: Path):
    row = {"prompt": "x", "reward_model": {"ground_truth": "", "rubrics": [{"points": 1}]}}
    (prompt,) = load(tmp_path, [row]).prompts
    assert prompt.reference is None
    assert prompt.meta["reward_model"] == {"rubrics": [{"points": 1}]}


def test_columns_rename_and_reach_into_nested_columns(tmp_path: Path):
    row = {"instruction": "x", "info": {"gold": "9", "who": "Ann"}, "a.b": "z", "response": "y"}
    names = {
        "prompt": "instruction",
        "completion": "response",
        "reference": "info.gold",
        "author": "info.who",
    }
    corpus = load(tmp_path, [row], columns=names)
    assert corpus.prompts[0].reference == "9"
    assert only_demonstration(corpus).author == "Ann"
    assert corpus.prompts[0].meta == {"info": {"gold": "9", "who": "Ann"}, "a.b": "z"}
    assert "column 'info' -> meta, with info.who -> author, info.gold -> reference" in corpus.formats
    assert load(tmp_path, [row], columns=names | {"reference": "a.b"}).prompts[0].reference == "z"


def test_an_empty_column_name_leaves_a_field_out(tmp_path: Path):
    corpus = load(tmp_path, [{"prompt": "x", "difficulty": "hard"}], columns={"difficulty": ""})
    assert (corpus.prompts[0].difficulty, corpus.prompts[0].meta) == (None, {"difficulty": "hard"})


def test_a_field_the_format_does_not_have_is_refused(tmp_path: Path):
    with pytest.raises(
        ConfigError, match=r"columns\.completion is not a field of the format 'verl'; its fields:"
    ):
        load(tmp_path, [{"prompt": "x", "reward_model": {}}], format="verl", columns={"completion": "y"})


def test_lone_surrogates_and_nuls_are_text_like_any_other(tmp_path: Path):
    hostile = "a\x00b \ud800 \u202e \u2028 c"
    corpus = load(tmp_path, [{"prompt": hostile, "completion": hostile, "reference": hostile}])
    assert corpus.prompts[0].messages[0].content == hostile
    assert corpus.prompts[0].reference == hostile
    assert len(corpus.fingerprint) == 64


GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "data.md"
EXAMPLES = re.findall(r"### (\w+)\n.*?```json\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize(
    ("name", "references"),
    [
        ("canonical", ["12", "17", "2"]),
        ("messages", [None, "2"]),
        ("prompt_completion", ["12", None]),
        ("gsm8k", ["72", "2000", "-2"]),
        ("verl", ["12", "2", "17"]),
    ],
)
def test_the_examples_of_the_guide_are_read_as_the_guide_says(
    tmp_path: Path, name: str, references: list[object]
):
    (tmp_path / "a.jsonl").write_text(dict(EXAMPLES)[name], encoding="utf-8")
    corpus = load_source(SourceOptions(path="a.jsonl"), base=tmp_path)
    assert corpus.formats[0] == f"a.jsonl: 3 rows read as '{name}'"
    assert [prompt.reference for prompt in corpus.prompts] == references
