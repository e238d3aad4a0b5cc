"""The permanent record of traces: Parquet files, one per checkpoint, readable by anything."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bimetal.core.files import write_atomic, writing
from bimetal.core.types import Credit, Group, Origin, TraceId
from bimetal.rollout.record import segment_to_json

SCHEMA = pa.schema([
    ("id", pa.string()), ("prompt_id", pa.string()), ("domain", pa.string()), ("stage", pa.string()),
    ("batch", pa.int64()), ("visit", pa.int64()), ("member", pa.int64()), ("stream", pa.string()),
    ("prompt", pa.string()), ("text", pa.string()), ("prefix_fraction", pa.float64()),
    ("finish", pa.string()), ("status", pa.string()), ("reward", pa.float64()), ("reason", pa.string()),
    ("parts", pa.string()), ("extracted", pa.string()), ("detail", pa.string()),
    ("advantage", pa.float64()), ("policy_tokens", pa.int64()), ("segments", pa.string()),
    ("schema_version", pa.int64()),
])  # fmt: skip
"""``segments`` and ``parts`` are JSON; ``advantage`` is the mean over response tokens. Lone surrogates, which
Parquet cannot hold, are written as backslash escapes."""

_FILE = re.compile(r"batch-(\d{8})\.parquet")


class TraceWriter:
    """Keeps consumed traces until a checkpoint, then writes them to one file."""

    def __init__(self, folder: Path) -> None:
        """Write below this folder."""
        self._folder = folder
        self._rows: list[dict[str, object]] = []

    def add(
        self, groups: Sequence[Group], credits: Mapping[TraceId, Credit], *, stage: str, batch: int
    ) -> None:
        """Keep the traces of one roll-out batch."""
        self._rows += [
            _row(group, n, credits, stage, batch) for group in groups for n in range(len(group.traces))
        ]

    def flush(self, batches: int) -> None:
        """Write what was kept since the last flush; ``batches`` counts the roll-out batches made so far.

        Raises:
            CheckpointError: The disk is full or not writable.
        """
        if not self._rows:
            return
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(self._rows, schema=SCHEMA), buffer, compression="zstd")
        with writing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        write_atomic(self._folder / f"batch-{batches:08d}.parquet", buffer.getvalue())
        self._rows = []

    def cut_after(self, batches: int) -> None:
        """Delete files of later checkpoints: the run goes on after this many batches and repeats them."""
        self._rows = []
        for path in self._folder.iterdir() if self._folder.is_dir() else ():
            match = _FILE.fullmatch(path.name)
            if match is not None and int(match[1]) > batches:
                path.unlink()


def _row(
    group: Group, number: int, credits: Mapping[TraceId, Credit], stage: str, batch: int
) -> dict[str, object]:
    trace = group.traces[number]
    verdict, advantage = trace.verdict, credits[trace.id].advantage
    mean = sum(advantage) / len(advantage) if isinstance(advantage, tuple) else advantage
    return {
        "id": _text(trace.id), "prompt_id": _text(trace.prompt_id), "domain": _text(trace.domain),
        "stage": stage, "batch": batch, "visit": trace.visit, "member": trace.member,
        "stream": trace.stream.value,
        "prompt": _text("\n".join(m.content for m in group.prompt.messages)), "text": _text(trace.text),
        "prefix_fraction": trace.draft.prefix_fraction, "finish": trace.finish.value,
        "status": verdict.status.value if verdict else None, "reward": verdict.reward if verdict else None,
        "reason": _text(verdict.reason) if verdict else None,
        "parts": json.dumps(dict(verdict.parts)) if verdict else None,
        "extracted": _text(verdict.extracted) if verdict and verdict.extracted is not None else None,
        "detail": _text(verdict.detail) if verdict else None, "advantage": mean,
        "policy_tokens": sum(len(s.token_ids) for s in trace.segments if s.origin is Origin.POLICY),
        "segments": json.dumps([segment_to_json(s) for s in trace.segments]),
        "schema_version": trace.schema_version,
    }  # fmt: skip


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
