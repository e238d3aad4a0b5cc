"""Which row format a file has, judged by the names of its columns; and whether its columns suffice."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from bimetal.config.data import SourceOptions
from bimetal.core.errors import ConfigError, DataError
from bimetal.data.fields import chat
from bimetal.data.readers import Row
from bimetal.data.schemas import LAYOUTS, Layout, lookup


def columns_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """The names of all columns, in the order in which they first appear."""
    return tuple(dict.fromkeys(column for row in rows for column in row.values))


def choose_layout(rows: Sequence[Row], options: SourceOptions, *, name: str) -> Layout:
    """The format of a file, checked against its columns.

    Raises:
        DataError: No format fits, several do, or a column is missing.
        ConfigError: The recipe renames a field that the format does not have.
    """
    layout = LAYOUTS[options.format] if options.format != "auto" else _detected(rows, options, name=name)
    for field, column in options.columns.items():
        if field not in layout.allowed:
            raise ConfigError(
                f"{name}: columns.{field} is not a field of the format {layout.name!r}; "
                f"its fields: {', '.join(sorted(layout.allowed))}. Remove it, or choose another format"
            )
        if column and not _stands_in(rows, column):
            raise DataError(f"{name}: columns.{field} names the column {column!r}, {_found(rows, column)}")
    for group in layout.required:
        if not any(_has(rows, layout, options, field=field) for field in group):
            column = layout.column(group[0], options) or group[0]
            raise DataError(
                f"{name}: missing column {column!r}, which the format {layout.name!r} needs, "
                f'{_found(rows, column)}. Rename it in the recipe: columns = {{{group[0]} = "your column"}}'
            )
    return layout


def _stands_in(rows: Sequence[Row], column: str) -> bool:
    return any(lookup(row.values, column) is not None for row in rows)


def _has(rows: Sequence[Row], layout: Layout, options: SourceOptions, *, field: str) -> bool:
    column = layout.column(field, options)
    return bool(column) and _stands_in(rows, column)


def _found(rows: Sequence[Row], column: str) -> str:
    columns = columns_of(rows)
    near = difflib.get_close_matches(column, columns, n=1, cutoff=0.6)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"which no row holds; columns found: {', '.join(columns) or '(none)'}{hint}"


def _detected(rows: Sequence[Row], options: SourceOptions, *, name: str) -> Layout:
    """The only format that has every field the recipe renames and whose telling fields are all there."""
    open_formats = [layout for layout in LAYOUTS.values() if set(options.columns) <= layout.allowed]
    has = {
        layout.name: frozenset(f for f in layout.allowed if _has(rows, layout, options, field=f))
        for layout in open_formats
    }
    fitting = [layout for layout in open_formats if _TELLS[layout.name](has[layout.name], rows, options)]
    if len(fitting) == 1:
        return fitting[0]
    columns = ", ".join(columns_of(rows)) or "(none)"
    if fitting:
        names = [layout.name for layout in fitting]
        raise DataError(
            f"{name}: the columns fit several formats: {', '.join(names)}; columns found: {columns}. "
            f'Say which one is meant: format = "{names[0]}"'
        )
    tried = "; ".join(f"{layout.name} needs {_needs(layout)}" for layout in LAYOUTS.values())
    raise DataError(
        f"{name}: its format cannot be told; columns found: {columns}. Tried: {tried} "
        "(gsm8k also a '####' in its answers). Name your columns in the recipe, as in "
        'columns = {prompt = "your column", reference = "your column"}'
    )


def _is_verl(has: frozenset[str], _rows: Sequence[Row], _options: SourceOptions) -> bool:
    return {"prompt", "reward_model"} <= has


def _is_pair(has: frozenset[str], _rows: Sequence[Row], _options: SourceOptions) -> bool:
    return {"prompt", "completion"} <= has


def _is_gsm8k(has: frozenset[str], rows: Sequence[Row], options: SourceOptions) -> bool:
    column = LAYOUTS["gsm8k"].column("answer", options)
    solved = any("####" in str(lookup(row.values, column)) for row in rows)
    return solved and {"question", "answer"} <= has and not _mentions(rows, "reward_model")


def _is_messages(has: frozenset[str], rows: Sequence[Row], options: SourceOptions) -> bool:
    return "messages" in has and not _mentions(rows, "demonstrations") and _answers_itself(rows, options)


def _is_canonical(has: frozenset[str], rows: Sequence[Row], options: SourceOptions) -> bool:
    """Prompts with or without anything else, unless the row is plainly one of the other formats."""
    if {"demonstration", "demonstrations"} & has:
        return bool({"prompt", "messages"} & has) and not _is_explicit_verl(rows, options)
    if "messages" in has:
        return not _answers_itself(rows, options)
    return "prompt" in has and not _is_explicit_verl(rows, options) and not _mentions(rows, "completion")


def _is_explicit_verl(rows: Sequence[Row], options: SourceOptions) -> bool:
    """A file of verl may carry demonstrations through the recipe's ``columns``."""
    return _has(rows, LAYOUTS["verl"], options, field="reward_model")


def _mentions(rows: Sequence[Row], column: str) -> bool:
    return any(row.values.get(column) is not None for row in rows)


def _answers_itself(rows: Sequence[Row], options: SourceOptions) -> bool:
    """Whether the last message of some row is the assistant's, so that it is a demonstration."""
    column = LAYOUTS["messages"].column("messages", options)
    for row in rows:
        try:
            if chat(lookup(row.values, column), "messages")[-1].role == "assistant":
                return True
        except DataError:  # a bad row is reported when it is read; here it tells nothing
            continue
    return False


_TELLS: Mapping[str, Callable[[frozenset[str], Sequence[Row], SourceOptions], bool]] = MappingProxyType(
    {
        "canonical": _is_canonical,
        "messages": _is_messages,
        "prompt_completion": _is_pair,
        "gsm8k": _is_gsm8k,
        "verl": _is_verl,
    }
)


def _needs(layout: Layout) -> str:
    return " and ".join(" or ".join(group) for group in layout.required)
