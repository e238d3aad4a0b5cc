"""Language models in and out: embedded, from a folder or from the hub; saved in Hugging Face format.

Weights are read from safetensors only, and no code that comes with a model is ever run.
"""

from __future__ import annotations

import copy
import difflib
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils.logging import disable_progress_bar

from bimetal.config.model import LoraOptions, ModelOptions
from bimetal.core.errors import CheckpointError, ConfigError, boundary
from bimetal.core.streams import Streams
from bimetal.trainer.embedded import load_embedded

ADAPTER_FOLDER = "adapter"
"""Where, inside a saved model's folder, its adapters are."""

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to be trained, and what a run records of it.

    ``module`` is a ``PreTrainedModel``, wrapped by peft where adapters are trained. ``fingerprint``
    is a hash of weights, tokenizer and chat template as they were loaded. ``stop_token_ids`` are the
    ids that the model's generation config ends a text with: what ``Renderer`` wants to know.
    """

    module: nn.Module
    tokenizer: PreTrainedTokenizerBase
    name: str
    fingerprint: str
    stop_token_ids: tuple[int, ...] = ()


def load_causal_lm(options: ModelOptions, *, device: torch.device, base: Path, seed: int) -> LoadedModel:
    """The model of a recipe's ``[model]`` section.

    Args:
        options: The section.
        device: Where the weights go.
        base: The folder that a relative path starts from: the recipe's.
        seed: The run's seed; it draws what has no weights yet (lab/nano, adapters).

    Raises:
        ConfigError: There is no such model, or it cannot be used; says what was found.
    """
    # Its bars would stand between the run's own lines; the run reports what takes time.
    disable_progress_bar()
    if options.name.startswith("lab/"):
        module, tokenizer = load_embedded(options.name, seed=seed)
    else:
        module, tokenizer = _pretrained(options, base)
    # Through the base class: transformers' own ``to`` is wrapped in a way that hides its type.
    nn.Module.to(module, dtype=getattr(torch, options.dtype))
    embedding: Any = module.get_input_embeddings()
    rows = int(embedding.weight.shape[0])
    if len(tokenizer) > rows:
        raise ConfigError(
            f"model {options.name}: the tokenizer is not the model's; found {len(tokenizer)} tokens "
            f"for {rows} rows of the embedding; put the model's own tokenizer beside its weights"
        )
    fingerprint = _fingerprint(module, tokenizer)
    stop_token_ids = _generation_stops(module)
    if options.lora is not None:
        module = _with_adapters(module, options.lora, seed=seed)
    return LoadedModel(
        module=nn.Module.to(module, device),
        tokenizer=tokenizer,
        name=options.name,
        fingerprint=fingerprint,
        stop_token_ids=stop_token_ids,
    )


def save_model(
    module: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    *,
    adapters: Literal["merged", "alone"] = "merged",
) -> None:
    """Write model and tokenizer in Hugging Face format; the folder appears when it is complete.

    A module with adapters is written twice: merged into the weights, which loads everywhere, and
    the adapters for themselves in the folder ``adapter``; with "alone", only the adapters.

    Raises:
        CheckpointError: The folder cannot be written.
    """
    with boundary(CheckpointError, f"save the model in {folder}"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as work:
            made = Path(work) / "made"
            _write(module, made, adapters)
            tokenizer.save_pretrained(made)
            if not folder.exists():
                made.rename(folder)
                _forget_killed_writers(folder, keep=Path(work))
                return
            # A folder cannot be replaced in one step: the old one moves away, and back if the new
            # one cannot take its place.
            old = Path(work) / "old"
            folder.rename(old)
            try:
                made.rename(folder)
            except OSError:
                old.rename(folder)
                raise
            _forget_killed_writers(folder, keep=Path(work))


def _forget_killed_writers(folder: Path, *, keep: Path) -> None:
    """Delete what an earlier writer of this folder left when it was killed, now that a whole one stands."""
    for left in folder.parent.glob(f".{folder.name}-*"):
        if left != keep and left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)


def _write(module: nn.Module, made: Path, adapters: Literal["merged", "alone"]) -> None:
    model: Any = module
    if not hasattr(model, "merge_and_unload"):
        model.save_pretrained(made)
        return
    made.mkdir()
    model.save_pretrained(made / ADAPTER_FOLDER)
    if adapters == "merged":
        # Merging in place and back would leave rounding in the weights that are being trained.
        copy.deepcopy(model).merge_and_unload().save_pretrained(made)


def _pretrained(options: ModelOptions, base: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A model from a folder, if there is one of this name, else from the hub."""
    folder = base / Path(options.name).expanduser()
    if folder.is_dir():
        _check_folder(folder)
        source, revision = str(folder), None
    elif _looks_like_path(options.name):
        raise ConfigError(
            f"model.name: there is no folder {options.name!r}; {_nearest_folder(folder)}; "
            "write a folder's path, a model id of the hub, lab/nano or lab/smollm2"
        )
    else:
        source, revision = options.name, options.revision
    what = f"model {options.name}: load"
    with boundary(ConfigError, what):
        config, _ = PretrainedConfig.get_config_dict(source, revision=revision)
    _check_config(options.name, config)
    with boundary(ConfigError, what):
        shared = {"revision": revision, "trust_remote_code": False}
        dtype = getattr(torch, options.dtype)
        # transformers types this call as if it gave the model alone.
        loader: Any = AutoModelForCausalLM
        model, loading = loader.from_pretrained(
            source, dtype=dtype, use_safetensors=True, output_loading_info=True, **shared
        )
        tokenizer = AutoTokenizer.from_pretrained(source, **shared)
    if missing := sorted(loading["missing_keys"]):
        raise ConfigError(
            f"model {options.name}: {len(missing)} of its weights are in no file, among them "
            f"{', '.join(missing[:3])}; they would be random. Complete the folder"
        )
    return model, tokenizer


