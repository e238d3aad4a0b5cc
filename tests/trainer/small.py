"""Runs small enough to be made many times in a test, and what is compared of them."""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from bimetal.config.load import resolve
from bimetal.config.schema import Recipe
from bimetal.trainer.embedded import nano_tokenizer
from bimetal.trainer.models import save_model
from bimetal.trainer.report import Line

COUNTS, DEMONSTRATED = {"train": 24, "selection": 8, "test": 8}, 0.75
"""So few problems that every run sees some of them twice; not all of them with a demonstration."""

METHODS: Mapping[str, Sequence[dict[str, object]]] = {
    "sft": [{"method": {"name": "sft"}, "prompts_per_batch": 6}],
    "grpo": [
        {
            "method": {"name": "grpo"}, "prompts_per_batch": 4, "group_size": 3, "updates_per_rollout": 2,
            "epochs": 2, "optimizer": {"schedule": "cosine", "warmup_share": 0.2, "learning_rate": 1e-3},
        }
    ],
    "grpo_beta": [{"method": {"name": "grpo", "beta": 0.1}, "prompts_per_batch": 3, "group_size": 3}],
    "ppo": [{"method": {"name": "ppo"}, "prompts_per_batch": 4, "group_size": 2, "updates_per_rollout": 2}],
    "chord": [
        {"method": {"name": "chord"}, "prompts_per_batch": 3, "group_size": 2, "demonstration_prompts": 2}
    ],
    "luffy": [{"method": {"name": "luffy"}, "prompts_per_batch": 3, "group_size": 3}],
    "two_stages": [
        {"method": {"name": "sft"}, "prompts_per_batch": 6, "share": 0.4},
        {"method": {"name": "grpo", "beta": 0.1}, "prompts_per_batch": 3, "group_size": 2, "share": 0.6},
    ],
}  # fmt: skip
"""A recipe per kind of state: optimizer, more updates, reference, critic, second stream, groups, stages."""


def save_tiny_model(folder: Path) -> Path:
    """A model with nano's tokenizer that costs next to nothing; the folder itself."""
    config = LlamaConfig(
        vocab_size=len(nano_tokenizer()), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=256, bos_token_id=None,
        eos_token_id=nano_tokenizer().eos_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        save_model(LlamaForCausalLM(config).eval(), nano_tokenizer(), folder)
    return folder


def recipe(
    output: Path, *, model: Path | str, stage: Sequence[dict[str, object]], **changes: object
) -> Recipe:
    """A run of 8 optimizer steps with evaluations and checkpoints in between."""
    table: dict[str, object] = {
        "name": "small",
        "seed": 3,
        "output": str(output),
        "model": {"name": str(model)},
        "domain": {
            "lab_arithmetic": {
                "count": COUNTS, "least_digits": 2, "most_digits": 2, "covered_share": DEMONSTRATED,
            },
        },
        "budget": {"currency": "optimizer_steps", "amount": 8},
        "trainer": {
            "threads": 1, "checkpoint_every_steps": 3, "max_prompt_tokens": 48, "max_response_tokens": 48,
            "source_gradient_every": 3,
        },
        "evaluation": {"every_steps": 4, "problems_per_domain": 4},
        "stage": [dict(one) for one in stage],
    }  # fmt: skip
    return resolve(table | changes)


class Interrupt:
    """A view that presses Ctrl-C when it sees the line of this step."""

    def __init__(self, *, at: int) -> None:
        self._at = at

    def line(self, line: Line) -> None:
        if line.step == self._at and "budget/progress" in line.metrics:
            signal.raise_signal(signal.SIGINT)

    def note(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


class Noted:
    """A view that keeps what people are told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def line(self, line: Line) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)

    def close(self) -> None:
        pass


def weights_hash(folder: Path) -> str:
    """The hash of the finished model's weights."""
    return hashlib.sha256((folder / "model" / "model.safetensors").read_bytes()).hexdigest()


def lines_without_times(folder: Path) -> list[str]:
    """The metrics of a run but for what depends on the clock, exactly as written."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("ascii").splitlines()]
    return [json.dumps({key: value for key, value in row.items() if key != "times"}) for row in rows]
