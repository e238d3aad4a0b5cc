"""Files that are either whole or not there: written beside their place, flushed, then renamed."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Generator
from pathlib import Path

from bimetal.core.errors import CheckpointError

_BLOCK = 2**20


def write_atomic(path: Path, data: bytes) -> None:
    """Put these bytes at ``path``, flushed to disk; a reader sees the old file or the new one.

    Raises:
        CheckpointError: The disk is full or not writable; the old file, if any, is untouched.
    """
    with writing(path):
        temporary = path.with_name(f".{path.name}.part")
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)


@contextlib.contextmanager
def writing(path: Path) -> Generator[None]:
    """Turn an operating-system error while writing below ``path`` into one that says what to do.

    Raises:
        CheckpointError: Writing failed.
    """
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"cannot write {path}: {error.strerror or error}. What was saved before is intact; "
            "free space or fix the permissions of the folder, then resume the run"
        ) from error


def sync_folder(folder: Path) -> None:
    """Flush a folder's list of names, so that a rename survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256_of(path: Path) -> str:
    """The hash of a file's content, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
