"""The `[model]` section of a recipe: which language model is trained, where, and how much of it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bimetal.config.options import Options


class LoraOptions(Options):
    """Low-rank adapters (arXiv:2106.09685) that are trained instead of the model's own weights."""

    rank: int = Field(default=16, ge=1, le=1024)
    """Rank of the adapters; their size grows with it."""

    alpha: int = Field(default=32, ge=1)
    """Scale of the adapters; they are multiplied by alpha / rank."""

    target_modules: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    """Names of the layers that get an adapter; all-linear takes every linear layer but the head."""


class ModelOptions(Options):
    """The language model that is trained."""

    name: str = Field(default="lab/nano", min_length=1)
    """`lab/nano`, `lab/smollm2`, a folder in Hugging Face format, or the id of a model on the hub."""

    revision: str = Field(default="main", min_length=1)
    """Commit, tag or branch of a model on the hub; a commit makes the run repeatable."""

    dtype: Literal["float32", "float64"] = "float32"
    """Type of the master weights and the optimizer's state; float64 is for checks."""

    autocast: Literal["auto", "off", "bfloat16"] = "auto"
    """Type of the matrix products; auto takes bfloat16 where the processor computes in it."""

    device: str = Field(default="auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    """Where the model lives: `cpu`, `mps`, `cuda`, `cuda:1`; auto takes the best there is."""

    lora: LoraOptions | None = None
    """Adapters to train instead of all weights; needs the extra `bimetal[lora]`."""
