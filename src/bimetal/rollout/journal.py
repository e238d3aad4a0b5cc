"""The journal: finished traces and verdicts, flushed to disk before they are used (design contract C4).

One file per roll-out batch. The unit is the generation call: its traces enter together when the last is
finished. A run that is killed and resumed takes what the journal holds and never generates or judges
it again. Each line carries a checksum, so a line that was cut by the kill is recognized and dropped.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bimetal.core.errors import CheckpointError
from bimetal.core.files import sync_folder, writing
from bimetal.core.types import JsonValue, Trace, TraceId, Verdict
from bimetal.rollout.record import trace_from_json, trace_to_json, verdict_from_json, verdict_to_json


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
        """Turn to this roll-out batch; recalls what an interrupted run left, minus a torn last line."""
        self._path = self._folder / f"batch-{number:08d}.jsonl"
        self._calls, self._verdicts, self._order = {}, {}, None
        for kind, row in _intact_rows(self._path):
            if kind == "call":
                self._calls[row["call"]] = tuple(trace_from_json(t) for t in row["traces"])
            elif kind == "verdicts":
                self._verdicts |= {TraceId(i): verdict_from_json(v) for i, v in row["verdicts"].items()}
            elif kind == "order":
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
                f"{self._path}: the resumed run would consume traces in another order than the journal holds; "
                "recipe, data or code differ from the run that was interrupted"
            )

    def forget_before(self, number: int) -> None:
        """Delete the files of roll-out batches before this one: no checkpoint that is kept needs them."""
        for path in self._folder.glob("batch-*.jsonl"):
            if int(path.stem.partition("-")[2]) < number:
                path.unlink()

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


def _intact_rows(path: Path) -> list[tuple[str, Any]]:
    """The rows before the first damaged line; the file is cut there, so that appending continues it."""
    if not path.exists():
        return []
    data, rows, end = path.read_bytes(), [], 0
    for line in data.splitlines(keepends=True):
        checksum, _, body = line.rstrip(b"\n").partition(b" ")
        if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(body):
            break
        row = json.loads(body)
        rows.append((row["kind"], row))
        end += len(line)
    if end < len(data):
        with writing(path), path.open("r+b") as file:
            file.truncate(end)
            os.fsync(file.fileno())
    return rows
