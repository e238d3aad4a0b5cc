"""Records of all sources -> one corpus: rows with the same id are joined or refused, naming both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bimetal.core.types import Demonstration, Prompt, PromptId
from bimetal.data.corpus import BadRow, Corpus, Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What one row says, and where it stands.

    ``names_itself`` is whether the row brought its id; ``joins_rows`` whether its format lets rows with the
    same prompt be several demonstrations of it.
    """

    prompt: Prompt
    demonstrations: tuple[Demonstration, ...]
    place: Place
    names_itself: bool
    joins_rows: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """One source, read: its records, its bad rows, and what was done with its columns."""

    records: tuple[Record, ...]
    bad_rows: tuple[BadRow, ...]
    formats: tuple[str, ...]
    weight: float


def assemble(sources: Sequence[Loaded]) -> Corpus:
    """Join the sources in order; a row whose id is taken and that cannot be joined is a bad row."""
    seen: dict[PromptId, Record] = {}
    weights: dict[PromptId, float] = {}
    bad: list[BadRow] = []
    formats: list[str] = []
    for source in sources:
        repeats = 0
        bad.extend(source.bad_rows)
        for record in source.records:
            first = seen.get(record.prompt.id)
            reason = _conflict(first, record) if first is not None else ""
            if reason:
                bad.append(_refused(record, reason))
            elif first is None:
                seen[record.prompt.id] = record
                if source.weight != 1.0:
                    weights[record.prompt.id] = source.weight
            else:
                joined = _joined(first, record)
                repeats += len(joined.demonstrations) == len(first.demonstrations)
                seen[record.prompt.id] = joined
        formats.extend(source.formats)
        if repeats:
            formats.append(f"{repeats} rows repeat an earlier row exactly and were counted once")
    return Corpus(
        prompts=tuple(record.prompt for record in seen.values()),
        demonstrations={
            name: record.demonstrations for name, record in seen.items() if record.demonstrations
        },
        bad_rows=tuple(bad),
        formats=tuple(formats),
        places={name: record.place for name, record in seen.items()},
        weights=weights,
    )


def _refused(record: Record, reason: str) -> BadRow:
    place = record.place
    excerpt = ascii(record.prompt.messages[-1].content)
    return BadRow(file=place.file, row=place.number, unit=place.unit, reason=reason, excerpt=excerpt[:500])


def _conflict(first: Record, again: Record) -> str:
    """Why a row cannot be joined to the one that has its id; empty where it can."""
    where = f"already stands at {first.place}"
    if first.names_itself or again.names_itself:
        return f"field 'id': the id {again.prompt.id!r} {where}; ids must be unique, change one of them"
    if first.prompt.stream is not again.prompt.stream:
        return (
            f"this prompt {where}, in the other stream; leave it out of one, "
            'or set stream = "main" on both so that its demonstrations join'
        )
    if first.prompt.messages != again.prompt.messages:
        return f"this problem {where}, with another system prompt or instruction; leave it out of one source"
    references = (first.prompt.reference, again.prompt.reference)
    if None not in references and references[0] != references[1]:
        return f"this prompt {where} with another reference; correct one of them"
    if first.joins_rows or again.joins_rows or _repeats(first, again):
        return ""
    return (
        f"this prompt {where}; give the rows ids of their own, "
        "or put all demonstrations of a prompt into one row"
    )


def _repeats(first: Record, again: Record) -> bool:
    return first.prompt.reference == again.prompt.reference and set(again.demonstrations) <= set(
        first.demonstrations
    )


def _joined(first: Record, again: Record) -> Record:
    """The earlier row with the reference and the demonstrations that only the later one has."""
    new = tuple(one for one in again.demonstrations if one not in first.demonstrations)
    reference = again.prompt.reference if first.prompt.reference is None else first.prompt.reference
    return replace(
        first,
        prompt=replace(first.prompt, reference=reference),
        demonstrations=first.demonstrations + new,
    )
