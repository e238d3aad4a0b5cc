"""The rows of one source -> prompts with demonstrations, each with its place; nothing is dropped silently."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from bimetal.config.data import SourceOptions
from bimetal.core.errors import DataError
from bimetal.core.types import JsonValue, Message, Prompt, PromptId, Stream
from bimetal.data.assemble import Loaded, Record
from bimetal.data.corpus import BadRow
from bimetal.data.detect import choose_layout, columns_of
from bimetal.data.fields import json_value, mapping, number, refused, text
from bimetal.data.readers import Row, bad_row
from bimetal.data.schemas import Cells, Content, Layout, row_id

_ID_CHARACTERS = 24
"""Hexadecimal characters of a derived id: 96 bits, so two of a billion prompts do not meet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How the rows of one source are read, and which of their columns are fields."""

    layout: Layout
    options: SourceOptions
    fields: Mapping[str, str]
    """Column -> the field it holds."""


def load_rows(rows: Sequence[Row], unreadable: Sequence[BadRow], *, options: SourceOptions) -> Loaded:
    """Turn rows into records; a row that cannot be used joins the ``unreadable`` ones, with its reason.

    Raises:
        DataError: No format fits the columns, or one is missing.
        ConfigError: The recipe renames a field that the format does not have.
    """
    layout = choose_layout(rows, options, name=options.path)
    fields = {layout.column(field, options): field for field in sorted(layout.allowed)}
    plan = _Plan(layout=layout, options=options, fields={c: f for c, f in fields.items() if c})
    records: list[Record] = []
    bad = list(unreadable)
    left_out: Counter[str] = Counter()
    for row in rows:
        try:
            record, lost = _record(row, plan)
        except DataError as error:
            bad.append(bad_row(row.place, str(error), excerpt=row.values))
        else:
            records.append(record)
            left_out.update(lost)
    formats = [f"{options.path}: {len(rows)} rows read as {layout.name!r}"]
    columns = columns_of(rows)
    formats += [_what_became_of(column, columns, plan) for column in columns]
    formats += [
        f"column {column!r}: left out of meta in {count} rows, JSON cannot hold it"
        for column, count in sorted(left_out.items())
    ]
    bad.sort(key=lambda one: (one.file, one.row))
    return Loaded(records=tuple(records), bad_rows=tuple(bad), formats=tuple(formats), weight=options.weight)


def _what_became_of(column: str, columns: Sequence[str], plan: _Plan) -> str:
    field = plan.fields.get(column)
    if field is None:
        nested = [f"{c} -> {f}" for c, f in plan.fields.items() if c.startswith(f"{column}.")]
        return f"column {column!r} -> meta{', with ' if nested else ''}{', '.join(nested)}"
    if field == "domain" and plan.options.domain:
        return f"column {column!r}: not used, the recipe says domain = {plan.options.domain!r}"
    if field == "prompt" and plan.layout.column("messages", plan.options) in columns:
        return f"column {column!r}: used only in rows without messages"
    return f"column {column!r} -> {field}"


def _record(row: Row, plan: _Plan) -> tuple[Record, tuple[str, ...]]:
    """The record of one row, and the names of the columns that JSON cannot hold."""
    options = plan.options
    cells = Cells(values=row.values, layout=plan.layout, options=options)
    content = plan.layout.read(cells)
    _check_prompt(content.messages)
    meta, lost = _meta(row, plan, content)
    given = row_id(cells)
    domain = options.domain or _optional_text(cells, "domain")
    difficulty = cells.get("difficulty")
    prompt_id = PromptId(_prefixed(given or _text_hash(content.messages), domain, options, given=given))
    prompt = Prompt(
        id=prompt_id,
        domain=domain,
        messages=_instructed(content.messages, options),
        reference=content.reference,
        difficulty=None if difficulty is None else number(difficulty, "difficulty"),
        problem=_optional_text(cells, "problem") or said_key(content.messages),
        stream=_stream(cells),
        source=_optional_text(cells, "source") or options.path,
        meta=meta,
    )
    demonstrations = tuple(replace(one, prompt_id=prompt_id) for one in content.demonstrations)
    record = Record(
        prompt=prompt,
        demonstrations=demonstrations,
        place=row.place,
        names_itself=given is not None,
        joins_rows=plan.layout.joins_rows,
    )
    return record, lost


def _check_prompt(messages: Sequence[Message]) -> None:
    if messages[-1].role == "assistant":
        raise DataError(
            "field 'messages': a prompt must not end with the assistant's message; "
            'put that into demonstrations, or read the file with format = "messages"'
        )
    if not any(message.role == "user" and message.content.strip() for message in messages):
        raise DataError("field 'messages': a prompt must hold a user's message that is not blank")


def _meta(row: Row, plan: _Plan, content: Content) -> tuple[dict[str, JsonValue], tuple[str, ...]]:
    """Every column that is no field, so that verifiers and people find it; and those JSON cannot hold."""
    cells = Cells(values=row.values, layout=plan.layout, options=plan.options)
    given = cells.get("meta")
    meta = {} if given is None else {k: json_value(v, f"meta.{k}") for k, v in mapping(given, "meta").items()}
    meta |= content.meta
    lost: list[str] = []
    for column, value in row.values.items():
        if column in plan.fields or value is None:
            continue
        if column in meta:
            raise DataError(
                f"field 'meta': holds {column!r}, which is also a column of its own; rename one of them"
            )
        try:
            meta[column] = json_value(value, column)
        except DataError:
            lost.append(column)
    return meta, tuple(lost)


def _optional_text(cells: Cells, field: str) -> str:
    value = cells.get(field)
    return "" if value is None else text(value, field)


def _stream(cells: Cells) -> Stream:
    value = cells.get("stream")
    if value is None:
        return cells.options.stream
    if value not in tuple(Stream):
        raise refused("stream", f"one of {', '.join(Stream)}", value)
    return Stream(str(value))


def _prefixed(name: str, domain: str, options: SourceOptions, *, given: str | None) -> str:
    """The id inside its domain; a row that brings both its domain and its id is taken at its word."""
    if given is not None and not options.domain:
        return name
    return name if not domain or name.startswith(f"{domain}/") else f"{domain}/{name}"


def _instructed(messages: tuple[Message, ...], options: SourceOptions) -> tuple[Message, ...]:
    """The messages with the recipe's system message before and its instruction behind."""
    turns = list(messages)
    if options.instruction_suffix:
        last = max(index for index, turn in enumerate(turns) if turn.role == "user")
        turns[last] = replace(turns[last], content=turns[last].content + options.instruction_suffix)
    if options.system_prompt:
        if any(turn.role in ("system", "developer") for turn in turns):
            raise DataError(
                "field 'messages': has a system message of its own, and the recipe sets system_prompt; "
                "remove one of them"
            )
        turns.insert(0, Message(role="system", content=options.system_prompt))
    return tuple(turns)


def _text_hash(messages: Sequence[Message]) -> str:
    """The id of a prompt without one: the same text has it in every run, whatever the recipe adds to it."""
    chat = json.dumps([[message.role, message.content] for message in messages])
    return hashlib.sha256(chat.encode("ascii")).hexdigest()[:_ID_CHARACTERS]


def said_key(messages: Sequence[Message]) -> str:
    """The key by which train and test are disjoint: what the users said, blanks and case aside."""
    said = " ".join(message.content for message in messages if message.role != "system")
    words = " ".join(said.casefold().split())
    return hashlib.sha256(words.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_CHARACTERS]
