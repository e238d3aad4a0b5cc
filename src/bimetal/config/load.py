"""A recipe file and command-line overrides become one frozen run; mistakes are explained together."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeVar, cast

from bimetal.config.mistakes import validated
from bimetal.config.options import Options
from bimetal.config.schema import Recipe, StageOptions
from bimetal.core.errors import ConfigError, unknown_name

EntryKind = Literal["method", "domain", "backend", "curriculum"]
SomeOptions = TypeVar("SomeOptions", bound=Options)
Table = dict[str, object]

ENTRY_KEYS: Mapping[EntryKind, tuple[str, ...]] = MappingProxyType(
    {
        "method": ("name",),
        "domain": ("name", "weight"),
        "backend": ("name",),
        "curriculum": ("name",),
    }
)
"""Keys of a catalogue entry's table that belong to the recipe and not to the entry."""

_BARE_TEXT = re.compile(r"""[^\s"'\[\]{}=#,][^"'\[\]{}=#\n]*""")
_OTHER_LANGUAGES: Mapping[str, str] = MappingProxyType(
    {"True": "true", "False": "false", "yes": "true", "no": "false", "on": "true", "off": "false"}
)


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe, apply ``key=value`` overrides, fill in what follows from the rest, and check it.

    Raises:
        ConfigError: The file cannot be read, is no TOML, or says something that cannot work.
        UnknownNameError: It has a key that does not exist.
    """
    return resolve(overridden(read_toml(path), overrides), source=str(path))


def read_toml(path: Path) -> Table:
    """The file as plain values.

    Raises:
        ConfigError: The file is missing, is a folder, is not UTF-8, or is no TOML; with its line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; {_neighbours(path)}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}); name a recipe file") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {_located(str(error))}") from None


def resolve(table: Mapping[str, object], *, source: str = "recipe") -> Recipe:
    """The table as a resolved run.

    Args:
        table: What the file says, overrides applied.
        source: What a message calls it.

    Raises:
        ConfigError: With every mistake in the table, one a line.
    """
    try:
        return validated(Recipe, _with_derived_names(table))
    except ConfigError as error:
        lines = str(error).splitlines()
        text = (
            f"{source}: {lines[0]}"
            if len(lines) == 1
            else "\n  ".join([f"{source}: {len(lines)} mistakes", *lines])
        )
        raise type(error)(text) from None


def validate_entry(
    kind: EntryKind, table: Mapping[str, object], *, config_class: type[SomeOptions], path: str
) -> SomeOptions:
    """The own options of a catalogue entry, checked against its ``Config``.

    Args:
        kind: What the entry is; it says which keys are the recipe's own (``name``, ``weight``).
        table: The entry's table as written, or its ``own`` part.
        config_class: The ``Config`` of the entry's file.
        path: Where the table stands, as in ``stage.0.method``; it opens every line of a message.

    Raises:
        ConfigError: As for the recipe itself.
    """
    reserved = ENTRY_KEYS[kind]
    clash = sorted(set(reserved) & set(config_class.model_fields))
    if clash:
        raise ConfigError(
            f"{path}: the {kind}'s Config has an option {clash[0]!r}, which is the recipe's; rename it"
        )
    own = {key: value for key, value in table.items() if key not in reserved}
    return validated(config_class, own, path=path)


def overridden(table: Mapping[str, object], overrides: Sequence[str]) -> Table:
    """The table with each ``key.path=value`` put in its place, the later one winning.

    ``stage.0.`` may be left out where there is one stage.

    Raises:
        ConfigError: An assignment that is no TOML, or a path that leads nowhere.
    """
    result = _copied(table)
    for text in overrides:
        keys, value = _assignment(text)
        _put(result, _full_path(result, keys), value=value, text=text)
    return result


def _assignment(text: str) -> tuple[list[str], object]:
    key, equals, written = text.partition("=")
    if not equals or not key.strip() or not written.strip():
        raise ConfigError(f"override {text!r}: must be key=value, as in stage.0.method.gamma=0.2")
    try:
        nested: object = tomllib.loads(f"{key} = 0")
    except tomllib.TOMLDecodeError:
        raise ConfigError(f"override {text!r}: {key!r} is no key; write parts joined by dots") from None
    keys: list[str] = []
    while isinstance(nested, dict):
        ((part, nested),) = cast("Table", nested).items()
        keys.append(part)
    return keys, _value(written.strip(), text=text)


