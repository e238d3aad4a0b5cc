"""How groups go to a verification worker and verdicts come back: one JSON document a line, no pickle.

Text is UTF-8 with surrogates let through, so every Python string survives, lone surrogates and NULs too.
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import cast

from bimetal.core.types import Finish, Item, JsonValue, Message, Prompt, PromptId, Status, Stream, Verdict

Document = Mapping[str, JsonValue]
"""One message."""

MAX_SHOWN = 4000
"""Characters of ``extracted`` and ``detail`` that travel; the rest is cut."""


def encode(document: Document) -> bytes:
    """One line, its ending included.

    Raises:
        ValueError: It holds a number JSON cannot carry.
        TypeError: It holds something that is not JSON.
    """
    text = json.dumps(document, ensure_ascii=False, default=_plain, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass") + b"\n"


def decode(line: bytes) -> Document:
    """The document of one line.

    Raises:
        ValueError: The line is not the JSON of an object.
    """
    document = json.loads(line.decode("utf-8", "surrogatepass"))
    if not isinstance(document, dict):
        raise ValueError(f"expected a JSON object; got {type(document).__name__}")
    return cast("Document", document)


def prompt_document(prompt: Prompt) -> Document:
    """A prompt as JSON; ``prompt_of`` reads it."""
    return {
        "id": prompt.id,
        "domain": prompt.domain,
        "messages": [[m.role, m.content] for m in prompt.messages],
        "reference": prompt.reference,
        "difficulty": prompt.difficulty,
        "problem": prompt.problem,
        "stream": prompt.stream.value,
        "source": prompt.source,
        "meta": prompt.meta,
    }


def prompt_of(document: Document) -> Prompt:
    """The prompt that ``prompt_document`` described; tuples in its data come back as lists."""
    messages = cast("Sequence[tuple[str, str]]", document["messages"])
    return Prompt(
        id=PromptId(cast("str", document["id"])),
        domain=cast("str", document["domain"]),
        messages=tuple(Message(role=role, content=content) for role, content in messages),
        reference=document["reference"],
        difficulty=cast("float | None", document["difficulty"]),
        problem=cast("str", document["problem"]),
        stream=Stream(cast("str", document["stream"])),
        source=cast("str", document["source"]),
        meta=cast("Document", document["meta"]),
    )


def items_of(document: Document) -> list[Item]:
    """The items of one task: a prompt, its responses and how each ended."""
    prompt = prompt_of(cast("Document", document["prompt"]))
    responses = cast("Sequence[str]", document["responses"])
    finishes = cast("Sequence[str]", document["finishes"])
    return [
        Item(prompt=prompt, response=response, finish=Finish(finish))
        for response, finish in zip(responses, finishes, strict=True)
    ]


def verdict_document(verdict: object) -> Document:
    """A verdict as JSON, after a check of what user code may have put into it.

    Raises:
        TypeError: It is not a verdict, or a field has the wrong type.
        ValueError: A number is out of range.
    """
    if not isinstance(verdict, Verdict):
        raise TypeError(f"expected a Verdict; got {type(verdict).__name__}: {verdict!r}"[:MAX_SHOWN])
    return {
        "status": Status(verdict.status).value,
        "reward": None if verdict.reward is None else _number(verdict.reward, "reward"),
        "reason": _text(verdict.reason, "reason"),
        "parts": {_text(k, "part"): _number(v, k) for k, v in verdict.parts.items()},
        "extracted": None if verdict.extracted is None else _text(verdict.extracted, "extracted"),
        "verifier": _text(verdict.verifier, "verifier"),
        "seconds": _number(verdict.seconds, "seconds"),
        "detail": _text(verdict.detail, "detail"),
    }


def verdict_of(document: Document) -> Verdict:
    """The verdict that ``verdict_document`` described."""
    return Verdict(
        status=Status(cast("str", document["status"])),
        reward=cast("float | None", document["reward"]),
        reason=cast("str", document["reason"]),
        parts=cast("Mapping[str, float]", document["parts"]),
        extracted=cast("str | None", document["extracted"]),
        verifier=cast("str", document["verifier"]),
        seconds=cast("float", document["seconds"]),
        detail=cast("str", document["detail"]),
    )


def finite(value: object) -> float | None:
    """A real number as a float; ``None`` where it is no number or not finite.

    >>> finite(1), finite("1"), finite(float("nan"))
    (1.0, None, None)
    """
    if not isinstance(value, numbers.Real):
        return None
    number = float(value)
    return number if math.isfinite(number) else None


def _number(value: object, field: str) -> float:
    number = finite(value)
    if number is None:
        raise ValueError(f"{field} must be a finite number; got {value!r}"[:MAX_SHOWN])
    return number


def _text(value: object, field: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{field} must be text; got {value!r}"[:MAX_SHOWN])
    return str(value)[:MAX_SHOWN]


def _plain(value: object) -> object:
    """What ``json`` does not know by itself: read-only mappings."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, JsonValue]", value))
    raise TypeError(f"{type(value).__name__} is not JSON: {value!r}"[:MAX_SHOWN])
