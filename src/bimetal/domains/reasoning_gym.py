"""Any task of the reasoning-gym package, by name, scored strictly.

The package's own scores are kind: its base scorer gives 0.5 to "17" where the answer is "7", others
give a floor to anything. So by default an answer is right or it is not: exact equality where a task
has the base scorer, a score of at least 0.99 elsewhere. Tasks whose scorer or labels are known to
be wrong are refused. What a scorer would hand to Python's own evaluation passes a list of allowed
characters first. Every row is scored with its own answer when it is loaded, after a round trip
through JSON, since that is how rows are stored.
"""

# long: one catalogue entry is one file; half of it are the tables of tasks that are refused, with reasons
from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast, runtime_checkable

import pydantic
from pydantic import Field

from bimetal.config.options import Options
from bimetal.core.errors import ConfigError, DataError, VerifierError, boundary, unknown_name
from bimetal.core.streams import stable_hash
from bimetal.core.types import (
    Demonstration,
    Item,
    JsonValue,
    Message,
    Prompt,
    PromptId,
    Services,
    Split,
    Verdict,
)
from bimetal.data.procedural import Counts, split_of
from bimetal.rewards.allow import is_literal, is_symbolic
from bimetal.rewards.extract import answer_region, is_bounded, lenient_answer, strict_answer, strict_block
from bimetal.rewards.grade import bad_row, verdict_of

NAME = "reasoning_gym"

REFERENCE_FORM = 'The task\'s own row: {"question": ..., "answer": "12", "metadata": {...}}.'

KNOWN_BAD = {
    "boxnet": "its rows carry no answer to check the scorer with",
    "composite": "it mixes other tasks; name each of them",
    "game_of_life_halting": "any text that is not empty scores 1",
    "propositional_logic": "its premises contradict each other in a quarter of the rows",
    "puzzle24": "its scorer does not check which numbers an answer uses",
    "rush_hour": "its rows carry no answer to check the scorer with",
    "syllogism": "an eighth of its labels is wrong",
}
"""Tasks that are refused, with the reason (measured at version 0.1.25)."""

EXAMPLE_OPTIONS = {"task": "chain_sum"}
"""Options the conformance suite tries this domain with, since it has no default task."""

HASH_DEPENDENT = (
    "isomorphic_strings",
    "knight_swap",
    "polynomial_multiplication",
    "ransom_note",
    "word_ladder",
)
"""Tasks whose rows depend on the order of Python's sets, so on PYTHONHASHSEED."""

TUPLE_TASKS = ("arc_agi", "rearc")
"""Tasks whose scorers compare with tuples in the row."""

GOLD_KEYS = ("possible_answer", "example_correct_answer", "example_answer")
"""Where the metadata holds an answer if the row has none."""

MAX_MISSES = 2_000
"""Rows in a row that belong to the split but repeat a question, after which a task counts as exhausted."""

MIN_ROWS = 20_000
"""Rows that are looked through for a split, at least; at most twenty times as many as are wanted."""

SEED_STRIDE = 1_000_000_000
"""Distance of the seeds of two splits: row i+1 of seed s is row i of seed s+1."""

FULL_SCORE = 0.99

_ANY_LINE = re.compile(r"[^\n]+(?=\s*\Z)")


class Config(Options):
    """Options of this domain."""

    task: str
    """Name of the task, such as "chain_sum"."""

    options: dict[str, pydantic.JsonValue] = Field(default_factory=dict)
    """Options of the task itself, such as {min_terms = 2, max_terms = 3}."""

    count: Counts = Counts()
    """Distinct questions per split."""

    seed: int = Field(default=0, ge=0, le=1_000_000)
    """Seed of the rows."""

    instruction: str = "End with one line of the form 'Answer: X', where X is the answer alone."
    """Text put below every question; says how to answer."""

    scoring: Literal["binary", "partial"] = "binary"
    """Right or wrong; or the task's own partial score, reduced by ``baseline``."""

    baseline: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Score b that a constant answer reaches; a partial score s becomes (s - b) / (1 - b), at least 0."""

    allow_known_bad: bool = False
    """Whether to load tasks that are known to score wrongly."""

    on_bad: Literal["stop", "skip"] = "stop"
    """What a row does whose own answer does not score 1: stop the run, or be left out and counted in the
    ``skipped`` entry of the prompts' ``meta``."""


@runtime_checkable
class _Task(Protocol):
    def __getitem__(self, index: int) -> Mapping[str, object]: ...

    def score_answer(self, answer: str, entry: Mapping[str, object]) -> float: ...


