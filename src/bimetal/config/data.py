"""The `[data]` section of a recipe: where prompts and demonstrations come from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from bimetal.config.options import Options
from bimetal.core.errors import unknown_name
from bimetal.core.types import Split, Stream

FormatName = Literal["auto", "canonical", "messages", "prompt_completion", "gsm8k", "verl"]
"""The row formats that can be read; `auto` decides by the names of the columns."""

FIELDS = (
    "answer",
    "author",
    "author_logprobs",
    "completion",
    "demonstration",
    "demonstrations",
    "difficulty",
    "domain",
    "extra_info",
    "id",
    "messages",
    "meta",
    "problem",
    "prompt",
    "quality",
    "question",
    "reference",
    "reward_model",
    "source",
    "stream",
    "token_ids",
)
"""Every field that `columns` may point at a column of the user's file."""


class SourceOptions(Options):
    """One file, folder or `datasets` id of prompts, demonstrations, or both."""

    path: str = Field(min_length=1)
    """A file (.jsonl, .json, .csv, .tsv, .parquet; the text ones also .gz), a folder of such files, a folder
    saved by `datasets`, or an `owner/name` id of the hub. A relative path starts at the recipe's folder."""

    format: FormatName = "auto"
    """How a row is laid out; `auto` decides by the names of the columns and reports what it chose."""

    domain: str = ""
    """Name of the domain whose verifier judges answers. Empty is the row's own `domain`, or none where
    nothing is judged."""

    use: Split = Split.TRAIN
    """`train` rows are learned from; `selection` and `test` rows are held out, for the evaluations of that
    split (`evaluation.split`). A problem that stands in both is an error."""

    stream: Stream = Stream.MAIN
    """`main` prompts are rolled out; `demonstrations` prompts only lend their demonstrations."""

    subset: str = ""
    """Configuration name of a `datasets` id, as in `main` of GSM8K; empty is its default."""

    split: str = ""
    """Split of a `datasets` id (empty is `train`); in a folder, the beginning of the file names to read."""

    columns: dict[str, str] = Field(default_factory=dict)
    """Our field -> the column that holds it, as in `{reference = "ground_truth"}`. A dot enters a nested
    column (`extra_info.answer`); an empty name leaves the field out."""

    weight: float = Field(default=1.0, gt=0.0)
    """How often a prompt of this source is drawn, relative to a prompt of a source with weight 1."""

    limit: int | None = Field(default=None, ge=1)
    """Read only the first rows, this many; every row where not given."""

    system_prompt: str = ""
    """A system message to put before every prompt; rows that bring their own are then an error."""

    instruction_suffix: str = ""
    """Text appended, exactly as it stands, to the last user message of every prompt."""

    author: str = ""
    """Who wrote the demonstrations, where the row does not say."""

    quality: float | None = Field(default=None, ge=0.0, le=1.0)
    """How good the demonstrations are, in [0, 1], where the row does not say; unknown where not given."""

    calculator_marks: Literal["remove", "keep"] = "remove"
    """What happens to the `<<48/2=24>>` marks in GSM8K's solutions."""

    @field_validator("path")
    @classmethod
    def _is_a_path(cls, path: str) -> str:
        if "://" in path:
            raise ValueError(
                f"an address is not read; got {path!r}. Download the file, or name an owner/name id"
            )
        if any(ord(character) < 32 for character in path):
            raise ValueError(f"a path holds no control characters; got {path!r}")
        return path

    @field_validator("columns")
    @classmethod
    def _are_our_fields(cls, columns: dict[str, str]) -> dict[str, str]:
        for field in columns:
            if field not in FIELDS:
                raise unknown_name("field in columns", field, FIELDS)
        return columns

    @model_validator(mode="after")
    def _held_out_rows_lend_nothing(self) -> SourceOptions:
        if self.use is not Split.TRAIN and self.stream is not Stream.MAIN:
            raise ValueError(
                f"stream: held-out rows lend no demonstrations; got stream = {self.stream.value!r} with "
                f"use = {self.use.value!r}. Leave one of them out"
            )
        return self


class DataOptions(Options):
    """Everything a run learns from, apart from the domains that generate their own prompts."""

    sources: tuple[SourceOptions, ...] = ()
    """The sources, in order; their prompts are joined."""

    on_bad_rows: Literal["stop", "set_aside"] = "stop"
    """What a row that cannot be used does: `stop` the run before it starts, or be `set_aside` in a file with
    the reason."""
