"""Models and problems named on a command line -> what ``evaluation`` needs: a subject, a suite, a judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch

from bimetal.config.data import DataOptions, SourceOptions
from bimetal.config.load import read_toml, validate_entry
from bimetal.config.mistakes import validated
from bimetal.config.model import ModelOptions
from bimetal.config.schema import DomainOptions, TrainerOptions
from bimetal.core.catalogue import find, is_local_file
from bimetal.core.errors import ConfigError, DataError
from bimetal.core.streams import Streams
from bimetal.core.types import JsonValue, Prompt, PromptId, Split
from bimetal.data.chat import Renderer
from bimetal.data.records import load_data
from bimetal.evaluation.result import SuiteResult
from bimetal.evaluation.sample import Observe, Plan, Subject, unobserved
from bimetal.evaluation.suite import Suite, evaluate
from bimetal.rewards.verifier import VerifierPool
from bimetal.rollout.backend import Backend
from bimetal.rollout.cached import positions_of
from bimetal.rollout.group import Judge, Rendering
from bimetal.trainer.devices import autocast_dtype, resolve_device
from bimetal.trainer.models import load_causal_lm
from bimetal.trainer.prepare import judge_with
from bimetal.trainer.workset import Referee

RECIPE, MODEL = "recipe.toml", "model"
"""Inside a run folder: the run as it was started, and its finished model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What a name on the command line stands for: a model, and the run folder it is in, if any."""

    label: str
    model: str
    run: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A model that can answer, and the ids that end its answers."""

    subject: Subject
    stop_token_ids: tuple[int, ...]
    fingerprint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problems:
    """Problems by domain, who judges them, and the options that made them."""

    prompts: Mapping[str, Sequence[Prompt]]
    referees: Mapping[str, Referee]
    options: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """How an evaluation is made: ``seed`` names the noise, ``device`` is as in a recipe."""

    suite: str
    split: Split
    plan: Plan
    seed: int = 0
    device: str = "auto"


def named(text: str) -> Named:
    """A model's name, a model folder, or a run folder with a finished model.

    Raises:
        ConfigError: It is a run folder without a finished model.
    """
    folder = Path(text).expanduser()
    if not (folder / RECIPE).is_file():
        return Named(label=text, model=text)
    model = folder / MODEL
    if not model.is_dir() or model.is_symlink():
        raise ConfigError(
            f"{text}: the run has no finished model; found no folder {MODEL!r} in it; "
            f"continue it with `bimetal resume {text}`"
        )
    return Named(label=folder.resolve().name, model=str(model.resolve()), run=folder)


@contextmanager
def opened(name: Named, *, seed: int, device: str) -> Iterator[Opened]:
    """The model behind a name, loaded, checked and ready to answer; closed afterwards.

    Args:
        name: What ``named`` found.
        seed: Draws what has no weights yet (lab/nano).
        device: As in a recipe: auto, cpu, mps, cuda, cuda:1.

    Raises:
        ConfigError: There is no such model, or it cannot be used.
    """
    place = resolve_device(device)
    loaded = load_causal_lm(
        ModelOptions(name=name.model, device=device), device=place, base=Path.cwd(), seed=seed
    )
    renderer = Renderer(loaded.tokenizer)
    renderer.check()
    pad = loaded.tokenizer.pad_token_id
    local = find("backends", "local").module
    backend: Backend = local.connect(
        local.Config(),
        module=loaded.module,
        pad_token_id=pad if isinstance(pad, int) else 0,
        decode=renderer.text_of,
        device=place,
        autocast=autocast_dtype("auto", place),
    )
    rendering = Rendering(
        prompt_ids=renderer.prompt_ids, response_ids=renderer.response_ids, text_of=renderer.text_of
    )
    subject = Subject(
        name=name.label, backend=backend, rendering=rendering, positions=positions_of(loaded.module)
    )
    try:
        yield Opened(subject=subject, stop_token_ids=renderer.stop_token_ids, fingerprint=loaded.fingerprint)
    finally:
        backend.close()
        if place.type == "cuda":
            torch.cuda.empty_cache()


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


def generated(tables: Mapping[str, DomainOptions], split: Split, *, count: int) -> Problems:
    """Up to ``count`` problems of each domain's own generator.

    Raises:
        ConfigError: No domain is named, or one has no generator.
    """
    if not tables:
        raise ConfigError("no domain is named; give --domain NAME, or --suite FILE with [domain.NAME] tables")
    prompts: dict[str, list[Prompt]] = {}
    for key, table in tables.items():
        if is_local_file(table.name):
            raise ConfigError(
                f"domain {table.name!r} is a local file, which makes no problems; give --data FILE"
            )
        entry = find("domains", table.name)
        if not hasattr(entry.module, "load"):
            raise ConfigError(f"domain {key!r} only judges and makes no problems; give them with --data FILE")
        own = {**entry.options, **table.own}
        options = validate_entry("domain", own, config_class=entry.module.Config, path=f"domain.{key}")
        drawn = islice(entry.module.load(options, split), count)
        prompts[key] = [_renamed(prompt, key, entry=table.name) for prompt, _ in drawn]
    return Problems(prompts=prompts, referees=_referees(tables), options=_options(tables))


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


@contextmanager
def judging(problems: Problems, *, workers: int, time_limit_seconds: float) -> Iterator[Judge]:
    """A judge of all domains, in processes that can be killed; the verifiers are loaded first.

    Raises:
        ConfigError: A verifier is unknown, or refuses its options.
    """
    with VerifierPool(workers, time_limit_seconds) as pool:
        for referee in problems.referees.values():
            pool.prepare(referee.entry, referee.options)
        yield judge_with(pool, problems.referees)


def measured(
    name: Named, problems: Problems, *, judge: Judge, setting: Setting, observe: Observe = unobserved
) -> SuiteResult:
    """Answers of the model behind a name to the problems, judged and counted.

    Raises:
        BimetalError: The model cannot be opened, or those of ``evaluation.suite.evaluate``.
    """
    with opened(name, seed=setting.seed, device=setting.device) as model:
        kept: dict[str, JsonValue] = {"model": name.model, "fingerprint": model.fingerprint}
        suite = Suite(
            name=setting.suite,
            domains=problems.prompts,
            split=setting.split,
            settings={**kept, "domains": problems.options},
        )
        return evaluate(
            suite,
            subject=model.subject,
            judge=judge,
            streams=Streams(setting.seed),
            plan=with_stops(setting.plan, model),
            observe=observe,
        )


def with_stops(plan: Plan, model: Opened) -> Plan:
    """The plan with the ids that end this model's answers."""
    return replace(plan, sampling=replace(plan.sampling, stop_token_ids=model.stop_token_ids))


def _referees(tables: Mapping[str, DomainOptions]) -> dict[str, Referee]:
    return {key: Referee(entry=table.name, options=table.own) for key, table in tables.items()}


def _options(tables: Mapping[str, DomainOptions]) -> dict[str, JsonValue]:
    return {key: {"name": table.name, **table.own} for key, table in tables.items()}


def _renamed(prompt: Prompt, key: str, *, entry: str) -> Prompt:
    """The prompt under its table's name, which may differ from the entry's."""
    if key == entry:
        return prompt
    return replace(prompt, domain=key, id=PromptId(f"{key}/{prompt.id.removeprefix(entry + '/')}"))
