"""From a recipe to a run: everything is checked before a weight moves."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bimetal.config.load import validate_entry
from bimetal.config.schema import Recipe
from bimetal.core.budget import Budget, Currency
from bimetal.core.catalogue import LocalCode, find
from bimetal.core.errors import ConfigError
from bimetal.core.metrics import Metrics
from bimetal.core.streams import Streams
from bimetal.core.types import Item, Verdict
from bimetal.data.chat import Renderer
from bimetal.objectives.method import Need
from bimetal.rewards.verifier import VerifierPool, VerifyTask
from bimetal.rollout.backend import Backend
from bimetal.rollout.group import GroupMaker, Judge, Rendering
from bimetal.rollout.journal import Journal
from bimetal.rollout.pipeline import Pipeline
from bimetal.rollout.traces import TraceWriter
from bimetal.trainer.accounting import flop_model
from bimetal.trainer.checkpoint import Checkpoints
from bimetal.trainer.devices import autocast_dtype, resolve_device
from bimetal.trainer.models import LoadedModel, load_causal_lm, save_model
from bimetal.trainer.policy import CausalPolicy
from bimetal.trainer.report import JsonLines, Sink
from bimetal.trainer.roles import POLICY, Models, role_of
from bimetal.trainer.run import Run
from bimetal.trainer.stages import Plan, Stage, assign_roles, begin, plan_stages
from bimetal.trainer.workset import Referee, Workset, keep_fitting, load_workset


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a run is made of before it is assembled; also what an evaluation needs."""

    recipe: Recipe
    base: Path
    code: LocalCode
    model: LoadedModel
    policy: CausalPolicy
    renderer: Renderer
    rendering: Rendering
    backend: Backend
    pool: VerifierPool
    work: Workset
    plans: tuple[Plan, ...]

    @property
    def judge(self) -> Judge:
        """Items by group -> verdicts by group, from killable processes."""
        return judge_with(self.pool, self.work.referees)


EvaluateParts = Callable[[Parts, int], Metrics]
"""(parts, optimizer steps taken) -> metrics of the held-out problems."""


def load_parts(recipe: Recipe, *, base: Path, code: LocalCode) -> Parts:
    """Load data and model, connect backend and verifiers, and check that they fit each other; write nothing.

    Raises:
        ConfigError: Something in the recipe cannot work.
        DataError: A row cannot be used.
    """
    use_threads(recipe)
    work = load_workset(recipe, base=base, code=code)
    plan_stages(recipe, work, base=base, code=code)
    device = resolve_device(recipe.model.device)
    model = load_causal_lm(recipe.model, device=device, base=base, seed=recipe.seed)
    renderer = Renderer(model.tokenizer, stop_token_ids=model.stop_token_ids)
    prompts = (*work.prompts.values(), *(p for rows in work.held_back.values() for p in rows))
    roles = {m.role for p in prompts for m in p.messages}
    renderer.check(roles=sorted(roles))
    rendering = Rendering(
        prompt_ids=renderer.prompt_ids, response_ids=renderer.response_ids, text_of=renderer.text_of
    )
    check_context(recipe, model)
    work = keep_fitting(
        work,
        rendering,
        prompt_limit=recipe.trainer.max_prompt_tokens,
        response_limit=recipe.trainer.max_response_tokens,
        on_bad_rows=recipe.data.on_bad_rows,
    )
    # Again, now that rows may have been set aside: a stage must still have what it needs.
    plans = plan_stages(recipe, work, base=base, code=code)
    autocast = autocast_dtype(recipe.model.autocast, device)
    policy = CausalPolicy(model.module, autocast=autocast)
    policy.check_head()
    pool = VerifierPool(recipe.verifier.workers, recipe.verifier.time_limit_seconds, base=base, code=code)
    if work.held_back or any(Need.REWARD in plan.method.needs for plan in plans):
        for referee in work.referees.values():
            pool.prepare(referee.entry, referee.options)
    offer = {
        "module": model.module,
        "pad_token_id": model.tokenizer.pad_token_id or 0,
        "encode": renderer.response_ids,
        "decode": renderer.text_of,
        "device": device,
        "autocast": autocast,
    }
    return Parts(
        recipe=recipe,
        base=base,
        code=code,
        model=model,
        policy=policy,
        renderer=renderer,
        rendering=rendering,
        backend=connect(recipe, offer, base=base, code=code),
        pool=pool,
        work=work,
        plans=plans,
    )


