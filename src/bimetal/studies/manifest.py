"""The manifest: what a run was started with and on, as far as it can change its numbers."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import torch

from bimetal.config.schema import Recipe
from bimetal.core.catalogue import locate
from bimetal.core.errors import CheckpointError
from bimetal.studies.local_code import file_name, local_files, without_folders
from bimetal.trainer.prepare import Parts

FORMAT = 1
LIBRARIES = ("bimetal", "torch", "transformers", "numpy", "tokenizers", "safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """``exact`` are facts that a resumed run must share; ``notes`` are for people."""

    exact: Mapping[str, str]
    notes: Mapping[str, str]
    format: int = FORMAT

    def to_bytes(self) -> bytes:
        """As JSON."""
        return (json.dumps(asdict(self), indent=1, sort_keys=True) + "\n").encode("ascii")

    def differences(self, now: Manifest) -> list[str]:
        """What is not as it was, in words."""
        return [
            f"{name} was {self.exact.get(name, 'not there')}, is {now.exact.get(name, 'not there')}"
            for name in sorted({*self.exact, *now.exact})
            if self.exact.get(name) != now.exact.get(name)
        ]


def manifest_of(parts: Parts) -> Manifest:
    """The manifest of a run with these parts on this machine."""
    exact = {f"version of {name}": version(name) for name in LIBRARIES}
    exact |= {
        "python": platform.python_version(),
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "threads": str(torch.get_num_threads()),
        "device": str(next(parts.policy.parameters()).device),
        "recipe (output, budget and kept checkpoints aside)": recipe_fingerprint(parts.recipe),
        "data fingerprint": parts.work.fingerprint,
        "model fingerprint": parts.model.fingerprint,
    }
    for kind, name in local_files(parts.recipe):
        exact[f"code of {file_name(name)}"] = locate(kind, name, base=parts.base, code=parts.code).sha256
    notes = {f"distinct problems of {domain}": str(n) for domain, n in parts.work.distinct.items()}
    notes |= {"seed": str(parts.recipe.seed), "model": parts.model.name, "platform": platform.platform()}
    notes |= {f"data {n}": text for n, text in enumerate(parts.work.notes)}
    return Manifest(exact=exact, notes=notes)


def recipe_fingerprint(recipe: Recipe) -> str:
    """A hash of what a recipe says, but for what may change between two parts of a run."""
    document = without_folders(json.loads(recipe.model_dump_json()))
    free = (document, "output"), (document["budget"], "amount"), (document["budget"], "wall_seconds")
    for table, key in (*free, (document["trainer"], "keep_checkpoints")):
        del table[key]
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode("ascii")).hexdigest()


def read_manifest(path: Path) -> Manifest:
    """The manifest of a run folder.

    Raises:
        CheckpointError: It is missing or not a manifest.
    """
    try:
        document = json.loads(path.read_text(encoding="ascii"))
        if document["format"] != FORMAT:
            raise CheckpointError(f"{path}: format {document['format']}; this version reads {FORMAT}")
        return Manifest(
            exact={str(k): str(v) for k, v in document["exact"].items()},
            notes={str(k): str(v) for k, v in document["notes"].items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{path}: not a manifest: {error}; the run folder is incomplete or damaged"
        ) from error
