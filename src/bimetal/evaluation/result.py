"""What an evaluation found, problem by problem: enough to compute every number again.

A file holds the counts of each problem and, for readers, the summary computed from them; reading a
file ignores the summary and computes its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import cast

from pydantic import TypeAdapter, ValidationError

from bimetal.core.errors import CheckpointError, ConfigError, DataError
from bimetal.core.files import write_atomic, writing
from bimetal.core.types import EMPTY, Finish, JsonValue, Split, Status
from bimetal.evaluation.summary import ProblemResult, Summary, summarized
from bimetal.rollout.backend import Sampling

SCHEMA_VERSION = 1
"""Version of the stored form; raised when a field changes meaning."""

FOLDER = "eval"
"""Where a run folder keeps its evaluations."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One answer kept as text, for people."""

    domain: str
    prompt_id: str
    prompt: str
    reference: str
    response: str
    status: Status
    finish: Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteResult:
    """One model's answers to one suite, counted.

    ``SuiteResult(suite="final", split=Split.TEST, label="after", seed=1, samples=1, sampling=...,
    problems={"lab_table": (ProblemResult(...),)})``

    ``settings`` is what the caller wants kept beside the counts: the model, the domains' options.
    """

    suite: str
    split: Split
    label: str
    seed: int
    samples: int
    sampling: Sampling
    problems: Mapping[str, tuple[ProblemResult, ...]]
    settings: Mapping[str, JsonValue] = field(default_factory=lambda: EMPTY)
    examples: tuple[Example, ...] = ()

    def summary(self) -> Summary:
        """Every reported number with its interval, computed from the counts."""
        return summarized(self.problems, samples=self.samples, max_tokens=self.sampling.max_tokens)

    def to_json(self) -> str:
        """The result as one JSON document, the summary included."""
        # ``settings`` may be a read-only view, which asdict cannot copy.
        body = asdict(replace(self, settings={})) | {
            "settings": dict(self.settings),
            "problems": {name: [_row(p) for p in some] for name, some in self.problems.items()},
        }
        head = {"schema_version": SCHEMA_VERSION, "summary": self.summary().to_json()}
        return json.dumps(head | body, allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes, *, source: str = "evaluation") -> SuiteResult:
        """The result that ``to_json`` wrote.

        Args:
            text: The document.
            source: What a message calls it.

        Raises:
            DataError: It is no such document, or of a version that cannot be read.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{source}: is not JSON ({error}); name a file that an evaluation wrote"
            ) from None
        if not isinstance(document, dict):
            raise DataError(f"{source}: is no evaluation; found a {type(document).__name__}, not an object")
        fields = cast("dict[str, object]", document)
        version = fields.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise DataError(
                f"{source}: has schema version {version!r}, this program reads {SCHEMA_VERSION}; "
                "evaluate the model again"
            )
        fields.pop("summary", None)
        try:
            return TypeAdapter(cls).validate_python(fields)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            raise DataError(
                f"{source}: {place}: {first['msg']}; name a file that an evaluation wrote"
            ) from None


def save(result: SuiteResult, run: Path, *, name: str) -> Path:
    """Write ``eval/<name>.json`` in a run folder, whole or not at all, and return where it is.

    Raises:
        ConfigError: The name has characters that a file name should not have.
        CheckpointError: It cannot be written.
    """
    path = run / FOLDER / f"{_checked(name)}.json"
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, result.to_json().encode("utf-8"))
    return path


def load(run: Path, *, name: str) -> SuiteResult:
    """Read ``eval/<name>.json`` of a run folder.

    Raises:
        ConfigError: The name has characters that a file name should not have.
        CheckpointError: The file is missing, is a link, or cannot be read.
        DataError: The file is not an evaluation.
    """
    path = run / FOLDER / f"{_checked(name)}.json"
    if path.is_symlink() or path.parent.is_symlink() or not path.is_file():
        raise CheckpointError(f"{path}: is missing or a link; evaluate the model to write it")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({error.strerror}); fix its permissions") from error
    return SuiteResult.from_json(data, source=str(path))


def _checked(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"name of an evaluation {name!r}: use letters, digits, '.', '-' and '_', as in 'after_sft'"
        )
    return name


def _row(problem: ProblemResult) -> Mapping[str, object]:
    return asdict(problem) | {"votes": [list(vote) for vote in problem.votes]}
