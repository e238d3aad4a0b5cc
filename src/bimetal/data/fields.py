"""Single values of a row -> typed values of ours; every refusal names the field and shows what was found."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from collections.abc import Mapping, Sequence
from typing import cast

from bimetal.core.errors import DataError
from bimetal.core.types import JsonValue, Message
from bimetal.data.readers import shown

ROLES = ("system", "developer", "user", "assistant", "tool")
"""The roles a message may have."""

MAX_DEPTH = 100
"""Deepest nesting of a reference or an extra column."""

_LOST_WITH_CONTENT = ("tool_calls", "function_call", "reasoning_content", "reasoning", "thinking")


def refused(field: str, wanted: str, found: object) -> DataError:
    """The error for a field that holds something else than it must."""
    return DataError(f"field {field!r}: must be {wanted}; found {shown(found)}")


def text(value: object, field: str) -> str:
    """A text that is not blank."""
    if not isinstance(value, str):
        raise refused(field, "text", value)
    if not value.strip():
        raise refused(field, "text that is not blank", value)
    return value


def identifier(value: object, field: str) -> str:
    """A text or a whole number, as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return text(value, field)


def number(value: object, field: str) -> float:
    """A finite number; CSV and some JSON files write it as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise refused(field, "a number", value)
    try:
        parsed = float(value)
    except (ValueError, OverflowError) as error:
        raise refused(field, "a number", value) from error
    if not math.isfinite(parsed):
        raise refused(field, "a finite number (leave it out where it is unknown)", value)
    return parsed


def share(value: object, field: str) -> float:
    """A number in [0, 1]."""
    parsed = number(value, field)
    if not 0.0 <= parsed <= 1.0:
        raise refused(field, "in [0, 1]", value)
    return parsed


def json_value(value: object, field: str, *, depth: int = 0) -> JsonValue:
    """Anything JSON can hold; dates and decimals become text, NaN, infinity and bytes are refused."""
    if depth > MAX_DEPTH:
        raise DataError(f"field {field!r}: nested deeper than {MAX_DEPTH}; flatten it")
    if isinstance(value, float) and not math.isfinite(value):
        raise refused(field, "a finite number (use null where it is unknown)", value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {str(name): json_value(item, field, depth=depth + 1) for name, item in items}
    if isinstance(value, list | tuple):
        return [json_value(item, field, depth=depth + 1) for item in cast("Sequence[object]", value)]
    raise refused(field, "something JSON can hold", value)


def parsed(value: object, field: str, *, wanted: str) -> object:
    """The value, or what its JSON text says; never anything but JSON is decoded."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise refused(field, f"{wanted}, or such a thing as JSON text", value) from error


def mapping(value: object, field: str) -> Mapping[str, object]:
    """An object with named fields, perhaps as JSON text."""
    decoded = parsed(value, field, wanted="an object")
    if not isinstance(decoded, Mapping):
        raise refused(field, "an object", value)
    return cast("Mapping[str, object]", decoded)


def chat(value: object, field: str) -> tuple[Message, ...]:
    """A list of messages, perhaps as JSON text."""
    wanted = 'a list of messages such as [{"role": "user", "content": "..."}]'
    decoded = parsed(value, field, wanted=wanted)
    if not isinstance(decoded, list | tuple) or not decoded:
        raise refused(field, wanted, value)
    turns = cast("Sequence[object]", decoded)
    return tuple(_message(turn, f"{field}[{index}]") for index, turn in enumerate(turns))


def text_or_chat(value: object, field: str, *, role: str) -> tuple[Message, ...]:
    """A plain text becomes one message of ``role``; a list of messages stays what it is."""
    if isinstance(value, str) and not _is_chat_text(value):
        return (Message(role=role, content=text(value, field)),)
    return chat(value, field)


def _is_chat_text(value: str) -> bool:
    """Whether a text is certainly a chat in JSON: a problem may well begin with a bracket."""
    if not value.lstrip().startswith("["):
        return False
    try:
        decoded = json.loads(value)
    except (ValueError, RecursionError):
        return False
    turns = cast("Sequence[object]", decoded) if isinstance(decoded, list) else ()
    return bool(turns) and all(
        isinstance(turn, Mapping) and {"role", "content"} <= set(turn) for turn in turns
    )


def _message(value: object, field: str) -> Message:
    if not isinstance(value, Mapping):
        raise refused(field, 'a message such as {"role": "user", "content": "..."}', value)
    turn = cast("Mapping[str, object]", value)
    role = turn.get("role")
    if role not in ROLES:
        raise refused(f"{field}.role", f"one of {', '.join(ROLES)}", role)
    for name in _LOST_WITH_CONTENT:
        if turn.get(name):
            raise DataError(
                f"field '{field}.{name}': is not read, and leaving it out would change the message; "
                f"found {shown(turn[name])}. Write it into the content"
            )
    return Message(role=str(role), content=_content(turn.get("content"), f"{field}.content"))


def _content(value: object, field: str) -> str:
    """Text, or a list of parts that are all text."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list | tuple):
        raise refused(field, "text", value)
    texts: list[str] = []
    for part in cast("Sequence[object]", value):
        piece = cast("Mapping[str, object]", part) if isinstance(part, Mapping) else {}
        content = piece.get("text", piece.get("value"))
        if piece.get("type") != "text" or not isinstance(content, str):
            raise refused(field, 'text, or parts of {"type": "text"} alone', part)
        texts.append(content)
    return "".join(texts)


def integers(value: object, field: str) -> tuple[int, ...]:
    """A list of token ids, perhaps as JSON text."""
    found = parsed(value, field, wanted="a list of token ids")
    items = cast("Sequence[object]", found) if isinstance(found, list | tuple) else (None,)
    ids = tuple(item for item in items if isinstance(item, int) and not isinstance(item, bool) and item >= 0)
    if len(ids) != len(items):
        raise refused(field, "a list of whole numbers from 0 up", value)
    return ids


def logprobs(value: object, field: str) -> tuple[float, ...]:
    """A list of log-probabilities in nats, perhaps as JSON text."""
    found = parsed(value, field, wanted="a list of log-probabilities")
    items = cast("Sequence[object]", found) if isinstance(found, list | tuple) else (1.0,)
    numbers = tuple(number(item, field) for item in items)
    if any(item > 0.0 for item in numbers):
        raise refused(field, "a list of log-probabilities, none above 0", value)
    return numbers
