"""The row formats: which columns hold which field, and how they become a prompt with demonstrations."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import cast

from bimetal.config.data import SourceOptions
from bimetal.core.errors import DataError
from bimetal.core.types import Demonstration, JsonValue, Message, PromptId
from bimetal.data.fields import (
    chat,
    identifier,
    integers,
    json_value,
    logprobs,
    mapping,
    parsed,
    refused,
    share,
    text,
    text_or_chat,
)

CALCULATOR_MARK = re.compile(r"<<[^\n]*?>>")
"""GSM8K's notes to a calculator: ``48/2 = <<48/2=24>>24``."""

_DEMONSTRATION_FIELDS = frozenset({"text", "author", "quality", "token_ids", "author_logprobs"})
_COMMON = frozenset({"author", "author_logprobs", "difficulty", "domain", "id", "meta", "problem", "quality"})
_SHARED = _COMMON | {"reference", "source", "stream", "token_ids"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a format finds in a row; the demonstrations do not know their prompt's id yet."""

    messages: tuple[Message, ...]
    reference: JsonValue = None
    demonstrations: tuple[Demonstration, ...] = ()
    meta: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cells:
    """A row seen through the names of our fields."""

    values: Mapping[str, object]
    layout: Layout
    options: SourceOptions

    def get(self, name: str) -> object:
        """What the row holds for a field; ``None`` where it holds nothing."""
        column = self.layout.column(name, self.options)
        return lookup(self.values, column) if column else None

    def need(self, name: str) -> object:
        """As `get`, for a field that must be there.

        Raises:
            DataError: The row holds nothing for it.
        """
        value = self.get(name)
        if value is None:
            column = self.layout.column(name, self.options)
            raise DataError(f"field {name!r}: column {column!r} is missing or null in this row")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One row format.

    ``columns`` are the columns its fields have unless the recipe renames them, ``allowed`` the fields it
    can be given by renaming, ``required`` groups of fields of which a file must have one each.
    """

    name: str
    columns: Mapping[str, str]
    allowed: frozenset[str]
    required: tuple[tuple[str, ...], ...]
    joins_rows: bool = False
    """Whether rows with the same prompt are several demonstrations of it."""
    read: Callable[[Cells], Content]

    def column(self, name: str, options: SourceOptions) -> str:
        """The column of a field; empty where it has none."""
        return options.columns.get(name, self.columns.get(name, ""))


def lookup(values: Mapping[str, object], column: str) -> object:
    """A cell; where no column has the whole name, a dot enters a nested column."""
    if column in values:
        return values[column]
    root, dot, rest = column.partition(".")
    if not dot or values.get(root) is None:
        return None
    inner = values[root]
    if isinstance(inner, str):
        inner = parsed(inner, root, wanted="an object")
    return lookup(cast("Mapping[str, object]", inner), rest) if isinstance(inner, Mapping) else None


def _as_text(value: object, name: str) -> str:
    """A response: text, a list of steps to be joined as they stand, or a chat of one assistant message."""
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        steps = [item for item in items if isinstance(item, str)]
        if items and len(steps) == len(items):
            return text("".join(steps), name)
    messages = text_or_chat(value, name, role="assistant")
    if len(messages) != 1 or messages[0].role != "assistant":
        raise refused(name, "text, a list of step texts, or a chat of one assistant message", value)
    return text(messages[0].content, name)


def _demonstration(cells: Cells, response: str) -> Demonstration:
    """A demonstration whose author and quality stand in columns of their own."""
    own = {name: cells.get(name) for name in ("author", "quality", "token_ids", "author_logprobs")}
    return _with_details({"text": response} | own, "", cells.options)


def _with_details(row: Mapping[str, object], prefix: str, options: SourceOptions) -> Demonstration:
    unknown = sorted(set(row) - _DEMONSTRATION_FIELDS)
    if unknown:
        wanted = ", ".join(sorted(_DEMONSTRATION_FIELDS))
        raise DataError(f"field '{prefix}{unknown[0]}': is not known; a demonstration has {wanted}")
    details = {name: value for name, value in row.items() if value is not None}
    if ("token_ids" in details) != ("author_logprobs" in details):
        given = "token_ids" if "token_ids" in details else "author_logprobs"
        raise DataError(
            f"field '{prefix}{given}': token_ids and author_logprobs go together; give both or none"
        )
    ids = integers(details["token_ids"], f"{prefix}token_ids") if "token_ids" in details else None
    known = (
        logprobs(details["author_logprobs"], f"{prefix}author_logprobs")
        if "author_logprobs" in details
        else None
    )
    if ids is not None and known is not None and len(ids) != len(known):
        raise DataError(
            f"field '{prefix}author_logprobs': must be one per token id; {len(known)} for {len(ids)}"
        )
    return Demonstration(
        prompt_id=PromptId(""),
        text=text(details.get("text"), f"{prefix}text" if prefix else "demonstration"),
        author=text(details["author"], f"{prefix}author") if details.get("author") else options.author,
        quality=share(details["quality"], f"{prefix}quality") if "quality" in details else options.quality,
        token_ids=ids,
        author_logprobs=known,
    )


def _demonstrations(cells: Cells) -> tuple[Demonstration, ...]:
    """The ``demonstrations`` list, and the single ``demonstration``, of a row."""
    found: list[Demonstration] = []
    single, several = cells.get("demonstration"), cells.get("demonstrations")
    if single is not None:
        found.append(_demonstration(cells, _as_text(single, "demonstration")))
    if several is None:
        return tuple(found)
    items = parsed(several, "demonstrations", wanted="a list")
    if not isinstance(items, list | tuple):
        raise refused("demonstrations", "a list of texts or of objects with a text", several)
    for index, item in enumerate(cast("Sequence[object]", items)):
        row = {"text": item} if isinstance(item, str) else mapping(item, f"demonstrations[{index}]")
        found.append(_with_details(row, f"demonstrations[{index}].", cells.options))
    return tuple(found)


def _reference(cells: Cells) -> JsonValue:
    return json_value(cells.get("reference"), "reference")


def _read_canonical(cells: Cells) -> Content:
    messages = cells.get("messages")
    prompt = (
        chat(messages, "messages")
        if messages is not None
        else text_or_chat(cells.need("prompt"), "prompt", role="user")
    )
    return Content(messages=prompt, reference=_reference(cells), demonstrations=_demonstrations(cells))


def _read_messages(cells: Cells) -> Content:
    turns = chat(cells.need("messages"), "messages")
    if turns[-1].role != "assistant":
        return Content(messages=turns, reference=_reference(cells))
    if len(turns) == 1:
        raise DataError("field 'messages': holds an answer and no prompt; put the user's message before it")
    last = text(turns[-1].content, f"messages[{len(turns) - 1}].content")
    return Content(
        messages=turns[:-1], reference=_reference(cells), demonstrations=(_demonstration(cells, last),)
    )


def _read_prompt_completion(cells: Cells) -> Content:
    response = _as_text(cells.need("completion"), "completion")
    return Content(
        messages=text_or_chat(cells.need("prompt"), "prompt", role="user"),
        reference=_reference(cells),
        demonstrations=(_demonstration(cells, response),),
    )


def _read_gsm8k(cells: Cells) -> Content:
    answer = text(cells.need("answer"), "answer")
    parts = answer.split("####")
    if len(parts) != 2:
        found = answer[-60:]
        raise refused("answer", f"a solution with exactly one '####' (it has {len(parts) - 1})", found)
    reference = parts[1].strip().replace(",", "")
    if not reference:
        raise refused("answer", "a solution with an answer after '####'", answer[-60:])
    marked = cells.options.calculator_marks == "keep"
    response = answer if marked else CALCULATOR_MARK.sub("", answer)
    return Content(
        messages=(Message(role="user", content=text(cells.need("question"), "question")),),
        reference=reference,
        demonstrations=(_demonstration(cells, response),),
    )


def _read_verl(cells: Cells) -> Content:
    model = mapping(cells.need("reward_model"), "reward_model")
    renamed = cells.get("reference")
    reference = json_value(renamed if renamed is not None else model.get("ground_truth"), "reference")
    rest = {name: item for name, item in model.items() if name != "ground_truth"}
    information = cells.get("extra_info")
    meta: dict[str, object] = {"reward_model": rest} if rest else {}
    if information is not None:
        meta["extra_info"] = mapping(information, "extra_info")
    return Content(
        messages=text_or_chat(cells.need("prompt"), "prompt", role="user"),
        # Rows that a model or a rubric judges carry an empty text where others have the answer.
        reference=None if reference == "" else reference,
        demonstrations=_demonstrations(cells),
        meta={name: json_value(item, name) for name, item in meta.items()},
    )


def _same(*names: str) -> Mapping[str, str]:
    return MappingProxyType({name: name for name in names})


LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        layout.name: layout
        for layout in (
            Layout(
                name="canonical",
                columns=_same("messages", "prompt", "demonstration", "demonstrations", *_SHARED),
                allowed=_SHARED | {"messages", "prompt", "demonstration", "demonstrations"},
                required=(("messages", "prompt"),),
                read=_read_canonical,
            ),
            Layout(
                name="messages",
                columns=_same("id", "messages", "reference"),
                allowed=_SHARED | {"messages"},
                required=(("messages",),),
                joins_rows=True,
                read=_read_messages,
            ),
            Layout(
                name="prompt_completion",
                columns=_same("id", "prompt", "completion", "reference"),
                allowed=_SHARED | {"prompt", "completion"},
                required=(("prompt",), ("completion",)),
                joins_rows=True,
                read=_read_prompt_completion,
            ),
            Layout(
                name="gsm8k",
                columns=_same("id", "question", "answer"),
                allowed=_SHARED - {"reference"} | {"question", "answer"},
                required=(("question",), ("answer",)),
                read=_read_gsm8k,
            ),
            Layout(
                name="verl",
                columns={**_same("id", "prompt", "reward_model", "extra_info"), "source": "data_source"},
                allowed=_SHARED | {"prompt", "reward_model", "extra_info", "demonstration", "demonstrations"},
                required=(("prompt",), ("reward_model",)),
                read=_read_verl,
            ),
        )
    }
)
"""Every row format by name."""


def row_id(cells: Cells) -> str | None:
    """The id a row gives itself; ``None`` where it gives none."""
    value = cells.get("id")
    return None if value is None else identifier(value, "id")
