"""Checkpoints: everything that has state, saved and restored together, atomically and with checksums.

Tensors are safetensors, everything else is JSON: nothing in a checkpoint can execute. A folder that a
stranger crafted - links, paths that leave the folder, pickles - is refused.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from bimetal.core.errors import CheckpointError, boundary
from bimetal.core.files import sha256_of, sync_folder, write_atomic, writing
from bimetal.core.types import JsonValue

LIST = "files.json"
STATE = "state.json"
FORMAT = 1
_NAME = re.compile(r"[a-z][a-z0-9_.-]*\.(?:safetensors|json)")
_FOLDER = re.compile(r"step-(\d{8})")

log = logging.getLogger(__name__)


class Checkpoints:
    """The checkpoints of one run, newest kept."""

    def __init__(self, folder: Path, *, keep: int = 2) -> None:
        """Use this folder; ``keep`` newest checkpoints stay on disk."""
        self._folder = folder
        self._keep = keep

    def save(
        self, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, JsonValue]
    ) -> Path:
        """Write one checkpoint; it exists whole or not at all.

        Args:
            step: Optimizer steps taken.
            tensors: File stem -> named tensors.
            state: Everything else, as JSON.

        Raises:
            CheckpointError: It cannot be written; earlier checkpoints are intact.
        """
        final = self._folder / f"step-{step:08d}"
        work, old = self._folder / f".{final.name}.part", self._old(step)
        with writing(final):
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
            try:
                _write(work, step, tensors, state)
            except BaseException:
                # What cannot be finished must not hold the space that is missing.
                shutil.rmtree(work, ignore_errors=True)
                raise
            if final.exists():
                # No folder is replaced in one step: until the new one is there, the old one has another name.
                shutil.rmtree(old, ignore_errors=True)
                final.rename(old)
            work.rename(final)
            sync_folder(self._folder)
            shutil.rmtree(old, ignore_errors=True)
            for before in self.steps()[: -self._keep]:
                shutil.rmtree(self._folder / f"step-{before:08d}")
        return final

    def _old(self, step: int) -> Path:
        """Where a checkpoint stands while one of the same step takes its place."""
        return self._folder / f".step-{step:08d}.old"

    def steps(self) -> list[int]:
        """Steps of the checkpoints on disk, oldest first."""
        if not self._folder.is_dir():
            return []
        found = (_FOLDER.fullmatch(p.name) for p in self._folder.iterdir())
        return sorted({int(match.group(1)) for match in found if match})

    def load_newest(self) -> tuple[int, dict[str, dict[str, Tensor]], dict[str, Any]] | None:
        """The newest intact checkpoint, or ``None`` where there is none; a damaged one is passed over, aloud.

        Raises:
            CheckpointError: There are checkpoints, but none is intact.
        """
        self._put_back()
        reasons: list[str] = []
        for step in reversed(self.steps()):
            folder = self._folder / f"step-{step:08d}"
            try:
                with boundary(CheckpointError, f"{folder}: cannot be read"):
                    tensors, state = _read(folder)
            except CheckpointError as error:
                reasons.append(str(error))
                log.warning("checkpoint of step %d is damaged and passed over: %s", step, error)
                continue
            return step, tensors, state
        if reasons:
            raise CheckpointError("no intact checkpoint: " + "; ".join(reasons))
        return None

    def _put_back(self) -> None:
        """Give a checkpoint its name again where a kill came between its removal and its successor."""
        for path in self._folder.glob(".step-*.old") if self._folder.is_dir() else ():
            final = self._folder / path.name.removeprefix(".").removesuffix(".old")
            with writing(final):
                if final.exists():
                    shutil.rmtree(path)
                else:
                    path.rename(final)


def _write(
    work: Path, step: int, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, JsonValue]
) -> None:
    """All files of one checkpoint and the list of their checksums, flushed to disk."""
    try:
        for stem, named in tensors.items():
            save_file({k: v.contiguous().cpu() for k, v in named.items()}, work / f"{stem}.safetensors")
    except SafetensorError as error:
        raise CheckpointError(
            f"cannot write {work}: {error}. Earlier checkpoints are intact; free space, then resume the run"
        ) from error
    write_atomic(work / STATE, json.dumps(state, allow_nan=False).encode("ascii"))
    names = sorted(p.name for p in work.iterdir())
    for name in names:
        _flush(work / name)
    listing = {"format": FORMAT, "step": step, "files": {n: sha256_of(work / n) for n in names}}
    write_atomic(work / LIST, json.dumps(listing).encode("ascii"))


def _read(folder: Path) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    listing = _json(_regular(folder, LIST))
    files = listing.get("files") if isinstance(listing, dict) else None
    if not isinstance(files, dict) or listing.get("format") != FORMAT or STATE not in files:
        raise CheckpointError(f"{folder / LIST}: not a checkpoint of format {FORMAT}")
    extra = sorted(p.name for p in folder.iterdir() if p.name not in {*files, LIST})
    if extra:
        raise CheckpointError(f"{folder}: holds files its list does not name: {', '.join(extra[:5])}")
    tensors: dict[str, dict[str, Tensor]] = {}
    for name, checksum in files.items():
        path = _regular(folder, name)
        if sha256_of(path) != checksum:
            raise CheckpointError(f"{path}: its checksum is not the one it was saved with")
        if name.endswith(".safetensors"):
            with boundary(CheckpointError, f"{path}: not a safetensors file"):
                tensors[name.removesuffix(".safetensors")] = load_file(path)
    state = _json(folder / STATE)
    if not isinstance(state, dict):
        raise CheckpointError(f"{folder / STATE}: must be one JSON object; found {type(state).__name__}")
    return tensors, state


def _regular(folder: Path, name: str) -> Path:
    """The path of a plain file directly inside a plain folder."""
    path = folder / name
    if not _NAME.fullmatch(name) or ".." in name:
        raise CheckpointError(
            f"{folder}: names a file {name!r}; only plain .safetensors and .json names are read"
        )
    if folder.is_symlink() or path.is_symlink() or not path.is_file():
        raise CheckpointError(f"{path}: missing, or a link; a checkpoint holds plain files only")
    return path


def _json(path: Path) -> Any:  # noqa: ANN401 - the shape is checked by whoever reads a field
    try:
        return json.loads(path.read_text(encoding="ascii"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: not JSON: {error}") from error


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
