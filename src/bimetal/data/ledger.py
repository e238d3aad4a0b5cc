"""What the run knows about every prompt: visits, attempts, passes, posterior pass rate, cost."""

# pyright: reportUnknownParameterType=false
# (pyarrow's classes are compiled and have no types)
from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import exp, lgamma, log, log1p
from pathlib import Path
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq

from bimetal.core.errors import CheckpointError
from bimetal.core.types import Group, JsonValue, Origin, PromptId, Status, Trace

LEDGER_VERSION = 1
"""Version of the stored form."""

_NAMES_ARE_JSON = "bimetal.prompt_ids_are_json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The counts of one prompt: ``Entry(visits=2, attempts=16, passes=5, generated_tokens=910)``.

    ``attempts`` are judged rollouts that began free; only they say what the policy can do. ``assisted`` are
    judged traces that began from a demonstration or under guidance. ``unknown`` could not be judged, and
    count as neither. ``generated_tokens`` are the policy's own, of every trace.
    """

    visits: int = 0
    attempts: int = 0
    passes: int = 0
    unknown: int = 0
    assisted: int = 0
    generated_tokens: int = 0

    @property
    def mean(self) -> float:
        """Posterior mean of the pass rate under a uniform prior: (passes + 1) / (attempts + 2)."""
        return (self.passes + 1) / (self.attempts + 2)

    def interval(self, coverage: float = 0.95) -> tuple[float, float]:
        """Equal-tailed posterior interval of the pass rate under a uniform prior.

        Raises:
            ValueError: The coverage is not strictly between 0 and 1.
        """
        if not 0.0 < coverage < 1.0:
            raise ValueError(f"coverage is between 0 and 1; got {coverage}")
        a, b = self.passes + 1, self.attempts - self.passes + 1
        tail = (1.0 - coverage) / 2.0
        return _beta_quantile(tail, a, b), _beta_quantile(1.0 - tail, a, b)


class Ledger:
    """Entries by prompt; a prompt that was never visited has the empty entry."""

    def __init__(self, entries: Mapping[PromptId, Entry] | None = None) -> None:
        self._entries = dict(entries or {})

    @property
    def entries(self) -> Mapping[PromptId, Entry]:
        """The entries of all prompts that were visited, in the order of their first visit."""
        return dict(self._entries)

    def of(self, prompt_id: PromptId) -> Entry:
        """The entry of a prompt."""
        return self._entries.get(prompt_id, Entry())

    def observe(self, groups: Iterable[Group]) -> None:
        """Count finished groups, each as one visit of its prompt."""
        for group in groups:
            self._entries[group.prompt.id] = _after(self.of(group.prompt.id), group)

    def state_dict(self) -> dict[str, JsonValue]:
        """Everything, as JSON can hold it."""
        rows = {
            name: [getattr(entry, column) for column in _COLUMNS] for name, entry in self._entries.items()
        }
        return {"version": LEDGER_VERSION, "columns": list(_COLUMNS), "entries": cast("JsonValue", rows)}

    def load_state_dict(self, state: Mapping[str, JsonValue]) -> None:
        """Replace everything by what `state_dict` gave.

        Raises:
            CheckpointError: The state is of another version, or damaged.
        """
        if state.get("version") != LEDGER_VERSION or state.get("columns") != list(_COLUMNS):
            raise CheckpointError(
                f"ledger: must be of version {LEDGER_VERSION} with columns {', '.join(_COLUMNS)}; "
                f"found version {state.get('version')}, columns {state.get('columns')}. "
                "Resume with the version of bimetal that wrote it"
            )
        entries = state.get("entries")
        if not isinstance(entries, Mapping):
            raise CheckpointError("ledger: holds no entries; the checkpoint is damaged, use the one before")
        self._entries = {PromptId(name): _entry(name, counts) for name, counts in entries.items()}


_COLUMNS = tuple(column.name for column in fields(Entry))


def _after(entry: Entry, group: Group) -> Entry:
    """The entry once a group is counted in."""
    free = [trace for trace in group.traces if trace.is_known and _is_free(trace)]
    verdicts = [trace.verdict for trace in group.traces if trace.verdict is not None]
    return Entry(
        visits=entry.visits + 1,
        attempts=entry.attempts + len(free),
        passes=entry.passes + sum(_passed(trace) for trace in free),
        unknown=entry.unknown + sum(verdict.status is Status.UNKNOWN for verdict in verdicts),
        assisted=entry.assisted + sum(trace.is_known and not _is_free(trace) for trace in group.traces),
        generated_tokens=entry.generated_tokens + sum(map(_policy_tokens, group.traces)),
    )


def _is_free(trace: Trace) -> bool:
    return trace.draft.prefix_fraction == 0.0 and trace.draft.guidance is None


def _passed(trace: Trace) -> bool:
    return trace.verdict is not None and trace.verdict.status is Status.CORRECT


def _policy_tokens(trace: Trace) -> int:
    segments = [segment for context in trace.contexts for segment in context]
    return sum(len(segment.token_ids) for segment in segments if segment.origin is Origin.POLICY)


def _entry(name: str, counts: object) -> Entry:
    found = cast("Sequence[object]", counts) if isinstance(counts, list) else ()
    numbers = [one for one in found if isinstance(one, int) and not isinstance(one, bool) and one >= 0]
    if len(numbers) != len(_COLUMNS) or numbers[2] > numbers[1]:
        raise CheckpointError(
            f"ledger: the entry of {name!a} must be {len(_COLUMNS)} counts, passes at most attempts; "
            f"found {ascii(counts)[:80]}. The checkpoint is damaged, use the one before"
        )
    return Entry(**dict(zip(_COLUMNS, numbers, strict=True)))


def write_ledger(ledger: Ledger, path: Path) -> Path:
    """Write the ledger as Parquet with each prompt's posterior; the old file stays until the new is whole.

    Raises:
        CheckpointError: The disk is full or the folder cannot be written.
    """
    table = _table(ledger.entries)
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            pq.write_table(table, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        if temporary.is_file():
            temporary.unlink()
        raise CheckpointError(
            f"{path.name}: cannot be written: {error}. Free some space, then resume"
        ) from error
    return path


def _table(entries: Mapping[PromptId, Entry]) -> pa.Table:
    metadata: dict[str, str] = {}
    try:
        names = pa.array(list(entries), type=pa.string())
    except UnicodeError:  # a lone surrogate has no UTF-8, but it has a JSON escape
        names = pa.array([json.dumps(name) for name in entries], type=pa.string())
        metadata = {_NAMES_ARE_JSON: "yes"}
    columns: dict[str, pa.Array] = {"prompt_id": names}
    for column in _COLUMNS:
        columns[column] = pa.array([getattr(entry, column) for entry in entries.values()], type=pa.int64())
    # Many prompts share their counts, and an interval takes some hundred evaluations.
    known = {(one.passes, one.attempts): one.interval() for one in entries.values()}
    intervals = [known[one.passes, one.attempts] for one in entries.values()]
    columns["pass_rate"] = pa.array([one.mean for one in entries.values()], type=pa.float64())
    columns["pass_rate_low"] = pa.array([low for low, _ in intervals], type=pa.float64())
    columns["pass_rate_high"] = pa.array([high for _, high in intervals], type=pa.float64())
    return pa.table(columns).replace_schema_metadata(metadata)


def read_ledger(path: Path) -> Ledger:
    """Read what `write_ledger` wrote.

    Raises:
        CheckpointError: The file is missing, damaged, or no ledger.
    """
    try:
        table = pq.read_table(path, columns=["prompt_id", *_COLUMNS])
        rows: list[Mapping[str, object]] = table.to_pylist()
        names = [str(row["prompt_id"]) for row in rows]
        if _NAMES_ARE_JSON.encode() in (table.schema.metadata or {}):
            names = [str(json.loads(name)) for name in names]
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path.name}: cannot be read: {error}. Rebuild it from the checkpoint"
        ) from error
    counts = [[row[column] for column in _COLUMNS] for row in rows]
    return Ledger({PromptId(n): _entry(n, c) for n, c in zip(names, counts, strict=True)})


def _beta_quantile(probability: float, a: int, b: int) -> float:
    """The point below which a Beta(a, b) variable falls with this probability, by halving."""
    low, high = 0.0, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2.0
        if _beta_cdf(middle, a, b) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _beta_cdf(x: float, a: int, b: int) -> float:
    """For whole a and b: the chance of at least a successes in a + b - 1 trials of chance x."""
    n = a + b - 1
    scale = lgamma(n + 1)
    terms = (
        exp(scale - lgamma(k + 1) - lgamma(n - k + 1) + k * log(x) + (n - k) * log1p(-x))
        for k in range(a, n + 1)
    )
    return min(1.0, sum(terms))
