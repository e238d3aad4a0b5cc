"""Cutting a roll-out batch into the batches of its optimizer steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bimetal.config.schema import StageOptions
from bimetal.core.streams import Streams, permutation
from bimetal.core.types import Credit, Group, Stream, TraceId
from bimetal.data.collate import Row


def optimizer_parts(
    groups: Sequence[Group],
    credits: Mapping[TraceId, Credit],
    options: StageOptions,
    *,
    streams: Streams,
    batch: int,
) -> Iterator[list[Row]]:
    """The rows of every optimizer step: ``updates_per_rollout`` parts, ``epochs`` times over.

    Whole groups go into parts; each stream is spread evenly, so that every part has its share of both. With
    one part the order is that of the roll-out batch, else it is shuffled anew for every epoch. Traces that
    are member of no term are left out; a part without any is no step.
    """
    for epoch in range(options.epochs):
        parts: list[list[Row]] = [[] for _ in range(options.updates_per_rollout)]
        for stream in Stream:
            numbers = [n for n, group in enumerate(groups) if group.prompt.stream is stream]
            if options.updates_per_rollout > 1:
                shuffle = permutation(streams.generator("parts", stream.value, batch, epoch), len(numbers))
                numbers = [numbers[i] for i in shuffle]
            for place, number in enumerate(numbers):
                part = parts[place * options.updates_per_rollout // len(numbers)]
                part.extend(
                    Row(trace=t, credit=credits[t.id], group=number)
                    for t in groups[number].traces
                    if credits[t.id].weights
                )
        yield from (part for part in parts if part)
