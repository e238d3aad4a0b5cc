"""What a run would do: batch arithmetic, memory and cost, before any weight moves."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import mean

from bimetal.config.schema import Recipe
from bimetal.config.toml import options_as_toml
from bimetal.core.budget import Currency, FlopModel
from bimetal.core.catalogue import LocalCode
from bimetal.core.types import JsonValue, Prompt, Stream
from bimetal.objectives.method import Need
from bimetal.trainer.accounting import flop_model
from bimetal.trainer.needs import state_of
from bimetal.trainer.policy import CHUNK_ELEMENTS
from bimetal.trainer.prepare import Parts, budget_of, load_parts
from bimetal.trainer.stages import Plan

SAMPLE = 64
"""Prompts whose lengths stand for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageForecast:
    """One stage: traces and tokens of a roll-out batch, what it costs, and how many fit the budget."""

    name: str
    method: str
    prompts: int
    rollouts: int
    demonstrations: int
    optimizer_steps_per_batch: int
    tokens_per_batch: int
    flops_per_batch: int
    batches: int | None

    def to_text(self) -> str:
        """For people."""
        count = "as many as its budget holds" if self.batches is None else f"about {self.batches:,}"
        return (
            f"stage {self.name} ({self.method}): roll-out batches of {self.prompts} prompts, {self.rollouts} "
            "rollouts, "
            f"{self.demonstrations} demonstrations; {self.optimizer_steps_per_batch} optimizer steps each; "
            f"{self.tokens_per_batch:,} response tokens and {self.flops_per_batch:.3g} FLOPs each; {count} "
            "of them"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """The whole run; rollouts are assumed as long as the mean demonstration, or as the limit without any."""

    recipe: str
    model: str
    parameters: int
    trained_parameters: int
    distinct_problems: dict[str, int]
    memory_bytes: int
    stages: tuple[StageForecast, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, JsonValue]:
        """For machines."""
        return asdict(self)

    def to_text(self) -> str:
        """For people: the resolved recipe, then what follows from it."""
        problems = ", ".join(f"{name} {n:,}" for name, n in self.distinct_problems.items())
        return "\n".join(
            [
                self.recipe.rstrip(),
                "",
                f"model {self.model}: {self.parameters:,} parameters, {self.trained_parameters:,} trained",
                f"distinct training problems: {problems}",
                *(s.to_text() for s in self.stages),
                f"memory: about {self.memory_bytes / 2**30:.2f} GiB for weights, gradients, optimizer and "
                "one micro-batch",
                *self.notes,
                "nothing was run",
            ]
        )


def forecast(recipe: Recipe, *, base: Path | None = None, code: LocalCode = LocalCode.REFUSED) -> Forecast:
    """Check everything a run checks, and say what it would do.

    Raises:
        ConfigError: The recipe cannot work.
        DataError: A row cannot be used.
    """
    parts = load_parts(recipe, base=Path.cwd() if base is None else base.resolve(), code=code)
    with closing(parts.pool):
        parameters = sum(p.numel() for p in parts.policy.parameters())
        trained = sum(p.numel() for p in parts.policy.parameters() if p.requires_grad)
        return Forecast(
            recipe=options_as_toml(recipe),
            model=parts.model.name,
            parameters=parameters,
            trained_parameters=trained,
            distinct_problems=dict(parts.work.distinct),
            memory_bytes=_memory(parts, parameters, trained),
            stages=tuple(_stage(parts, plan) for plan in parts.plans),
            notes=parts.work.notes,
        )


def _stage(parts: Parts, plan: Plan) -> StageForecast:
    options, flops = plan.options, flop_model(parts.policy)
    main = (p for p in parts.work.prompts.values() if p.stream is Stream.MAIN)
    drawn = ((p, plan.method.mix(state_of(parts.work, p, options.group_size))) for p in main)
    drafts = list(islice(((p, some) for p, some in drawn if some), SAMPLE))
    free = mean(sum(d.prefix_fraction < 1 for d in some) for _, some in drafts)
    shown = mean(sum(d.prefix_fraction == 1 for d in some) for _, some in drafts)
    prompt = round(mean(len(parts.rendering.prompt_ids(p.messages)) for p, _ in drafts))
    response = _response_length(parts, [p for p, _ in drafts])
    rollouts = round(options.prompts_per_batch * free)
    demonstrations = round(options.prompts_per_batch * shown) + options.demonstration_prompts
    updates, traces = options.updates_per_rollout * options.epochs, rollouts + demonstrations
    cost = rollouts * flops.generation(prompt, new_tokens=[response])
    cost += _update_cost(flops, plan, traces, prompt + response - 1, response, epochs=options.epochs)
    if updates > 1 and rollouts:
        cost += traces * flops.forward(prompt + response - 1, logits=response)
    budget = budget_of(parts.recipe)
    per_batch = {
        Currency.FLOPS: cost,
        Currency.GENERATED_TOKENS: rollouts * response,
        Currency.OPTIMIZER_STEPS: updates,
        Currency.TRAINED_TOKENS: traces * response * options.epochs,
    }.get(budget.currency)
    total = sum(s.share for s in parts.recipe.stage)
    return StageForecast(
        name=options.name,
        method=options.method.name,
        prompts=options.prompts_per_batch,
        rollouts=rollouts,
        demonstrations=demonstrations,
        optimizer_steps_per_batch=updates,
        tokens_per_batch=traces * response,
        flops_per_batch=cost,
        batches=round(budget.limit * options.share / total / per_batch) if per_batch else None,
    )


def _update_cost(
    flops: FlopModel, plan: Plan, traces: int, length: int, response: int, *, epochs: int
) -> int:
    cost = traces * flops.training(length, logits=response) * epochs
    if Need.REFERENCE in plan.method.needs:
        cost += traces * flops.forward(length, logits=response)
    if Need.CRITIC in plan.method.needs:
        cost += traces * (flops.training(length, logits=0) * epochs + flops.forward(length, logits=0))
    return cost


def _response_length(parts: Parts, prompts: Sequence[Prompt]) -> int:
    shown = [d for p in prompts for d in parts.work.library.of(p.id)[:1]]
    if not shown:
        return parts.recipe.trainer.max_response_tokens
    return round(mean(len(d.token_ids or parts.rendering.response_ids(d.text)) for d in shown))


def _memory(parts: Parts, parameters: int, trained: int) -> int:
    """Weights of every role, gradients, AdamW's moments, activations of a micro-batch, chunks of logits."""
    size = next(parts.policy.parameters()).element_size()
    copies = parameters
    if any(Need.REFERENCE in p.method.needs for p in parts.plans):
        copies += parameters
    moving = 3 * trained
    if any(Need.CRITIC in p.method.needs for p in parts.plans):
        copies, moving = copies + parameters, moving + 3 * trained
    config = parts.policy.base.config.get_text_config()
    tokens = min(parts.recipe.trainer.micro_batch_tokens, 2**20)
    inner = int(getattr(config, "intermediate_size", None) or 4 * int(config.hidden_size))
    per_token = int(config.num_hidden_layers) * (10 * int(config.hidden_size) + 3 * inner)
    vocabulary = int(parts.policy.output_layer.weight.shape[0])
    logits = 3 * min(CHUNK_ELEMENTS, tokens * vocabulary)
    return size * (copies + moving + tokens * per_token + logits)
