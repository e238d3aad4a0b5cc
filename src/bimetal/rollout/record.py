"""Traces and verdicts as JSON, exactly: floats keep every bit, texts may hold lone surrogates and NULs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from bimetal.core.types import (
    SCHEMA_VERSION,
    Draft,
    Finish,
    JsonValue,
    Origin,
    PromptId,
    Segment,
    Status,
    Stream,
    Trace,
    TraceId,
    Verdict,
)


def trace_to_json(trace: Trace) -> dict[str, JsonValue]:
    """The trace without its verdict, which has a record of its own."""
    return {
        "schema_version": trace.schema_version,
        "id": trace.id,
        "prompt_id": trace.prompt_id,
        "domain": trace.domain,
        "visit": trace.visit,
        "member": trace.member,
        "draft": {
            "prefix_fraction": trace.draft.prefix_fraction,
            "demonstration": trace.draft.demonstration,
            "guidance": trace.draft.guidance,
        },
        "contexts": [[segment_to_json(s) for s in context] for context in trace.contexts],
        "finish": trace.finish.value,
        "text": trace.text,
        "stream": trace.stream.value,
    }


def trace_from_json(row: Mapping[str, Any]) -> Trace:
    """The trace that ``trace_to_json`` wrote.

    Raises:
        ValueError: The record is of another schema version, or malformed.
    """
    if row["schema_version"] != SCHEMA_VERSION:
        raise ValueError(
            f"trace of schema version {row['schema_version']}; this version reads {SCHEMA_VERSION}"
        )
    return Trace(
        id=TraceId(row["id"]),
        prompt_id=PromptId(row["prompt_id"]),
        domain=row["domain"],
        visit=int(row["visit"]),
        member=int(row["member"]),
        draft=Draft(**row["draft"]),
        contexts=tuple(tuple(segment_from_json(s) for s in context) for context in row["contexts"]),
        finish=Finish(row["finish"]),
        text=row["text"],
        stream=Stream(row["stream"]),
    )


def segment_to_json(segment: Segment) -> dict[str, JsonValue]:
    """One segment."""
    return {
        "origin": segment.origin.value,
        "token_ids": list(segment.token_ids),
        "logprobs": None if segment.logprobs is None else list(segment.logprobs),
        "version": segment.version,
        "temperature": segment.temperature,
    }


def segment_from_json(row: Mapping[str, Any]) -> Segment:
    """The segment that ``segment_to_json`` wrote."""
    logprobs = cast("Sequence[float] | None", row["logprobs"])
    return Segment(
        origin=Origin(row["origin"]),
        token_ids=tuple(int(i) for i in row["token_ids"]),
        logprobs=None if logprobs is None else tuple(float(x) for x in logprobs),
        version=row["version"],
        temperature=float(row["temperature"]),
    )


def verdict_to_json(verdict: Verdict) -> dict[str, JsonValue]:
    """One verdict."""
    return {
        "status": verdict.status.value,
        "reward": verdict.reward,
        "reason": verdict.reason,
        "parts": dict(verdict.parts),
        "extracted": verdict.extracted,
        "verifier": verdict.verifier,
        "seconds": verdict.seconds,
        "detail": verdict.detail,
    }


def verdict_from_json(row: Mapping[str, Any]) -> Verdict:
    """The verdict that ``verdict_to_json`` wrote."""
    return Verdict(**{**row, "status": Status(row["status"])})
