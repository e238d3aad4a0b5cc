"""What `bimetal methods`, `bimetal domains`, `bimetal schema` and the documentation say of an entry."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

from bimetal.config.describe import OptionRow, json_schema, option_rows, options_table, sections
from bimetal.config.options import Options
from bimetal.core.catalogue import Entry, Kind, find, names
from bimetal.core.errors import ConfigError
from bimetal.core.types import JsonValue

RUN_TOKENS = 128
"""Response length of the example run that an entry is assembled for, to read its needs from the result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """What is known of an entry: ``Card(name="grpo", kind="methods", summary="GRPO: clipped ...", ...)``."""

    name: str
    kind: Kind
    source: str
    summary: str
    description: str
    options: tuple[OptionRow, ...]
    variants: Mapping[str, Mapping[str, JsonValue]]
    paper: str = ""
    equation: str = ""
    evidence: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    terms: tuple[str, ...] = ()
    equivalence_class: str = ""
    """Methods with the same kind of mix, needs and update rule share one; their trajectories test alike."""

    def as_json(self) -> dict[str, object]:
        """The card as plain values."""
        variants = {name: dict(values) for name, values in self.variants.items()}
        return {**asdict(self), "variants": variants}


def cards(kind: Kind) -> list[Card]:
    """The card of every built-in and installed entry, by name."""
    return [card(kind, name) for name in names(kind)]


def card(kind: Kind, name: str) -> Card:
    """The card of one entry or variant; its module is imported.

    Raises:
        UnknownNameError: No entry has this name.
    """
    entry = find(kind, name)
    module = entry.module
    text = inspect.getdoc(module) or ""
    return Card(
        name=name,
        kind=kind,
        source=str(entry.source),
        summary=" ".join(text.split("\n\n", maxsplit=1)[0].split()),
        description=text,
        options=option_rows(config_class(entry)),
        variants=cast("Mapping[str, Mapping[str, JsonValue]]", getattr(module, "VARIANTS", {})),
        paper=str(getattr(module, "PAPER", "")),
        equation=str(getattr(module, "EQUATION", "")),
        evidence=tuple(str(item) for item in getattr(module, "EVIDENCE", ())),
        **(_method_parts(entry) if kind == "methods" else {}),
    )


def config_class(entry: Entry) -> type[Options]:
    """The options of an entry.

    Raises:
        ConfigError: Its file exports no ``Config``.
    """
    found = getattr(entry.module, "Config", None)
    if not (isinstance(found, type) and issubclass(found, Options)):
        raise ConfigError(f"{entry.name}: its file must export Config, a class of options; found {found!r}")
    return found


def entry_schema(kind: Kind, name: str) -> dict[str, Any]:
    """JSON Schema of the table that chooses this entry."""
    schema = json_schema(config_class(find(kind, name)))
    schema["properties"] = {"name": {"const": name}, **schema.get("properties", {})}
    schema["required"] = ["name", *schema.get("required", [])]
    return schema


def card_as_markdown(shown: Card) -> str:
    """The card as a page."""
    parts = [f"# {shown.name}", _as_markdown(shown.description)]
    facts = {
        "Paper": shown.paper,
        "Evidence": ", ".join(shown.evidence),
        "Needs": ", ".join(shown.needs),
        "Terms": ", ".join(f"`{term}`" for term in shown.terms),
    }
    lines = [f"- {key}: {value}" for key, value in facts.items() if value]
    if shown.equation:
        parts.append(f"```text\n{shown.equation}\n```")
    if lines:
        parts.append("\n".join(lines))
    parts.append(f"## Options\n\n{_all_options(shown)}")
    if shown.variants:
        listed = [
            f"- `{name}`: {', '.join(f'{k} = {v}' for k, v in values.items()) or 'the defaults'}"
            for name, values in shown.variants.items()
        ]
        parts.append("## Variants\n\n" + "\n".join(listed))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _all_options(shown: Card) -> str:
    tables = [
        (f"`{path}`\n\n" if path else "") + options_table(model)
        for path, model in sections(config_class(find(shown.kind, shown.name)))
    ]
    return "\n".join(tables)


def _as_markdown(docstring: str) -> str:
    """A module docstring as Markdown: code marks halved, a numbered list after its blank line."""
    lines: list[str] = []
    for line in docstring.replace("``", "`").splitlines():
        if line.startswith("1. ") and lines and lines[-1]:
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def _method_parts(entry: Entry) -> dict[str, Any]:
    """What only the built method tells, with its preset options; nothing where an option is required."""
    from bimetal.objectives.method import Method, RunShape

    config = config_class(entry)
    if any(field.is_required() for key, field in config.model_fields.items() if key not in entry.options):
        return {}
    options = config.model_validate(dict(entry.options))
    run = RunShape(max_response_tokens=RUN_TOKENS, group_size=8)
    method = cast("Method", entry.module.build(options, run))
    needs = tuple(sorted(need.value for need in method.needs))
    return {
        "needs": needs,
        "terms": tuple(term.name for term in method.terms),
        "equivalence_class": " | ".join((_kind_of(method.mix), "+".join(needs), _kind_of(method.update))),
    }


def _kind_of(part: object) -> str:
    """The name of the function, of the factory that made it, or of its class."""
    name = getattr(part, "__qualname__", type(part).__qualname__)
    return name.partition(".<locals>")[0]
