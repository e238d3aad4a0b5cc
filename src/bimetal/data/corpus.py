"""What was loaded: prompts, their demonstrations, and the rows that could not be used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bimetal.core.files import writing
from bimetal.core.types import Demonstration, JsonValue, Prompt, PromptId, Stream

SET_ASIDE_FILE = "bad_rows.jsonl"
"""Name of the file that `write_set_aside` writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a row stands: ``Place(file="data/train.jsonl", unit="line", number=17)``."""

    file: str
    unit: str
    number: int

    def __str__(self) -> str:
        """As in ``data/train.jsonl line 17``."""
        return f"{self.file} {self.unit} {self.number}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row that cannot be used: ``BadRow(file="a.csv", row=3, reason="field 'id': ...", excerpt="{...")``.

    ``excerpt`` is the beginning of the row in ASCII, control characters escaped.
    """

    file: str
    row: int
    reason: str
    excerpt: str
    unit: str = "row"


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Prompts in order with what belongs to them.

    ``Corpus(prompts=(Prompt(id="m/1", ...),), demonstrations={"m/1": (Demonstration(...),)})``

    ``formats`` says in words what was done with every column. ``weights`` holds the weights of the
    prompts where they are not 1. A prompt without demonstrations has no entry in ``demonstrations``.
    """

    prompts: tuple[Prompt, ...]
    demonstrations: Mapping[PromptId, tuple[Demonstration, ...]] = field(default_factory=dict)
    bad_rows: tuple[BadRow, ...] = ()
    formats: tuple[str, ...] = ()
    places: Mapping[PromptId, Place] = field(default_factory=dict)
    weights: Mapping[PromptId, float] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the canonical form of every prompt and demonstration, in order."""
        digest = hashlib.sha256()
        for row in canonical_rows(self):
            digest.update(json_line(row).encode("ascii"))
        return digest.hexdigest()

    def weight_of(self, prompt_id: PromptId) -> float:
        """How often the prompt is drawn, relative to one of weight 1."""
        return self.weights.get(prompt_id, 1.0)


def json_line(value: JsonValue) -> str:
    """One line of ASCII JSON; lone surrogates and NULs become escapes, NaN is refused."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"), default=_plain) + "\n"


def _plain(value: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The encoder knows dict but not the other mappings."""
    return dict(value)


def canonical_rows(corpus: Corpus) -> Iterator[dict[str, JsonValue]]:
    """The corpus as rows of the canonical schema; what a field's default says is left out."""
    for prompt in corpus.prompts:
        row: dict[str, JsonValue] = {
            "id": prompt.id,
            "domain": prompt.domain,
            "messages": [{"role": m.role, "content": m.content} for m in prompt.messages],
            "reference": prompt.reference,
            "difficulty": prompt.difficulty,
            "demonstrations": [_row_of(d) for d in corpus.demonstrations.get(prompt.id, ())],
            "problem": prompt.problem,
            "source": prompt.source,
            "meta": prompt.meta,
        }
        if prompt.stream is not Stream.MAIN:
            row["stream"] = prompt.stream.value
        # An empty reference stays: the empty string may be an answer, and only null means that none is known.
        yield {
            name: value
            for name, value in row.items()
            if value not in (None, "", [], {}) or (name == "reference" and value is not None)
        }


def _row_of(demonstration: Demonstration) -> dict[str, JsonValue]:
    row: dict[str, JsonValue] = {"text": demonstration.text}
    if demonstration.author:
        row["author"] = demonstration.author
    if demonstration.quality is not None:
        row["quality"] = demonstration.quality
    if demonstration.token_ids is not None and demonstration.author_logprobs is not None:
        row["token_ids"] = list(demonstration.token_ids)
        row["author_logprobs"] = list(demonstration.author_logprobs)
    return row


def write_set_aside(corpus: Corpus, folder: Path) -> Path:
    """Write every bad row with its reason to ``folder``, one JSON line each; the path of the file.

    Raises:
        CheckpointError: The disk is full or not writable.
    """
    path = folder / SET_ASIDE_FILE
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json_line(asdict(row)) for row in corpus.bad_rows), encoding="ascii")
    return path
