"""Models and problems named on a command line -> what ``evaluation`` needs: a subject, a suite, a judge."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from bimetal.config.model import ModelOptions
from bimetal.core.catalogue import find
from bimetal.core.errors import ConfigError
from bimetal.core.streams import Streams
from bimetal.core.types import JsonValue, Split
from bimetal.data.chat import Renderer
from bimetal.evaluation.result import SuiteResult
from bimetal.evaluation.sample import Observe, Plan, Subject, unobserved
from bimetal.evaluation.suite import Suite, evaluate
from bimetal.rewards.verifier import VerifierPool
from bimetal.rollout.backend import Backend
from bimetal.rollout.cached import positions_of
from bimetal.rollout.group import Judge, Rendering
from bimetal.studies.problems import Problems
from bimetal.trainer.devices import autocast_dtype, resolve_device
from bimetal.trainer.models import load_causal_lm
from bimetal.trainer.prepare import judge_with

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
    renderer = Renderer(loaded.tokenizer, stop_token_ids=loaded.stop_token_ids)
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