def _value(written: str, *, text: str) -> object:
    """A TOML value; text without quotes is taken as text where it can be nothing else."""
    try:
        document = tomllib.loads(f"value = {written}")
    except tomllib.TOMLDecodeError as error:
        if written in _OTHER_LANGUAGES:
            raise ConfigError(
                f"override {text!r}: write {_OTHER_LANGUAGES[written]}, or '\"{written}\"' for text"
            ) from None
        if _BARE_TEXT.fullmatch(written):
            return written
        raise ConfigError(f"override {text!r}: {_located(str(error))}; put text in quotes") from None
    if len(document) != 1:
        raise ConfigError(f"override {text!r}: one assignment at a time")
    return document["value"]


def _full_path(table: Table, keys: list[str]) -> list[str]:
    if keys[0] in Recipe.model_fields or keys[0] not in StageOptions.model_fields:
        return keys
    stages = table.get("stage")
    count = len(cast("list[object]", stages)) if isinstance(stages, list) else 0
    if count != 1:
        dotted = ".".join(keys)
        raise ConfigError(f"{dotted}: the recipe has {count} stages; write stage.0.{dotted} to name one")
    return ["stage", "0", *keys]


def _put(table: Table, keys: list[str], *, value: object, text: str) -> None:
    here: object = table
    for depth, key in enumerate(keys):
        is_last = depth == len(keys) - 1
        if isinstance(here, dict):
            inner: Table = here
            if is_last:
                inner[key] = value
            here = inner.setdefault(key, {})
        elif isinstance(here, list):
            items = cast("list[object]", here)
            if not key.isdecimal() or int(key) >= len(items):
                place = ".".join(keys[:depth])
                raise ConfigError(
                    f"override {text!r}: {place} has entries 0 to {len(items) - 1}; got {key!r}"
                )
            if is_last:
                items[int(key)] = value
            here = items[int(key)]
        else:
            raise ConfigError(f"override {text!r}: {'.'.join(keys[:depth])} is a value and has no {key!r}")


def _copied(table: Mapping[str, object]) -> Table:
    """A deep copy whose tables and lists may be changed."""
    return {key: _copied_value(value) for key, value in table.items()}


def _copied_value(value: object) -> object:
    if isinstance(value, Mapping):
        return _copied(cast("Mapping[str, object]", value))
    if isinstance(value, list | tuple):
        return [_copied_value(item) for item in cast("Sequence[object]", value)]
    return value


def _with_derived_names(written: Mapping[str, object]) -> Table:
    """Fill in the run folder, a domain's entry and a stage's name where the file leaves them out."""
    result = _copied(written)
    if "name" in result:
        result.setdefault("output", f"runs/{result['name']}")
    domains = result.get("domain")
    for key, entry in cast("Table", domains).items() if isinstance(domains, dict) else ():
        if isinstance(entry, dict):
            cast("Table", entry).setdefault("name", key)
    stages = result.get("stage")
    for number, stage in enumerate(cast("list[object]", stages) if isinstance(stages, list) else ()):
        if isinstance(stage, dict):
            table = cast("Table", stage)
            table.setdefault("name", _stage_name(table.get("method"), number=number))
    return result


def _stage_name(method: object, *, number: int) -> str:
    """The method's name, with a dash for what a stage's name cannot hold."""
    name = cast("Table", method).get("name") if isinstance(method, dict) else None
    words = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") if isinstance(name, str) else ""
    return words or f"stage-{number}"


def _located(message: str) -> str:
    """Python's message with the line in front.

    >>> _located("Invalid value (at line 3, column 5)")
    'line 3, column 5: Invalid value'
    """
    match = re.fullmatch(r"(.*) \(at (line .*)\)", message, re.DOTALL)
    return f"{match[2]}: {match[1]}" if match else message


def _neighbours(path: Path) -> str:
    """Recipes that stand where the missing one was looked for."""
    found = sorted(p.name for p in path.parent.glob("*.toml")) if path.parent.is_dir() else []
    if not found:
        return f"there is no recipe in {path.parent} either"
    return str(unknown_name("recipe", path.name, found)).partition("; ")[2]