def connect(recipe: Recipe, offer: Mapping[str, object], *, base: Path, code: LocalCode) -> Backend:
    """The recipe's backend; its ``connect(options, *, ...)`` gets those of the offered things that it names.

    Raises:
        ConfigError: The backend is unknown, refuses its options, or asks for something the trainer has not.
    """
    entry = find("backends", recipe.backend.name, base=base, code=code)
    options = validate_entry("backend", recipe.backend.own, config_class=entry.module.Config, path="backend")
    named = list(inspect.signature(entry.module.connect).parameters.values())[1:]
    missing = [p.name for p in named if p.name not in offer and p.default is inspect.Parameter.empty]
    if missing:
        raise ConfigError(
            f"backend {entry.name!r}: its connect asks for {', '.join(missing)}; the trainer offers "
            f"{', '.join(offer)}"
        )
    return entry.module.connect(options, **{p.name: offer[p.name] for p in named if p.name in offer})


def assemble(
    parts: Parts,
    *,
    folder: Path,
    evaluate: EvaluateParts,
    sinks: Sequence[Sink] = (),
) -> Run:
    """The run at its start, in its first stage."""
    recipe, streams = parts.recipe, Streams(parts.recipe.seed)
    models = Models({POLICY: role_of(POLICY, parts.policy)})
    journal = Journal(folder / "journal")
    maker = GroupMaker(
        backend=parts.backend,
        rendering=parts.rendering,
        demonstrations=parts.work.library.of,
        journal=journal,
        streams=streams,
        rendered={},
        prompt_limit=recipe.trainer.max_prompt_tokens,
    )

    def start_stage(plan: Plan) -> Stage:
        return begin(
            plan,
            recipe,
            parts.work,
            judge=parts.judge,
            stop_token_ids=parts.renderer.stop_token_ids,
            base=parts.base,
            code=parts.code,
        )

    run = Run(
        recipe=recipe,
        folder=folder,
        models=models,
        plans=parts.plans,
        stage=start_stage(parts.plans[0]),
        start_stage=start_stage,
        backend=parts.backend,
        pipeline=Pipeline(maker),
        journal=journal,
        budget=budget_of(recipe),
        flops=flop_model(parts.policy),
        streams=streams,
        checkpoints=Checkpoints(folder / "checkpoints", keep=recipe.trainer.keep_checkpoints),
        lines=JsonLines(folder / "metrics.jsonl"),
        traces=TraceWriter(folder / "traces"),
        evaluate_policy=lambda step: evaluate(parts, step),
        save_policy=lambda path: save_model(parts.policy.model, parts.model.tokenizer, path),
        sinks=sinks,
    )
    assign_roles(models, parts.plans[0])
    parts.backend.load_weights(None, 0)
    return run


def judge_with(pool: VerifierPool, referees: Mapping[str, Referee]) -> Judge:
    """Groups of items to verdicts through the pool; each prompt's domain names its referee."""

    def judge(groups: Sequence[Sequence[Item]]) -> list[list[Verdict]]:
        tasks = []
        for items in groups:
            referee = referees[items[0].prompt.domain]
            tasks.append(
                VerifyTask(
                    domain=referee.entry,
                    prompt=items[0].prompt,
                    responses=tuple(i.response for i in items),
                    finishes=tuple(i.finish for i in items),
                    options=referee.options,
                )
            )
        verdicts = iter(pool.verify(tasks))
        return [[next(verdicts) for _ in items] for items in groups]

    return judge


def budget_of(recipe: Recipe) -> Budget:
    """The recipe's budget, unspent."""
    wall = recipe.budget.wall_seconds
    return Budget(
        int(recipe.budget.amount),
        currency=Currency(recipe.budget.currency),
        shares=[s.share for s in recipe.stage],
        wall_limit_seconds=float("inf") if wall == "unlimited" else float(wall),
    )


def check_context(recipe: Recipe, model: LoadedModel) -> None:
    """Refuse token limits beyond the model's context.

    Raises:
        ConfigError: Prompt and response limits together exceed it.
    """
    config: Any = model.module.config
    limit = getattr(config.get_text_config(), "max_position_embeddings", None)
    asked = recipe.trainer.max_prompt_tokens + recipe.trainer.max_response_tokens
    if limit is not None and asked > int(limit):
        raise ConfigError(
            f"trainer.max_prompt_tokens + trainer.max_response_tokens is {asked}, above the {limit} "
            f"positions of {model.name}; lower one of them"
        )


def use_threads(recipe: Recipe) -> int:
    """Set the threads of the numerical libraries; the number is recorded and required again on resume."""
    wanted = recipe.trainer.threads
    # Not every system says which processors a process may use.
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = allowed if wanted == "auto" else int(wanted)
    torch.set_num_threads(count)
    torch.use_deterministic_algorithms(mode=True)
    return count
