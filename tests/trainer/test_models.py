"""Tests of bimetal.trainer.models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from bimetal.config.model import LoraOptions, ModelOptions
from bimetal.core.errors import CheckpointError, ConfigError, UnknownNameError
from bimetal.trainer.embedded import nano_tokenizer
from bimetal.trainer.models import load_causal_lm, save_model

CPU = torch.device("cpu")
IDS = torch.tensor([[5, 6, 7, 8, 9]])


def tiny(vocabulary=400, **changes):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = {
            "vocab_size": vocabulary, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 2, "max_position_embeddings": 64, "bos_token_id": None, "eos_token_id": 4,
        }  # fmt: skip
        return LlamaForCausalLM(LlamaConfig(**config | changes)).eval()


def load(name, base=Path(), seed=0, **options):
    return load_causal_lm(ModelOptions(name=str(name), **options), device=CPU, base=base, seed=seed)


def logits(module):
    with torch.no_grad():
        return module(input_ids=IDS).logits


@pytest.fixture
def folder(tmp_path):
    save_model(tiny(), nano_tokenizer(), tmp_path / "model")
    return tmp_path / "model"


def test_a_saved_model_loads_in_transformers(folder):
    again = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.equal(logits(again), logits(tiny()))
    assert AutoTokenizer.from_pretrained(folder).chat_template == nano_tokenizer().chat_template
    assert [path.suffix for path in folder.iterdir() if path.stat().st_size > 100_000] == []
    assert (folder / "model.safetensors").is_file()


def test_what_a_killed_writer_left_goes_when_a_whole_model_stands(tmp_path):
    left = tmp_path / ".model-k1lled" / "made"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"half")
    (tmp_path / ".models-of-others").mkdir()
    for _ in range(2):
        save_model(tiny(), nano_tokenizer(), tmp_path / "model")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".models-of-others", "model"]


def test_a_folder_is_loaded_by_relative_and_by_absolute_path(folder):
    for name, base in ((folder, Path()), ("model", folder.parent), ("./model", folder.parent)):
        loaded = load(name, base)
        assert torch.equal(logits(loaded.module), logits(tiny()))
        assert loaded.name == str(name)


def test_master_weights_have_the_asked_type_whatever_was_saved(tmp_path):
    save_model(tiny().to(torch.bfloat16), nano_tokenizer(), tmp_path / "half")
    assert {p.dtype for p in load(tmp_path / "half").module.parameters()} == {torch.float32}
    assert {p.dtype for p in load("lab/nano", dtype="float64").module.parameters()} == {torch.float64}


def test_the_fingerprint_belongs_to_weights_and_template(folder, tmp_path):
    first = load(folder).fingerprint
    assert load(folder).fingerprint == first
    changed = nano_tokenizer()
    changed.chat_template += " "
    save_model(tiny(), changed, tmp_path / "template")
    other = tiny()
    with torch.no_grad():
        other.lm_head.weight[0, 0] += 1e-3
    save_model(other, nano_tokenizer(), tmp_path / "weights")
    assert len({first, load(tmp_path / "template").fingerprint, load(tmp_path / "weights").fingerprint}) == 3


def test_a_missing_folder_is_answered_with_the_nearest(folder):
    with pytest.raises(ConfigError, match=r"no folder './modle'; did you mean 'model'"):
        load("./modle", folder.parent)
    with pytest.raises(ConfigError, match="found no folder 'absent' either"):
        load("./absent/model", folder.parent)


def test_an_unknown_lab_model_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'lab/nano'"):
        load("lab/nan")


def test_a_hub_id_that_cannot_be_had_is_an_error_of_ours(tmp_path):
    # The tests run with the hub switched off, so no id can be had.
    with pytest.raises(ConfigError, match="model no-such-owner/no-such-model: load"):
        load("no-such-owner/no-such-model", tmp_path)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"found no config\.json; save a model"):
        load(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="holds adapters alone; merge them"):
        load(tmp_path)


def test_a_folder_without_weights_is_refused(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"model has no weights; found no \*\.safetensors"):
        load(folder)


def test_a_folder_that_lacks_a_weight_is_refused(folder):
    weights = load_file(folder / "model.safetensors")
    del weights["model.embed_tokens.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"1 of its weights are in no file, among them model\.embed_tokens"):
        load(str(folder))


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_pickled_weights_are_refused_without_being_read(folder, name):
    (folder / "model.safetensors").rename(folder / name)
    with pytest.raises(ConfigError, match=f"as pickles.*found {name}; convert them"):
        load(folder)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"auto_map": {"AutoModelForCausalLM": "evil.Model"}}, "needs code of its own, which is never run"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantised and cannot be trained"),
    ],
)
def test_a_config_that_asks_for_more_than_weights_is_refused(folder, entry, message):
    (folder / "evil.py").write_text("raise SystemExit('ran')")
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entry))
    with pytest.raises(ConfigError, match=message):
        load(folder)


def test_a_damaged_file_is_an_error_of_ours(folder):
    (folder / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(ConfigError, match="load"):
        load(folder)


def test_a_tokenizer_larger_than_the_embedding_is_refused(tmp_path):
    save_model(tiny(vocabulary=100), nano_tokenizer(), tmp_path / "model")
    with pytest.raises(ConfigError, match=r"tokenizer is not the model's; found \d+ tokens for 100 rows"):
        load(tmp_path / "model")


def test_saving_replaces_an_older_model_and_leaves_nothing_else(folder):
    other = tiny()
    with torch.no_grad():
        other.lm_head.weight.zero_()
    (folder / "stale.txt").write_text("old")
    save_model(other, nano_tokenizer(), folder)
    assert torch.equal(logits(load(folder).module), logits(other))
    assert not (folder / "stale.txt").exists()
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_a_folder_that_cannot_be_written_is_an_error_of_ours(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="save the model in"):
        save_model(tiny(), nano_tokenizer(), tmp_path / "file" / "model")


LORA = LoraOptions(rank=4, alpha=8)


def test_adapters_change_nothing_at_first_and_train_alone(folder):
    pytest.importorskip("peft")
    module = load(folder, lora=LORA).module
    assert torch.allclose(logits(module), logits(tiny()), atol=1e-6)
    trained = {name for name, p in module.named_parameters() if p.requires_grad}
    assert trained
    assert all(".lora_" in name for name in trained)


def test_adapters_belong_to_the_seed(folder):
    pytest.importorskip("peft")

    def first(seed):
        module = load(folder, seed=seed, lora=LORA).module
        return next(p for n, p in module.named_parameters() if ".lora_A." in n)

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))


def test_adapters_are_saved_merged_and_alone(folder, tmp_path):
    peft = pytest.importorskip("peft")
    loaded = load(folder, lora=LORA)
    with torch.no_grad():
        for name, parameter in loaded.module.named_parameters():
            if ".lora_B." in name:
                parameter.fill_(0.05)
    before = {name: p.clone() for name, p in loaded.module.state_dict().items()}
    expected = logits(loaded.module)
    assert not torch.allclose(expected, logits(tiny()), atol=1e-3)
    save_model(loaded.module, loaded.tokenizer, tmp_path / "both")
    assert torch.allclose(logits(load(tmp_path / "both").module), expected, atol=1e-5)
    wrapped = peft.PeftModel.from_pretrained(tiny(), tmp_path / "both" / "adapter")
    assert torch.allclose(logits(wrapped), expected, atol=1e-6)
    save_model(loaded.module, loaded.tokenizer, tmp_path / "alone", adapters="alone")
    assert not (tmp_path / "alone" / "model.safetensors").exists()
    assert (tmp_path / "alone" / "adapter" / "adapter_model.safetensors").is_file()
    # Saving has not touched what is being trained.
    assert all(torch.equal(before[name], p) for name, p in loaded.module.state_dict().items())


def test_adapters_for_layers_that_do_not_exist_are_an_error_of_ours(folder):
    pytest.importorskip("peft")
    with pytest.raises(ConfigError, match=r"model\.lora"):
        load(folder, lora=LoraOptions(target_modules=("no_such_layer",)))


def test_a_sharded_model_is_loaded(tmp_path):
    tiny().save_pretrained(tmp_path / "model", max_shard_size="20KB")
    nano_tokenizer().save_pretrained(tmp_path / "model")
    assert len(list((tmp_path / "model").glob("*.safetensors"))) > 1
    assert torch.equal(logits(load(tmp_path / "model").module), logits(tiny()))
    shutil.rmtree(tmp_path / "model")


@pytest.mark.parametrize(("eos", "stops"), [(None, ()), (4, (4,)), ([4, 7], (4, 7))])
def test_stop_ids_are_those_of_the_generation_config(tmp_path, eos, stops):
    module = tiny()
    module.generation_config.eos_token_id = eos
    save_model(module, nano_tokenizer(), tmp_path / "model")
    assert load(tmp_path / "model").stop_token_ids == stops
