"""Mistakes in words: a path, what the value must be, what was found, what the field is for."""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, Union, cast

import pydantic
from pydantic_core import ErrorDetails

from bimetal.config.options import Options
from bimetal.core.errors import ConfigError, UnknownNameError, unknown_name

SomeOptions = TypeVar("SomeOptions", bound=Options)
Answer = TypeVar("Answer")

MAX_SHOWN = 60
"""Characters of a wrong value that a message repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where an error points: ``path`` for people, the field's sentence, and the model that holds it."""

    path: str
    description: str
    owner: type[Options] | None


def validated(model: type[SomeOptions], table: Mapping[str, object], *, path: str = "") -> SomeOptions:
    """The table as an instance of the model, strictly: text is no number, and true is not 1.

    Args:
        model: The options the table must fit.
        table: What was written, as TOML values.
        path: Where the table stands in the recipe; it opens every line of a message.

    Raises:
        UnknownNameError: Every mistake is a key that does not exist.
        ConfigError: A key is missing, or a value has the wrong type or is out of range.
    """
    unusual = list(_unusual(table, path=path))
    if unusual:
        raise listed(unusual, kinds=[ConfigError])
    try:
        # TOML is JSON plus dates; the JSON rules are the strict ones that still read a list as a tuple.
        return model.model_validate_json(json.dumps(table), strict=True)
    except pydantic.ValidationError as error:
        raise _explained(error, model, path=path) from None


def all_of(checks: Iterable[Callable[[], Answer]]) -> list[Answer]:
    """The answers of all checks, or one error that lists the mistakes of every check that failed.

    >>> all_of([lambda: 1, lambda: 2])
    [1, 2]
    """
    answers: list[Answer] = []
    failures: list[ConfigError] = []
    for check in checks:
        try:
            answers.append(check())
        except ConfigError as error:
            failures.append(error)
    if failures:
        raise listed([str(error) for error in failures], kinds=[type(error) for error in failures])
    return answers


def listed(lines: Sequence[str], *, kinds: Sequence[type[ConfigError]]) -> ConfigError:
    """One error of several lines; its class is the common one, or ``ConfigError``."""
    kind = kinds[0] if len(set(kinds)) == 1 else ConfigError
    return kind("\n".join(lines))


def _unusual(value: object, *, path: str) -> Iterator[str]:
    """A line for each value that TOML has and JSON has not."""
    if isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, object]", value).items():
            yield from _unusual(inner, path=_joined(path, [key]))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(cast("Sequence[object]", value)):
            yield from _unusual(inner, path=_joined(path, [str(index)]))
    elif isinstance(value, float) and not math.isfinite(value):
        yield f"{path}: must be a finite number; got {value}"
    elif value is not None and not isinstance(value, bool | int | float | str):
        yield f"{path}: dates and times are not used here; put {value} in quotes"


def _explained(error: pydantic.ValidationError, model: type[Options], *, path: str) -> ConfigError:
    lines: dict[str, str] = {}
    alternatives: dict[str, list[str]] = {}
    kinds: dict[str, type[ConfigError]] = {}
    for detail in error.errors(include_url=False):
        place = _place(model, detail["loc"], prefix=path)
        kinds[place.path] = UnknownNameError if detail["type"] == "extra_forbidden" else ConfigError
        if detail["type"] == "extra_forbidden":
            known = place.owner.model_fields if place.owner is not None else ()
            lines[place.path] = f"{place.path}: {unknown_name('option', str(detail['loc'][-1]), known)}"
        else:
            # A field of several types fails once for each of them: the line names all that would do.
            must = alternatives.setdefault(place.path, [])
            must.append(_must(detail))
            lines[place.path] = _line(place, " or ".join(dict.fromkeys(must)), detail)
    return listed(list(lines.values()), kinds=[kinds[place] for place in lines])


def _line(place: _Place, must: str, detail: ErrorDetails) -> str:
    if detail["type"] == "value_error":
        return f"{place.path}: {must}" if place.path else must
    if detail["type"] == "missing":
        return f"{place.path}: is required. {place.description}".rstrip()
    return f"{place.path}: must be {must}; got {_shown(detail['input'])}. {place.description}".rstrip()


def _must(detail: ErrorDetails) -> str:
    """The rest of the sentence "must be ...".

    >>> _must({"type": "greater_than", "loc": (), "msg": "Input should be greater than 0", "input": 0})
    'greater than 0'
    """
    words = {
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "float_type": "a number",
        "string_type": "text in quotes",
        "bool_type": "true or false",
        "tuple_type": "a list in [ ]",
        "list_type": "a list in [ ]",
        "dict_type": "a table",
        "model_type": "a table",
        "too_short": "given at least once",
    }
    if detail["type"] in words:
        return words[detail["type"]]
    if detail["type"] == "string_pattern_mismatch":
        return f"text that matches {detail.get('ctx', {}).get('pattern')}"
    message = detail["msg"].removeprefix("Value error, ")
    return (
        message.removeprefix("Input should be ").removeprefix("Input should ").removeprefix("Value should ")
    )


def _shown(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "..."


def _joined(prefix: str, parts: Sequence[str]) -> str:
    return ".".join([prefix, *parts] if prefix else parts)


def _place(model: type[Options], location: Sequence[int | str], *, prefix: str) -> _Place:
    """Walk from the model along pydantic's location, leaving out the names of union branches."""
    parts: list[str] = []
    owner: type[Options] | None = model
    description = ""
    here: Any = model
    for step in location:
        here = _without_annotation(here)
        if typing.get_origin(here) in (Union, types.UnionType):
            here, is_branch = _branch(here, step)
            if is_branch:
                continue
        if isinstance(here, type) and issubclass(here, Options):
            owner = here
            field = here.model_fields.get(str(step))
            # A help of two lines would look like two mistakes.
            description = " ".join((field.description or "").split()) if field else ""
            here = field.annotation if field else None
        elif here is not None:
            here = _item(here, step)
        parts.append(str(step))
    return _Place(path=_joined(prefix, parts), description=description, owner=owner)


def _without_annotation(annotation: object) -> object:
    return typing.get_args(annotation)[0] if hasattr(annotation, "__metadata__") else annotation


def _branch(annotation: object, step: int | str) -> tuple[Any, bool]:
    """What a step into a union leads to, and whether the step only names one of its members.

    pydantic names the member where several could be meant, and goes straight in where one is None.
    """
    members = [_without_annotation(member) for member in typing.get_args(annotation)]
    options = [member for member in members if isinstance(member, type) and issubclass(member, Options)]
    if types.NoneType in members and len(members) == 2:
        return next(member for member in members if member is not types.NoneType), False
    return next((member for member in options if member.__name__ == step), None), True


def _item(annotation: object, step: int | str) -> object:
    """The type of what a tuple, list or mapping holds at this index or key."""
    arguments = cast("tuple[object, ...]", typing.get_args(annotation))
    if not arguments:
        return None
    if typing.get_origin(annotation) is tuple and isinstance(step, int) and arguments[-1] is not Ellipsis:
        return arguments[step] if step < len(arguments) else None
    return arguments[0] if typing.get_origin(annotation) is tuple else arguments[-1]
