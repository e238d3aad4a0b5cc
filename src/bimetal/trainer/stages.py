"""A run as a sequence of stages: each with its method, curricula, optimizers, and part of the budget."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from bimetal.config.load import validate_entry
from bimetal.config.options import Options
from bimetal.config.schema import OptimizerOptions, Recipe, StageOptions
from bimetal.core.catalogue import Entry, LocalCode, find
from bimetal.core.errors import ConfigError
from bimetal.core.streams import Streams
from bimetal.core.types import JsonValue, Prompt, PromptId, Stream
from bimetal.objectives.controller import Controller
from bimetal.objectives.method import Method, Need, RunShape
from bimetal.rollout.backend import Sampling
from bimetal.rollout.curriculum import Curriculum
from bimetal.rollout.group import Draw, Judge, Order
from bimetal.trainer.alarms import Alarms
from bimetal.trainer.needs import check_currency, check_needs, state_of
from bimetal.trainer.optimizer import LearningRate, RoleOptimizer
from bimetal.trainer.policy import CausalPolicy, Critic
from bimetal.trainer.roles import CRITIC, POLICY, REFERENCE, Models, frozen_role, role_of
from bimetal.trainer.workset import Workset


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A stage before it begins: its options, and its method built from them."""

    number: int
    options: StageOptions
    method: Method


@dataclass(slots=True, kw_only=True)
class Stage:
    """A stage that runs."""

    plan: Plan
    order: Order
    main: Curriculum
    second: Curriculum | None
    work: Workset
    alarms: Alarms = field(default_factory=Alarms)

    @property
    def name(self) -> str:
        """Its name in metrics."""
        return self.plan.options.name

    @property
    def controllers(self) -> dict[str, Controller]:
        """Coefficients with state, by term."""
        return {
            t.name: t.coefficient for t in self.plan.method.terms if isinstance(t.coefficient, Controller)
        }

    def draw(self, visits: dict[str, int]) -> list[Draw]:
        """The prompts of the next roll-out batch; ``visits`` counts on."""
        drawn = [self.work.prompts[i] for i in self.main.draw(self.plan.options.prompts_per_batch)]
        if self.second is not None:
            lent = [self.work.prompts[i] for i in self.second.draw(self.plan.options.demonstration_prompts)]
            drawn += [replace(p, stream=Stream.DEMONSTRATIONS) for p in lent]
        return [Draw(prompt=p, visit=_count(visits, p)) for p in drawn]

    def state_dict(self) -> dict[str, JsonValue]:
        """Everything that must be restored on resume."""
        return {
            "main": self.main.state_dict(),
            "second": None if self.second is None else self.second.state_dict(),
            "controllers": {name: c.state_dict() for name, c in self.controllers.items()},
            "alarms": self.alarms.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, JsonValue]) -> None:
        """Restore what ``state_dict`` gave."""
        self.main.load_state_dict(cast("Mapping[str, JsonValue]", state["main"]))
        if self.second is not None:
            self.second.load_state_dict(cast("Mapping[str, JsonValue]", state["second"]))
        for name, controller in self.controllers.items():
            saved = cast("Mapping[str, Mapping[str, float]]", state["controllers"])
            controller.load_state_dict(saved[name])
        self.alarms.load_state_dict(cast("Mapping[str, JsonValue]", state["alarms"]))


def plan_stages(recipe: Recipe, work: Workset, *, base: Path, code: LocalCode) -> tuple[Plan, ...]:
    """Every stage's method, checked against the data.

    Raises:
        ConfigError: A method is unknown, refuses its options, or needs what the run lacks.
    """
    return tuple(_plan(recipe, work, n, base=base, code=code) for n in range(len(recipe.stage)))


def method_of(options: StageOptions, *, shape: RunShape, where: str, base: Path, code: LocalCode) -> Method:
    """The method of a stage's table.

    Raises:
        ConfigError: It is unknown or refuses its options.
    """
    entry = find("methods", options.method.name, base=base, code=code)
    own = {**entry.options, **options.method.own}
    checked = validate_entry("method", own, config_class=entry.module.Config, path=f"{where}.method")
    return cast("Method", entry.module.build(checked, shape))


