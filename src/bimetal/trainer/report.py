"""Sinks: where a run's metrics go. The JSON lines are the record; everything else is a view of it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from bimetal.core.errors import CheckpointError
from bimetal.core.files import write_atomic, writing
from bimetal.core.types import JsonValue


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One step's metrics.

    ``Line(step=3, stage="sft", batch=2, metrics={"term/imitation/loss": 1.2}, times={...})``.
    ``times`` holds whatever depends on the clock, so that two runs can be compared without it.
    """

    step: int
    stage: str
    batch: int
    metrics: Mapping[str, float | None]
    times: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, JsonValue]:
        """The line as a JSON object."""
        return {
            "step": self.step,
            "stage": self.stage,
            "batch": self.batch,
            "metrics": dict(self.metrics),
            "times": dict(self.times),
        }


@runtime_checkable
class Sink(Protocol):
    """Receives every line, and messages for people."""

    def line(self, line: Line) -> None:
        """One step's metrics."""
        ...

    def note(self, text: str) -> None:
        """A sentence for people."""
        ...

    def close(self) -> None:
        """No more lines."""
        ...


class JsonLines:
    """``metrics.jsonl``: one line per step, and one per evaluation, flushed as it is written."""

    def __init__(self, path: Path) -> None:
        """Append to this file."""
        self.path = path

    def cut_to(self, count: int) -> None:
        """Keep the first ``count`` lines: the run goes on from there.

        Raises:
            CheckpointError: There are fewer, or the file cannot be rewritten.
        """
        lines = self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []
        whole = [line for line in lines if line.endswith(b"\n")]
        if len(whole) < count:
            raise CheckpointError(
                f"{self.path}: the checkpoint was saved after {count} lines; found {len(whole)}; the file "
                "was changed"
            )
        if lines:
            write_atomic(self.path, b"".join(whole[:count]))

    def line(self, line: Line) -> None:
        """Write one line."""
        with writing(self.path), self.path.open("ab") as file:
            file.write(json.dumps(line.to_json(), allow_nan=False).encode("ascii") + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def note(self, text: str) -> None:
        """Notes are for people; the record has none."""

    def close(self) -> None:
        """Nothing is held open."""


def finite(metrics: Mapping[str, JsonValue]) -> dict[str, float | None]:
    """Metrics as JSON can hold them: what is not finite is null."""
    return {
        name: float(value) if isinstance(value, int | float) and math.isfinite(value) else None
        for name, value in metrics.items()
    }
