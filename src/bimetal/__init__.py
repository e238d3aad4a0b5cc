"""Post-training of language models with any mixture of supervised and reinforcement learning, on one loop.

The package's own functions are imported when they are first named, so that ``import bimetal`` needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bimetal.studies.runs import open_recipe, resume
    from bimetal.studies.runs import start as train

__all__ = ["open_recipe", "resume", "train"]

_HOMES = {"open_recipe": "open_recipe", "resume": "resume", "train": "start"}


def __getattr__(name: str) -> object:
    """A public function, from the module that holds it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("bimetal.studies.runs"), _HOMES[name])


def __dir__() -> list[str]:
    """The public names."""
    return __all__
