"""The journal: finished traces and verdicts, flushed to disk before they are used (design contract C4).

One file per roll-out batch. The unit is the generation call: its traces enter together when the last is
finished. A run that is killed and resumed takes what the journal holds and never generates or judges
it again. Each line carries a checksum, so a line that was cut by the kill is recognized and dropped.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bimetal.core.errors import CheckpointError, boundary
from bimetal.core.files import sync_folder, write_atomic, writing
from bimetal.core.types import JsonValue, Trace, TraceId, Verdict
from bimetal.rollout.record import trace_from_json, trace_to_json, verdict_from_json, verdict_to_json

_FILE = re.compile(r"batch-(\d{8})\.jsonl")


class Journal:
    """The journal of one run; ``open_batch`` selects the roll-out batch that is written and recalled."""

    def __init__(self, folder: Path) -> None:
        """Use this folder, making it if needed."""
        self._folder = folder
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._path: Path | None = None
        self._calls: dict[str, tuple[Trace, ...]] = {}
        self._verdicts: dict[TraceId, Verdict] = {}
        self._order: tuple[TraceId, ...] | None = None

    def open_batch(self, number: int) -> None:
        """Turn to this roll-out batch; recalls what an interrupted run left, minus a torn last line.

        Raises:
            CheckpointError: A line is whole, but holds no record of this version.
        """
        self._path = self._folder / f"batch-{number:08d}.jsonl"
        self._calls, self._verdicts, self._order = {}, {}, None
        with boundary(CheckpointError, f"{self._path}: cannot be used, delete it to make the batch again"):
            for row in _intact_rows(self._path):
                self._take(row)

    def _take(self, row: Mapping[str, Any]) -> None:
        if row["kind"] == "call":
            self._calls[row["call"]] = tuple(trace_from_json(t) for t in row["traces"])
        elif row["kind"] == "verdicts":
            self._verdicts |= {TraceId(i): verdict_from_json(v) for i, v in row["verdicts"].items()}
        elif row["kind"] == "order":
            self._order = tuple(TraceId(i) for i in row["traces"])

    def recall(self, call: str) -> tuple[Trace, ...] | None:
        """The traces of a finished generation call of this batch, or ``None``."""
        return self._calls.get(call)

    def verdicts(self) -> Mapping[TraceId, Verdict]:
        """All verdicts of this batch so far."""
        return self._verdicts

    def record_call(self, call: str, traces: Sequence[Trace]) -> None:
        """Keep the traces of one finished generation call."""
        self._append({"kind": "call", "call": call, "traces": [trace_to_json(t) for t in traces]})
        self._calls[call] = tuple(traces)

    def record_verdicts(self, verdicts: Mapping[TraceId, Verdict]) -> None:
        """Keep verdicts."""
        self._append({"kind": "verdicts", "verdicts": {i: verdict_to_json(v) for i, v in verdicts.items()}})
        self._verdicts |= verdicts

    def record_order(self, traces: Sequence[TraceId]) -> None:
        """Keep the order in which traces are consumed.

        Raises:
            CheckpointError: An interrupted run consumed them in another order.
        """
        if self._order is None:
            self._append({"kind": "order", "traces": list(traces)})
            self._order = tuple(traces)
        elif self._order != tuple(traces):
            raise CheckpointError(
                f"{self._path}: the resumed run would consume traces in another order than the journal "
                "holds; recipe, data or code differ from the run that was interrupted"
            )

    def forget_before(self, number: int) -> None:
        """Delete the files of roll-out batches before this one: no checkpoint that is kept needs them."""
        for path, batch in self._files():
            if batch < number:
                path.unlink()

    def forget_from(self, number: int) -> None:
        """Delete the files of this roll-out batch and later ones: they are to be made anew."""
        for path, batch in self._files():
            if batch >= number:
                path.unlink()

    def forget_verdicts(self) -> None:
        """Keep the open batch's traces only, so that a resumed run judges them again."""
        if self._path is None:
            raise ValueError("open_batch comes first")
        kept = [row for row in _intact_rows(self._path) if row["kind"] == "call"]
        write_atomic(self._path, b"".join(_line(row) for row in kept))
        self._verdicts, self._order = {}, None

    def _files(self) -> list[tuple[Path, int]]:
        matches = [(path, _FILE.fullmatch(path.name)) for path in self._folder.iterdir()]
        return [(path, int(match[1])) for path, match in matches if match is not None]

    def _append(self, row: Mapping[str, JsonValue]) -> None:
        if self._path is None:
            raise ValueError("open_batch comes first")
        with writing(self._path):
            is_fresh = not self._path.exists()
            with self._path.open("ab") as file:
                file.write(_line(row))
                file.flush()
                os.fsync(file.fileno())
            if is_fresh:
                sync_folder(self._folder)


def _line(row: Mapping[str, JsonValue]) -> bytes:
    body = json.dumps(row, separators=(",", ":"), allow_nan=False).encode("ascii")
    return b"%08x " % zlib.crc32(body) + body + b"\n"


def _intact_rows(path: Path) -> list[dict[str, Any]]:
    """The rows before the first damaged line; the file is cut there, so that appending continues it."""
    if not path.exists():
        return []
    data, rows, end = path.read_bytes(), [], 0
    for line in data.splitlines(keepends=True):
        checksum, _, body = line.rstrip(b"\n").partition(b" ")
        if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(body):
            break
        rows.append(json.loads(body))
        end += len(line)
    if end < len(data):
        with writing(path), path.open("r+b") as file:
            file.truncate(end)
            os.fsync(file.fileno())
    return rows