@dataclass(frozen=True, slots=True)
class _Scorer:
    # ``is_allowed`` decides whether the task's scorer may see an answer.
    task: _Task
    is_exact: bool
    has_tuples: bool
    is_allowed: Callable[[str], bool]


def load(options: Config, split: Split) -> Iterator[tuple[Prompt, tuple[Demonstration, ...]]]:
    """The rows of a split, each with its answer as a demonstration of the format.

    Raises:
        ConfigError: The package, the task or one of its options does not exist, or the task is known to be
            bad, or it has too few distinct questions.
        DataError: Rows whose own answer does not score 1, unless they are to be skipped.
    """
    _check_task(options)
    scorer = _scorer(options.task, json.dumps(options.options, sort_keys=True))
    start = options.seed * 3 * SEED_STRIDE + list(Split).index(split) * SEED_STRIDE
    rows, skipped, wanted = list[tuple[int, Mapping[str, JsonValue]]](), 0, options.count.of(split)
    for index, row in _distinct_rows(options, split, start):
        if len(rows) == wanted:
            break
        if _is_sound(scorer, row, options):
            rows.append((index, row))
        elif options.on_bad == "skip":
            skipped += 1
        else:
            raise DataError(
                f"{NAME}: row {index} of {options.task} does not score 1 with its own answer "
                f"{str(row.get('answer'))[:80]!r}; {len(rows)} rows before it did. "
                'Set on_bad = "skip" to leave such rows out'
            )
    if len(rows) < wanted:
        raise ConfigError(
            f"{NAME}: count.{split.value} is {wanted}, but only {len(rows)} distinct rows of "
            f"{options.task} were found in the {split.value} split ({skipped} left out); lower the count, "
            "or widen the task's options"
        )
    return (_prompt(options, index, row, skipped) for index, row in rows)


def verify(items: Sequence[Item], options: Config, services: Services) -> list[Verdict]:
    """Correct where the task's scorer gives the one strict answer full marks."""
    scorer = _scorer(options.task, json.dumps(options.options, sort_keys=True))
    return [_verdict(item, options, scorer) for item in items]


def _check_task(options: Config) -> None:
    reason = KNOWN_BAD.get(options.task)
    if reason is not None and not options.allow_known_bad:
        raise ConfigError(
            f"{NAME}: task {options.task!r} is refused: {reason}. "
            "Choose another task, or set allow_known_bad = true"
        )
    if options.task in HASH_DEPENDENT and os.environ.get("PYTHONHASHSEED", "random") == "random":
        raise ConfigError(
            f"{NAME}: the rows of {options.task!r} change from process to process with Python's hash seed; "
            "set the environment variable PYTHONHASHSEED=0 before starting"
        )


# A memo of a pure function: building a task takes up to a third of a second, and every group needs it.
@functools.lru_cache(maxsize=32)
def _scorer(name: str, options: str) -> _Scorer:
    try:
        from reasoning_gym.dataset import ProceduralDataset
        from reasoning_gym.factory import DATASETS, create_dataset
    except ImportError as error:
        raise ConfigError(
            f"{NAME}: the package reasoning-gym is not installed ({error}); run: pip install 'bimetal[gym]'"
        ) from error
    if name not in DATASETS:
        raise unknown_name("reasoning-gym task", name, DATASETS)
    with boundary(ConfigError, f"{NAME}: options of {name} ({_known_options(DATASETS[name][1])})"):
        task = create_dataset(name, size=1, seed=0, **json.loads(options))
    is_exact = type(task).score_answer is ProceduralDataset.score_answer
    is_allowed = is_bounded if is_exact else _allowance(type(task))
    return _Scorer(cast("_Task", task), is_exact, name in TUPLE_TASKS, is_allowed)


def _known_options(config: type) -> str:
    names = sorted(field.name for field in dataclasses.fields(config) if field.name not in ("seed", "size"))
    return "it knows " + ", ".join(names)


def _allowance(task: type) -> Callable[[str], bool]:
    """What is safe for a scorer, read off the evaluators that its module calls."""
    module = inspect.getmodule(task)
    source = inspect.getsource(module if module is not None else task)
    if re.search(r"\b(?:parse_expr|sympify)\(", source):
        return is_symbolic
    return is_literal if re.search(r"(?<![\w.])eval\(", source) else is_bounded


