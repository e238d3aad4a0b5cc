"""Where an evaluation's problems come from: domains' generators, a recipe's held-out rows, a data file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from bimetal.config.data import DataOptions, SourceOptions
from bimetal.config.load import read_toml, validate_entry
from bimetal.config.mistakes import validated
from bimetal.config.schema import DomainOptions, TrainerOptions
from bimetal.core.catalogue import find, is_local_file
from bimetal.core.errors import ConfigError, DataError
from bimetal.core.types import JsonValue, Prompt, PromptId, Split
from bimetal.data.corpus import SET_ASIDE_FILE
from bimetal.data.records import load_data
from bimetal.trainer.held_back import load_held_back
from bimetal.trainer.workset import Referee

BAD_ROWS = "data"
"""Inside a run folder: where the rows are that it set aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """Problems by domain, who judges them, and the options that made them."""

    prompts: Mapping[str, Sequence[Prompt]]
    referees: Mapping[str, Referee]
    options: Mapping[str, JsonValue]


def domain_tables(names: Sequence[str], recipe: Path | None) -> dict[str, DomainOptions]:
    """The named domains, each with its options from the recipe's ``[domain.NAME]`` table or its defaults.

    Without names all tables of the recipe. The file may be a whole recipe or hold such tables alone.

    Raises:
        ConfigError: A table is wrong.
    """
    written = read_toml(recipe).get("domain", {}) if recipe is not None else {}
    if not isinstance(written, dict):
        raise ConfigError(f"{recipe}: domain must be tables, as in [domain.lab_table]; found {written!r}")
    tables: dict[str, DomainOptions] = {}
    for key in names or written:
        table = written.get(key, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{recipe}: domain.{key} must be a table; found {table!r}")
        tables[key] = validated(DomainOptions, {"name": key, **table}, path=f"domain.{key}")
    return tables


def answer_tokens(recipe: Path | None) -> int:
    """How long an answer may be, in tokens: as the recipe has it, else as recipes have it by default."""
    trainer = read_toml(recipe).get("trainer", {}) if recipe is not None else {}
    options = validated(TrainerOptions, trainer if isinstance(trainer, dict) else {}, path="trainer")
    return options.max_response_tokens


def held_out_rows(recipe: Path | None, tables: Mapping[str, DomainOptions], split: Split) -> list[Prompt]:
    """The rows that a recipe's data sources hold out for this split, of the domains of ``tables``.

    Raises:
        ConfigError: The recipe's ``[data]`` is wrong.
        DataError: A source cannot be read or holds bad rows.
    """
    data = read_toml(recipe).get("data", {}) if recipe is not None else {}
    options = validated(DataOptions, data if isinstance(data, dict) else {}, path="data")
    own = tuple(s for s in options.sources if s.use is split and (not s.domain or s.domain in tables))
    left_out = set_aside_rows(recipe.parent) if recipe is not None else frozenset[tuple[str, int]]()
    if not own or recipe is None:
        return []
    # What is trained on was kept apart from them when the run began; what it left out is left out here.
    held = load_held_back(
        options.model_copy(update={"sources": own}), base=recipe.parent, referees=tables, trained=()
    )
    return [
        prompt
        for corpus in held.values()
        for prompt in corpus.prompts
        if (corpus.places[prompt.id].file, corpus.places[prompt.id].number) not in left_out
    ]


def set_aside_rows(run: Path) -> frozenset[tuple[str, int]]:
    """File and number of every row that a run set aside; none where the folder is no run's."""
    path = run / BAD_ROWS / SET_ASIDE_FILE
    if not path.is_file():
        return frozenset()
    rows = [json.loads(line) for line in path.read_text("ascii").splitlines()]
    return frozenset((str(row["file"]), int(row["row"])) for row in rows)


def generated(
    tables: Mapping[str, DomainOptions], split: Split, *, count: int, rows: Sequence[Prompt] = ()
) -> Problems:
    """Up to ``count`` problems of each domain: those of ``rows``, then its own generator's.

    Raises:
        ConfigError: No domain is named, or one has neither a generator nor rows.
    """
    if not tables:
        raise ConfigError("no domain is named; give --domain NAME, or --suite FILE with [domain.NAME] tables")
    prompts: dict[str, list[Prompt]] = {}
    for key, table in tables.items():
        given = [prompt for prompt in rows if prompt.domain == key]
        found = [*given, *islice(_drawn(key, table, split), max(count - len(given), 0))][:count]
        if not found:
            raise ConfigError(
                f"domain {key!r} only judges and makes no problems; give them with --data FILE, or in a "
                f'recipe as a [[data.sources]] with use = "{split.value}"'
            )
        prompts[key] = found
    return Problems(prompts=prompts, referees=_referees(tables), options=_options(tables))


def _drawn(key: str, table: DomainOptions, split: Split) -> Iterator[Prompt]:
    """The problems of a domain's own generator; none where it only judges."""
    if is_local_file(table.name):
        return
    entry = find("domains", table.name)
    if not hasattr(entry.module, "load"):
        return
    own = {**entry.options, **table.own}
    options = validate_entry("domain", own, config_class=entry.module.Config, path=f"domain.{key}")
    for prompt, _ in entry.module.load(options, split):
        yield _renamed(prompt, key, entry=table.name)


def read(path: Path, tables: Mapping[str, DomainOptions], *, count: int | None) -> Problems:
    """The problems of a data file, judged by the one domain of ``tables``, or by nobody.

    Raises:
        ConfigError: Several domains are named.
        DataError: The file cannot be read, has bad rows, or a row to be judged has no reference.
    """
    if len(tables) > 1:
        raise ConfigError(f"a data file is judged by one domain; found {', '.join(tables)}; name one")
    domain = next(iter(tables), "")
    source = SourceOptions(path=str(path), domain=domain, limit=count)
    corpus = load_data(DataOptions(sources=(source,)), base=Path.cwd())
    # The domain that was asked for judges every row, whatever a row says of itself.
    prompts = [replace(prompt, domain=domain) for prompt in corpus.prompts]
    without = next((p for p in prompts if p.reference is None), None)
    if domain and without is not None:
        raise DataError(
            f"{path}: prompt {without.id} has no reference, which domain {domain!r} needs to judge it; "
            "add an answer column, or leave --domain out"
        )
    return Problems(prompts={domain: prompts}, referees=_referees(tables), options=_options(tables))


def _referees(tables: Mapping[str, DomainOptions]) -> dict[str, Referee]:
    return {key: Referee(entry=table.name, options=table.own) for key, table in tables.items()}


def _options(tables: Mapping[str, DomainOptions]) -> dict[str, JsonValue]:
    return {key: {"name": table.name, **table.own} for key, table in tables.items()}


def _renamed(prompt: Prompt, key: str, *, entry: str) -> Prompt:
    """The prompt under its table's name, which may differ from the entry's."""
    if key == entry:
        return prompt
    return replace(prompt, domain=key, id=PromptId(f"{key}/{prompt.id.removeprefix(entry + '/')}"))