def _plan(recipe: Recipe, work: Workset, number: int, *, base: Path, code: LocalCode) -> Plan:
    options, where = recipe.stage[number], f"stage.{number}"
    shape = RunShape(max_response_tokens=recipe.trainer.max_response_tokens, group_size=options.group_size)
    method = method_of(options, shape=shape, where=where, base=base, code=code)
    _curriculum(options, number, base=base, code=code)
    check_needs(
        work,
        method,
        where=where,
        group_size=options.group_size,
        demonstration_prompts=options.demonstration_prompts,
    )
    check_currency(work, method, where=where, currency=recipe.budget.currency, group_size=options.group_size)
    return Plan(number=number, options=options, method=method)


def begin(  # noqa: PLR0913 - what a stage needs from the run, handed in by name
    plan: Plan,
    recipe: Recipe,
    work: Workset,
    *,
    judge: Judge,
    stop_token_ids: Sequence[int],
    base: Path,
    code: LocalCode,
) -> Stage:
    """The stage at its start: fresh curricula, and what it asks of a roll-out batch."""
    options = plan.options
    entry, checked = _curriculum(options, plan.number, base=base, code=code)
    uniform = find("curricula", "uniform")
    streams = Streams(recipe.seed)
    second = None
    if options.demonstration_prompts:
        lenders = work.candidates(Stream.DEMONSTRATIONS, lambda p: bool(work.library.of(p.id)))
        # Without a second source, the main prompts lend their own demonstrations.
        lenders = lenders or work.candidates(Stream.MAIN, lambda p: bool(work.library.of(p.id)))
        second = uniform.module.build(
            uniform.module.Config(), lenders, Streams(streams.key("second") % 2**63)
        )
    main = work.candidates(
        Stream.MAIN, lambda p: bool(plan.method.mix(state_of(work, p, options.group_size)))
    )
    return Stage(
        plan=plan,
        order=Order(
            mix=plan.method.mix,
            size=options.group_size,
            sampling=Sampling(
                temperature=options.temperature,
                max_tokens=recipe.trainer.max_response_tokens,
                stop_token_ids=tuple(stop_token_ids),
            ),
            judge=judge if Need.REWARD in plan.method.needs else None,
        ),
        main=entry.module.build(checked, main, streams),
        second=second,
        work=work,
    )


def assign_roles(models: Models, plan: Plan) -> None:
    """Give the policy a fresh optimizer, and make or drop the roles this stage needs.

    A critic that an earlier stage trained is kept; a reference is a copy of the policy as the stage begins.
    """
    policy = models[POLICY].module
    if not isinstance(policy, CausalPolicy):
        raise ConfigError("the policy must be a causal language model")
    models.roles[POLICY].optimizer = _optimizer(models.roles[POLICY].parameters, plan.options.optimizer)
    models.roles.pop(REFERENCE, None)
    if Need.CRITIC in plan.method.needs:
        critic = models.roles[CRITIC].module if CRITIC in models else Critic(policy)
        if critic is not None:
            models.roles[CRITIC] = role_of(CRITIC, critic)
            models.roles[CRITIC].optimizer = _optimizer(
                models.roles[CRITIC].parameters, plan.options.critic_optimizer
            )
    elif CRITIC in models:
        models.roles[CRITIC].optimizer = None
    if Need.REFERENCE in plan.method.needs:
        models.roles[REFERENCE] = frozen_role(REFERENCE, copy.deepcopy(policy))


def _curriculum(options: StageOptions, number: int, *, base: Path, code: LocalCode) -> tuple[Entry, Options]:
    """The entry of a stage's curriculum and its checked options."""
    entry = find("curricula", options.curriculum.name, base=base, code=code)
    own = {**entry.options, **options.curriculum.own}
    where = f"stage.{number}.curriculum"
    return entry, validate_entry("curriculum", own, config_class=entry.module.Config, path=where)


def _optimizer(parameters: Mapping[str, object], options: OptimizerOptions) -> RoleOptimizer:
    return RoleOptimizer(
        parameters,  # type: ignore[arg-type] - parameters of a role
        name=options.name,
        rate=LearningRate(peak=options.learning_rate, warmup=options.warmup_share, schedule=options.schedule),
        betas=options.betas,
        weight_decay=options.weight_decay,
        clip_norm=options.clip_norm if options.clip_norm > 0 else math.inf,
    )


def _count(visits: dict[str, int], prompt: Prompt) -> int:
    """How often this prompt came before in this stream, and count it."""
    key = f"{prompt.stream.value}:{PromptId(prompt.id)}"
    visits[key] = visits.get(key, 0) + 1
    return visits[key] - 1