def _distinct_rows(
    options: Config, split: Split, start: int
) -> Iterator[tuple[int, Mapping[str, JsonValue]]]:
    from reasoning_gym.factory import create_dataset

    # A few tasks prepare all rows at once and mix them by size, so size is the same for small counts.
    size = max(MIN_ROWS, 20 * options.count.of(split))
    task = create_dataset(options.task, size=size, seed=start, **options.options)
    seen, misses = set[str](), 0
    for index in range(size):
        if misses >= MAX_MISSES:
            return
        with boundary(DataError, f"{NAME}: row {index} of {options.task}"):
            # Rows are stored as JSON, so they are judged as JSON.
            row: Mapping[str, JsonValue] = json.loads(json.dumps(task[index], default=str))
        key = _key(row)
        if split_of(f"{NAME}/{options.task}", key) is not split:
            continue
        misses = misses + 1 if key in seen else 0
        if key not in seen:
            seen.add(key)
            yield index, row


def _key(row: Mapping[str, JsonValue]) -> str:
    return " ".join(str(row["question"]).split())


def _gold(row: Mapping[str, JsonValue]) -> str | None:
    if row.get("answer") is not None:
        return str(row["answer"])
    metadata = row.get("metadata")
    found = [metadata[key] for key in GOLD_KEYS if key in metadata] if isinstance(metadata, Mapping) else []
    if not found:
        return None
    return found[0] if isinstance(found[0], str) else json.dumps(found[0])


def _is_sound(scorer: _Scorer, row: Mapping[str, JsonValue], options: Config) -> bool:
    gold = _gold(row)
    if gold is None:
        return options.allow_known_bad
    response = _written(gold)
    strict = strict_block(response) if "\n" in gold else strict_answer(response)
    score = None if strict is None else _score(scorer, row, strict)
    return score is not None and score >= FULL_SCORE


def _written(gold: str) -> str:
    return f"Answer:\n{gold}" if "\n" in gold else f"Answer: {gold}"


def _prompt(
    options: Config, index: int, row: Mapping[str, JsonValue], skipped: int
) -> tuple[Prompt, tuple[Demonstration, ...]]:
    key, gold = _key(row), _gold(row)
    prompt = Prompt(
        id=PromptId(f"{NAME}/{options.task}/{stable_hash(key):032x}"),
        domain=NAME,
        messages=(
            Message(
                role="user", content="\n".join(filter(None, (str(row["question"]), options.instruction)))
            ),
        ),
        reference=row,
        problem=key,
        source=options.task,
        meta={"index": index, "skipped": skipped},
    )
    if gold is None:
        return prompt, ()
    return prompt, (Demonstration(prompt_id=prompt.id, text=_written(gold), author="solver", quality=1.0),)


def _verdict(item: Item, options: Config, scorer: _Scorer) -> Verdict:
    verifier = f"{NAME}/{options.task}/1"
    row = item.prompt.reference
    if not isinstance(row, Mapping) or "question" not in row:
        return bad_row(f"{NAME}: the reference must be the task's own row; found {row!r}", verifier=verifier)
    region, gold = answer_region(item.response), _gold(row)
    if region is None:
        return verdict_of(strict=None, lenient=None, extracted=None, verifier=verifier)
    strict = strict_block(region) if gold is not None and "\n" in gold else strict_answer(region)
    lenient = strict or lenient_answer(region, shape=_ANY_LINE)
    score = None if strict is None else _score(scorer, row, strict)
    loose = score if strict is not None else None if lenient is None else _score(scorer, row, lenient)
    verdict = verdict_of(
        strict=None if score is None else score >= FULL_SCORE,
        lenient=loose is not None and loose >= FULL_SCORE,
        extracted=lenient,
        verifier=verifier,
    )
    if options.scoring == "binary" or score is None or score >= FULL_SCORE:
        return verdict
    return dataclasses.replace(
        verdict, reward=max(0.0, (score - options.baseline) / (1.0 - options.baseline))
    )


def _score(scorer: _Scorer, row: Mapping[str, JsonValue], answer: str) -> float | None:
    """The task's score of an answer in [0, 1], or ``None`` where it cannot be read."""
    if scorer.is_exact:
        return float(answer == str(row["answer"]).strip())
    if not scorer.is_allowed(answer):
        return None
    try:
        # A scorer that raises on junk says that the answer cannot be read.
        with boundary(VerifierError, NAME):
            score = float(scorer.task.score_answer(answer, _entry(scorer, row)))
    except VerifierError:
        return None
    return min(max(score, 0.0), 1.0) if math.isfinite(score) else None


def _entry(scorer: _Scorer, row: Mapping[str, JsonValue]) -> dict[str, object]:
    # These scorers compare nested tuples, which JSON has turned into lists.
    if scorer.has_tuples:
        return {
            **row,
            "metadata": {k: _tuples(v) for k, v in cast("dict[str, object]", row["metadata"]).items()},
        }
    return dict(row)


def _tuples(value: object) -> object:
    return tuple(_tuples(v) for v in cast("list[object]", value)) if isinstance(value, list) else value
