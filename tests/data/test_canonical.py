"""What is written in the canonical schema loads as what it was."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bimetal.config.data import SourceOptions
from bimetal.core.errors import DataError
from bimetal.core.types import Demonstration, Message, Prompt, PromptId, Stream
from bimetal.data.canonical import write_canonical
from bimetal.data.corpus import Corpus
from bimetal.data.records import load_source


def as_json_reads_it(text: str) -> str:
    """Lone surrogates stay; a high one before a low one is what it stands for."""
    return json.loads(json.dumps(text))


texts = st.text(st.characters(exclude_categories=()), max_size=20).map(as_json_reads_it)
words = texts.filter(lambda text: bool(text.strip()))
numbers = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**18), 10**18) | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
tokens = st.none() | st.lists(st.tuples(st.integers(0, 10**6), numbers.map(lambda x: -abs(x))), max_size=3)


@st.composite
def demonstrations(draw: st.DrawFn, prompt_id: PromptId) -> Demonstration:
    known = draw(tokens)
    return Demonstration(
        prompt_id=prompt_id,
        text=draw(words),
        author=draw(st.just("") | words),
        quality=draw(st.none() | st.floats(0.0, 1.0)),
        token_ids=None if known is None else tuple(token for token, _ in known),
        author_logprobs=None if known is None else tuple(logprob for _, logprob in known),
    )


@st.composite
def corpora(draw: st.DrawFn) -> Corpus:
    names = draw(st.lists(words, min_size=1, max_size=3, unique=True))
    prompts: list[Prompt] = []
    library: dict[PromptId, tuple[Demonstration, ...]] = {}
    for name in names:
        turns = draw(
            st.lists(
                st.builds(Message, role=st.sampled_from(["system", "assistant"]), content=texts), max_size=2
            )
        )
        prompt = Prompt(
            id=PromptId(name),
            domain=draw(st.just("") | words),
            messages=(*turns, Message(role="user", content=draw(words))),
            reference=draw(values),
            difficulty=draw(st.none() | numbers),
            problem=draw(words),
            stream=draw(st.sampled_from(Stream)),
            source=draw(words),
            meta=draw(st.dictionaries(texts, values, max_size=2)),
        )
        prompts.append(prompt)
        found = draw(st.lists(demonstrations(prompt.id), max_size=2))
        if found:
            library[prompt.id] = tuple(found)
    return Corpus(prompts=tuple(prompts), demonstrations=library)


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
@given(corpus=corpora())
def test_writing_and_loading_gives_the_same_prompts_and_demonstrations(name: str, corpus: Corpus):
    with TemporaryDirectory() as folder:
        write_canonical(corpus, Path(folder) / name)
        again = load_source(SourceOptions(path=name, format="canonical"), base=Path(folder))
    assert again.prompts == corpus.prompts
    assert again.demonstrations == corpus.demonstrations
    assert again.fingerprint == corpus.fingerprint


def small(**changes: object) -> Corpus:
    prompt = Prompt(
        id=PromptId("a"), domain="d", messages=(Message(role="user", content="x"),), problem="p", **changes
    )
    return Corpus(prompts=(prompt,))


def test_the_format_of_a_written_file_is_told_by_its_columns(tmp_path: Path):
    for name in ("a.jsonl", "a.parquet"):
        write_canonical(small(reference="1", source="s"), tmp_path / name)
        assert (
            load_source(SourceOptions(path=name), base=tmp_path).prompts
            == small(reference="1", source="s").prompts
        )


def test_the_parquet_file_is_plain_where_arrow_can_hold_it(tmp_path: Path):
    write_canonical(small(reference={"n": [1, 2.5, None]}), tmp_path / "a.parquet")
    (row,) = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert (row["id"], row["messages"]) == ("a", [{"role": "user", "content": "x"}])
    assert row["reference"] == '{"n":[1,2.5,null]}'


def test_an_empty_reference_is_not_an_unknown_one(tmp_path: Path):
    for reference in ("", [], {}, 0, False):
        write_canonical(small(reference=reference), tmp_path / "a.jsonl")
        (prompt,) = load_source(SourceOptions(path="a.jsonl", format="canonical"), base=tmp_path).prompts
        assert (prompt.reference, type(prompt.reference)) == (reference, type(reference))


def test_the_fingerprint_changes_with_anything_that_is_learned_from():
    prints = {
        small().fingerprint,
        small(reference="1").fingerprint,
        small(reference=1).fingerprint,
        small(meta={"a": 1}).fingerprint,
        small(stream=Stream.DEMONSTRATIONS).fingerprint,
    }
    assert len(prints) == 5


def test_another_kind_of_file_is_refused(tmp_path: Path):
    with pytest.raises(DataError, match=r"a\.csv: the canonical schema is written to \.jsonl or \.parquet"):
        write_canonical(small(), tmp_path / "a.csv")
