"""Options described for people and editors: a reference in Markdown, and JSON Schema."""

from __future__ import annotations

import json
import types
import typing
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal, Union, cast

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from bimetal.config.options import Options
from bimetal.config.toml import value_as_toml

_WORDS: tuple[tuple[type, str], ...] = (
    (bool, "true or false"),
    (int, "whole number"),
    (float, "number"),
    (str, "text"),
    (dict, "table"),
)
_SYMBOLS = (("gt", "> {}"), ("ge", ">= {}"), ("lt", "< {}"), ("le", "<= {}"), ("min_length", "not empty"))


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionRow:
    """One option: ``OptionRow(key="seed", type="whole number", range=">= 0", ...)``.

    ``default`` is TOML, or "required"; ``range`` is empty where the type says all.
    """

    key: str
    type: str
    range: str
    default: str
    description: str


def option_rows(model: type[Options]) -> tuple[OptionRow, ...]:
    """The model's own options, in order; a field that is itself a section is one row of type table."""
    return tuple(
        OptionRow(
            key=key,
            type=_type_words(field.annotation),
            range=_range_words(field),
            default=_default_text(field),
            description=" ".join((field.description or "").split()),
        )
        for key, field in model.model_fields.items()
    )


def sections(model: type[Options], *, path: str = "") -> tuple[tuple[str, type[Options]], ...]:
    """The model and every section in it: ``(("", Recipe), ..., ("stage.N.optimizer", OptimizerOptions))``."""
    found: list[tuple[str, type[Options]]] = [(path, model)]
    for key, field in model.model_fields.items():
        inner, suffix = _section_of(field.annotation)
        if inner is not None:
            found += sections(inner, path=".".join(part for part in (path, key, suffix) if part))
    return tuple(found)


def options_table(model: type[Options]) -> str:
    """The model's own options as a Markdown table; "none" where it has none."""
    rows = [row for row in option_rows(model) if row.type != "section"]
    if not rows:
        return "No options.\n"
    lines = ["| option | type | range | default | meaning |", "|---|---|---|---|---|"]
    for row in rows:
        cells = (f"`{row.key}`", row.type, row.range, row.default, row.description)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def option_reference(model: type[Options]) -> str:
    """Every section of the model, with its sentence and its table, as Markdown."""
    parts: list[str] = []
    for path, section in sections(model):
        title = f"`[{path}]`" if path else "Top level"
        parts.append(f"## {title}\n\n{' '.join((section.__doc__ or '').split())}\n\n{options_table(section)}")
    return "\n".join(parts)


def json_schema(model: type[Options]) -> dict[str, Any]:
    """JSON Schema (2020-12) of what a file with these options may say."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema()}


def _type_words(annotation: object) -> str:
    origin = typing.get_origin(annotation)
    arguments = cast("tuple[object, ...]", typing.get_args(annotation))
    if hasattr(annotation, "__metadata__"):
        return _type_words(arguments[0])
    if origin is Literal:
        return " or ".join(json.dumps(value) for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(_type_words(member) for member in arguments if member is not types.NoneType)
    if origin in (tuple, list):
        items = [member for member in arguments if member is not Ellipsis]
        return f"{len(items)} numbers" if len(items) > 1 else f"list of {_type_words(items[0])}"
    if _section_of(annotation)[0] is not None:
        return "section"
    plain = origin or annotation
    if isinstance(plain, type) and issubclass(plain, StrEnum):
        return " or ".join(json.dumps(str(member)) for member in plain)
    return next(
        (words for kind, words in _WORDS if isinstance(plain, type) and issubclass(plain, kind)), "value"
    )


def _range_words(field: FieldInfo) -> str:
    arguments = cast("tuple[object, ...]", typing.get_args(field.annotation))
    inner = [constraint for member in arguments for constraint in getattr(member, "__metadata__", ())]
    found: dict[str, None] = {}
    for constraint in [*field.metadata, *inner]:
        nested = getattr(constraint, "metadata", None) or [constraint]
        for part in nested:
            for name, symbol in _SYMBOLS:
                value = getattr(part, name, None)
                if value is not None:
                    found[symbol.format(value)] = None
            if getattr(part, "pattern", None):
                found[f"matches {part.pattern}"] = None
    return ", ".join(found)


def _default_text(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return "required"
    if default is None:
        return "not given"
    if isinstance(default, Options):
        return "see its section"
    return value_as_toml(default)


def _section_of(annotation: object) -> tuple[type[Options] | None, str]:
    """The options inside an annotation, and what stands for their index or key in a path."""
    if isinstance(annotation, type) and issubclass(annotation, Options):
        return annotation, ""
    origin = typing.get_origin(annotation)
    members = [member for member in typing.get_args(annotation) if isinstance(member, type)]
    options = [member for member in members if issubclass(member, Options)]
    suffix = {tuple: "N", list: "N", dict: "NAME"}.get(cast("type", origin), "")
    return (options[0], suffix) if options else (None, "")
