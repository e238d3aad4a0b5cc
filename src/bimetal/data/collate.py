"""Traces and their credit -> the batch of one optimizer step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from bimetal.core.batch import ORIGIN_CODES, Batch
from bimetal.core.types import Credit, Origin, Segment, Signals, Trace, TraceId


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One trace, what it teaches, and the number of its group in the step."""

    trace: Trace
    credit: Credit
    group: int


def collate(
    rows: Sequence[Row], *, terms: Sequence[str], signals: Signals, dtype: torch.dtype = torch.float32
) -> Batch:
    """The batch of these rows, right-padded with token 0, on the CPU.

    Raises:
        ValueError: There are no rows, or a credit names a term or segment that does not exist.
    """
    if not rows:
        raise ValueError("an optimizer step needs at least one trace")
    ids = [[token for s in row.trace.segments for token in s.token_ids] for row in rows]
    width = max(len(i) for i in ids) - 1
    for row, tokens in zip(rows, ids, strict=True):
        # The first token is predicted nowhere, so it cannot belong to the response.
        if len(tokens) < 2 or row.trace.response_length == len(tokens):
            raise ValueError(
                f"trace {row.trace.id} needs a prompt token and one token more; got "
                f"{len(tokens) - row.trace.response_length} and {row.trace.response_length} of the response"
            )
    lengths = torch.tensor([len(i) - 1 for i in ids])
    canvas = _Canvas(rows, width, dtype)
    members, weights = _membership(canvas, terms)
    traces = [row.trace for row in rows]
    return Batch(
        trace_ids=tuple(t.id for t in traces),
        input_ids=_padded([i[:-1] for i in ids], width),
        targets=_padded([i[1:] for i in ids], width),
        attention=torch.arange(width).unsqueeze(0) < lengths.unsqueeze(1),
        mask=canvas.fill(lambda s: [1.0 if s.origin is not Origin.PROMPT else 0.0] * len(s.token_ids)) > 0,
        origin=canvas.fill(lambda s: [float(ORIGIN_CODES[s.origin])] * len(s.token_ids)).long(),
        temperature=canvas.fill(lambda s: [s.temperature] * len(s.token_ids), default=1.0),
        group=torch.tensor([row.group for row in rows]),
        members=members,
        weights=weights,
        advantages=canvas.responses([_spread(r.credit.advantage, r.trace.response_length) for r in rows]),
        returns=canvas.optional([r.credit.returns for r in rows]),
        old_logprobs=canvas.named(signals.old_logprobs),
        old_values=canvas.named(signals.values),
        reference_logprobs=canvas.named(signals.reference_logprobs),
        sampler_logprobs=_authored(canvas, Origin.POLICY),
        author_logprobs=_authored(canvas, Origin.DEMONSTRATION),
    )


@dataclass(frozen=True, slots=True)
class _Canvas:
    """Writes per-token numbers of rows into [b t], where position t holds the token predicted at t."""

    rows: Sequence[Row]
    width: int
    dtype: torch.dtype

    def fill(
        self, numbers: Callable[[Segment], Sequence[float]], default: float = 0.0
    ) -> Float[Tensor, "b t"]:
        """One number per token of every segment; the very first token is predicted nowhere."""
        out = torch.full((len(self.rows), self.width), default, dtype=self.dtype)
        for b, row in enumerate(self.rows):
            line = [n for s in row.trace.segments for n in numbers(s)][1:]
            out[b, : len(line)] = torch.tensor(line, dtype=self.dtype)
        return out

    def responses(self, numbers: Sequence[Sequence[float]]) -> Float[Tensor, "b t"]:
        """One number per response token of every row."""
        out = torch.zeros((len(self.rows), self.width), dtype=self.dtype)
        for b, (row, line) in enumerate(zip(self.rows, numbers, strict=True)):
            if len(line) != row.trace.response_length:
                raise ValueError(
                    f"trace {row.trace.id}: {len(line)} numbers for {row.trace.response_length} tokens"
                )
            start = sum(len(s.token_ids) for s in row.trace.segments) - len(line) - 1
            out[b, start : start + len(line)] = torch.tensor(line, dtype=self.dtype)
        return out

    def optional(self, numbers: Sequence[Sequence[float] | None]) -> Float[Tensor, "b t"] | None:
        """As ``responses``; ``None`` if no row has any; rows without numbers get NaN.

        A term that reads a number nobody computed is then not finite, and the step is refused: a 0 in its
        place would train on without a word.
        """
        if all(line is None for line in numbers):
            return None
        return self._known(numbers)

    def named(self, numbers: Mapping[TraceId, Sequence[float]]) -> Float[Tensor, "b t"] | None:
        """As ``optional``, by trace id; where only other rows have numbers, these get NaN."""
        if not numbers:
            return None
        return self._known([numbers.get(row.trace.id) for row in self.rows])

    def _known(self, numbers: Sequence[Sequence[float] | None]) -> Float[Tensor, "b t"]:
        return self.responses(
            [
                [math.nan] * row.trace.response_length if line is None else line
                for row, line in zip(self.rows, numbers, strict=True)
            ]
        )


def _membership(canvas: _Canvas, terms: Sequence[str]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    members = {t: torch.zeros((len(canvas.rows), canvas.width), dtype=torch.bool) for t in terms}
    weights = {t: torch.zeros((len(canvas.rows), canvas.width), dtype=canvas.dtype) for t in terms}
    for b, row in enumerate(canvas.rows):
        ends = [0]
        for s in row.trace.segments:
            ends.append(ends[-1] + len(s.token_ids))
        for entry in row.credit.weights:
            if entry.term not in members or entry.segment >= len(row.trace.segments):
                raise ValueError(
                    f"credit of {row.trace.id} names term {entry.term!r}, segment {entry.segment}"
                )
            if row.trace.segments[entry.segment].origin is Origin.PROMPT:
                raise ValueError(
                    f"credit of {row.trace.id}: prompt tokens cannot be members of {entry.term!r}"
                )
            span = slice(ends[entry.segment] - 1, ends[entry.segment + 1] - 1)
            members[entry.term][b, span] = True
            count = ends[entry.segment + 1] - ends[entry.segment]
            numbers = _spread(entry.weight, count)
            if len(numbers) != count:
                raise ValueError(
                    f"credit of {row.trace.id}: {len(numbers)} weights for {count} tokens of {entry.term!r}"
                )
            weights[entry.term][b, span] = torch.tensor(numbers, dtype=canvas.dtype)
    return members, weights


def _authored(canvas: _Canvas, origin: Origin) -> Float[Tensor, "b t"] | None:
    written = [s for row in canvas.rows for s in row.trace.segments if s.origin is origin]
    if not written or any(s.logprobs is None for s in written):
        return None
    return canvas.fill(lambda s: (s.logprobs or ()) if s.origin is origin else [0.0] * len(s.token_ids))


def _spread(number: float | tuple[float, ...], count: int) -> Sequence[float]:
    return number if isinstance(number, tuple) else [number] * count


def _padded(ids: Sequence[Sequence[int]], width: int) -> Tensor:
    return torch.tensor([list(line) + [0] * (width - len(line)) for line in ids], dtype=torch.long)