def _looks_like_path(name: str) -> bool:
    return _HUB_ID.fullmatch(name) is None


def _nearest_folder(folder: Path) -> str:
    """What stands where the folder was looked for, for the error message."""
    if not folder.parent.is_dir():
        return f"found no folder {folder.parent.name!r} either"
    names = sorted(path.name for path in folder.parent.iterdir() if path.is_dir())
    near = difflib.get_close_matches(folder.name, names, n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else f"found there: {', '.join(names[:8]) or 'no folder'}"


def _check_folder(folder: Path) -> None:
    """Refuse a folder that holds no model, or one whose weights are pickles."""
    if not (folder / "config.json").is_file():
        advice = "save a model there in Hugging Face format"
        if (folder / "adapter_config.json").is_file():
            advice = "it holds adapters alone; merge them into their model and name that folder"
        raise ConfigError(f"model.name: {folder.name} is no model folder; found no config.json; {advice}")
    if any(folder.glob("*.safetensors")):
        return
    pickles = sorted(path.name for pattern in _PICKLES for path in folder.glob(pattern))
    if pickles:
        raise ConfigError(
            f"model.name: {folder.name} holds its weights as pickles, which can run code when they are read; "
            f"found {', '.join(pickles[:3])}; convert them with model.save_pretrained of transformers"
        )
    raise ConfigError(
        f"model.name: {folder.name} has no weights; found no *.safetensors file; "
        "copy model.safetensors there, or all its shards and their index"
    )


def _check_config(name: str, config: Mapping[str, object]) -> None:
    """Refuse a model that wants to run its own code, and one whose weights are quantised."""
    if config.get("auto_map"):
        raise ConfigError(
            f"model {name}: it needs code of its own, which is never run; found auto_map in its config.json; "
            "use a model of an architecture that transformers has"
        )
    if config.get("quantization_config"):
        raise ConfigError(
            f"model {name}: its weights are quantised and cannot be trained; found quantization_config in "
            "its config.json; use the model in its full precision"
        )


def _with_adapters(module: PreTrainedModel, options: LoraOptions, *, seed: int) -> nn.Module:
    """The model with trainable low-rank adapters that change nothing yet; all else is frozen."""
    if find_spec("peft") is None:
        raise ConfigError("model.lora: found no package peft; run: pip install 'bimetal[lora]'")
    from peft import LoraConfig, get_peft_model

    targets = options.target_modules
    config = LoraConfig(
        r=options.rank,
        lora_alpha=options.alpha,
        # Dropout would draw from the global generator, and rollouts are written without it.
        lora_dropout=0.0,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
    )
    # The constructor draws from the global generator; its state is put back, its numbers are replaced.
    with torch.random.fork_rng(devices=[]), boundary(ConfigError, "model.lora"):
        adapted = get_peft_model(module, config)
    streams = Streams(seed)
    for name, weight in adapted.named_parameters():
        if ".lora_A." in name:
            bound = weight.shape[1] ** -0.5
            noise = streams.generator("adapter", name).uniform(-bound, bound, tuple(weight.shape))
            with torch.no_grad():
                weight.copy_(torch.from_numpy(noise.astype(np.float32)))
    return adapted


def _generation_stops(module: PreTrainedModel) -> tuple[int, ...]:
    """The end-of-text ids of the generation config: none, one, or several."""
    eos: Any = getattr(module.generation_config, "eos_token_id", None)
    if eos is None:
        return ()
    return tuple(int(i) for i in (eos if isinstance(eos, list | tuple) else [eos]))


def _fingerprint(module: nn.Module, tokenizer: PreTrainedTokenizerBase) -> str:
    """A hash of all weights by name, of the vocabulary and of the chat template."""
    digest = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    digest.update(json.dumps([tokenizer.get_vocab(), tokenizer.chat_template], sort_keys=True).encode())
    return digest.hexdigest()
