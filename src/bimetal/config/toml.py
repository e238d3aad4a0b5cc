"""Options written as TOML, so that reading the text gives the same options again."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import cast

from bimetal.config.options import Options

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPED = {ord("\x7f"): "\\u007F"}
"""TOML forbids DEL in a string, JSON does not."""


def options_as_toml(options: Options) -> str:
    """The options, defaults filled in, as a TOML document; what is not given (None) is left out."""
    return table_as_toml(options.model_dump(mode="json", exclude_none=True))


def table_as_toml(table: Mapping[str, object]) -> str:
    """A table as a TOML document: plain values first, then one section per inner table.

    >>> print(table_as_toml({"name": "a", "stage": [{"share": 1.0}]}), end="")
    name = "a"
    <BLANKLINE>
    [[stage]]
    share = 1.0
    """
    return "\n".join(_lines(table, path=())) + "\n"


def value_as_toml(value: object) -> str:
    """One value on one line.

    >>> value_as_toml([1, "a", {"b": True}])
    '[1, "a", {b = true}]'
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).translate(_ESCAPED)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        entries = cast("Mapping[str, object]", value)
        return "{" + ", ".join(f"{_key(k)} = {value_as_toml(v)}" for k, v in entries.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(value_as_toml(item) for item in cast("Sequence[object]", value)) + "]"
    raise ValueError(f"TOML has no way to write {value!r}; leave the key out or give it a value")


def _lines(table: Mapping[str, object], *, path: tuple[str, ...]) -> list[str]:
    plain = {key: value for key, value in table.items() if not _is_section(value)}
    lines = [f"{_key(key)} = {value_as_toml(value)}" for key, value in plain.items()]
    for key, value in table.items():
        inner = (*path, key)
        title = ".".join(_key(part) for part in inner)
        if isinstance(value, Mapping):
            section = cast("Mapping[str, object]", value)
            needs_title = not section or not all(_is_section(item) for item in section.values())
            lines += ["", f"[{title}]"] if needs_title else []
            lines += _lines(section, path=inner)
        elif _is_section(value):
            for item in cast("Sequence[Mapping[str, object]]", value):
                lines += ["", f"[[{title}]]", *_lines(item, path=inner)]
    return lines if path else lines[1:] if lines[:1] == [""] else lines


def _is_section(value: object) -> bool:
    if isinstance(value, Mapping):
        return True
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    items = cast("Sequence[object]", value) if is_list else ()
    return bool(items) and all(isinstance(item, Mapping) for item in items)


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else value_as_toml(key)
