"""A run, as frozen models with documented fields: what a recipe file may say.

Names a file may leave out (`output`, a stage's or domain's `name`) are filled in by ``config.load``.
The tables of catalogue entries (domain, backend, method, curriculum) are kept as written: their own
options live in the entry's file, and ``config.load.validate_entry`` checks them against its ``Config``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal, cast

from pydantic import ConfigDict, Field, JsonValue, model_validator

from bimetal.config.data import DataOptions
from bimetal.config.model import ModelOptions
from bimetal.config.options import Options
from bimetal.core.types import JsonValue as Json

SHARE_TOLERANCE = 1e-6
"""How far the shares of all stages may be from 1, so that three thirds can be written in decimals."""


def _left_out_in_files(*names: str) -> Callable[[dict[str, Any]], None]:
    """Drop fields that ``config.load`` derives from the list of keys a file must have."""

    def drop(schema: dict[str, Any]) -> None:
        schema["required"] = [name for name in schema.get("required", []) if name not in names]

    return drop


class EntryOptions(Options):
    """A catalogue entry by name; further keys are the entry's own options."""

    model_config = ConfigDict(extra="allow")

    # The documented way to type the extra keys; pydantic declares the attribute as optional.
    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    name: str = Field(min_length=1)
    """The catalogue entry, or a local file as "./my_file.py:function"."""

    @property
    def own(self) -> dict[str, Json]:
        """The entry's own options, as written."""
        return cast("dict[str, Json]", dict(self.__pydantic_extra__))


class BackendOptions(EntryOptions):
    """The engine that writes the rollouts; further keys are the backend's own options."""

    name: str = Field(default="local", min_length=1)
    """The backend; see `bimetal new backend` for the shape of your own."""


class MethodOptions(EntryOptions):
    """What is done with the traces; further keys are its own options (`bimetal methods NAME`)."""


class CurriculumOptions(EntryOptions):
    """Which prompts come next; further keys are the curriculum's own options."""

    name: str = Field(default="uniform", min_length=1)
    """The curriculum."""


class DomainOptions(EntryOptions):
    """Where prompts and verdicts come from; further keys are its own options (`bimetal domains NAME`)."""

    model_config = ConfigDict(json_schema_extra=_left_out_in_files("name"))

    name: str = Field(min_length=1)
    """The catalogue entry; the table's key unless given."""

    weight: float = Field(default=1.0, gt=0)
    """How often its prompts are drawn, relative to the other domains' weights."""


class BudgetOptions(Options):
    """How much a run may spend; schedules follow the share of it that is spent."""

    currency: Literal[
        "flops", "generated_tokens", "trained_tokens", "forward_tokens", "verdicts", "optimizer_steps"
    ] = "flops"
    """What is counted against the amount; FLOPs are computed from token counts."""

    amount: float = Field(ge=1)
    """How much of the currency the whole run may spend, all stages together; may be written as 3e13."""

    wall_seconds: Annotated[float, Field(gt=0)] | Literal["unlimited"] = "unlimited"
    """Seconds after which the run stops, to be resumed, whatever is left of the budget; a resumed run gets as
    many again. No schedule depends on it."""


class TrainerOptions(Options):
    """How the optimizer steps are carried out."""

    micro_batch_tokens: int = Field(default=8192, ge=1)
    """Tokens, padding included, that go through the model at once; it sets memory, not results."""

    threads: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    """Processor threads of the numerical libraries; auto takes one per core and records the number."""

    checkpoint_every_steps: int = Field(default=50, ge=1)
    """Optimizer steps between two checkpoints."""

    keep_checkpoints: int = Field(default=2, ge=1)
    """How many checkpoints stay on disk, the newest first; with at least 2 a damaged one can be survived."""

    source_gradient_every: Annotated[int, Field(ge=1)] | Literal["never"] = "never"
    """Steps between two measurements of the gradient by source; each costs extra backward passes."""

    save_stage_models: bool = False
    """Whether the model is also written at each stage's end, in Hugging Face format, in `stages/NAME`."""

    unknown_share_limit: float = Field(default=0.2, ge=0, le=1)
    """Share of verdicts in a roll-out batch that may be unknown before the run stops."""

    max_prompt_tokens: int = Field(default=384, ge=1)
    """Tokens a rendered prompt may have; a longer one is a bad row."""

    max_response_tokens: int = Field(default=128, ge=1)
    """Tokens a response may have; a rollout is cut there, a longer demonstration is a bad row."""


class VerifierOptions(Options):
    """How responses are judged."""

    workers: int = Field(default=1, ge=1)
    """Processes that judge at the same time; each can be killed."""

    time_limit_seconds: float = Field(default=5.0, gt=0)
    """Seconds one check may take; an answer that exceeds them twice is judged unparseable, reason timeout."""


class EvaluationOptions(Options):
    """How progress is measured while training runs."""

    every_steps: Annotated[int, Field(ge=1)] | Literal["never"] = "never"
    """Optimizer steps between two evaluations; the run always evaluates at its start and its end."""

    problems_per_domain: int = Field(default=64, ge=1)
    """Held-out problems per domain."""

    samples: int = Field(default=1, ge=1)
    """Answers per problem; pass@k is reported for k up to this number."""

    temperature: float = Field(default=0.0, ge=0)
    """Sampling temperature; 0 is greedy."""

    split: Literal["selection", "test"] = "selection"
    """Which held-out problems are used; choose models on selection and keep test for the final numbers."""

    @model_validator(mode="after")
    def _answers_can_differ(self) -> EvaluationOptions:
        if self.samples > 1 and self.temperature == 0:
            raise ValueError(
                f"samples: {self.samples} greedy answers to one problem are all the same; set a temperature "
                "above 0, or samples to 1"
            )
        return self


class OptimizerOptions(Options):
    """How gradients become weight changes."""

    name: Literal["adamw", "sgd"] = "adamw"
    """The update rule."""

    learning_rate: float = Field(default=1e-5, gt=0)
    """Step size at its highest point."""

    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    """Decay of the running means of the gradient and of its square, each in [0, 1); for adamw."""

    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled decay of the weights per step, times the learning rate."""

    warmup_share: float = Field(default=0.0, ge=0, lt=1)
    """Share of the stage's budget over which the learning rate rises linearly, from a tenth of its peak."""

    schedule: Literal["constant", "cosine", "linear"] = "constant"
    """The learning rate after the warm-up, over the stage's progress; cosine and linear end at 0."""

    clip_norm: float = Field(default=1.0, gt=0)
    """Gradient norm above which the gradient is scaled down to it."""


class StageOptions(Options):
    """A stretch of the run with one method and its part of the budget."""

    model_config = ConfigDict(json_schema_extra=_left_out_in_files("name"))

    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9_-]+$")
    """Name in metrics and reports; the method's name unless given, unique in the run."""

    method: MethodOptions
    """What is done with the traces."""

    curriculum: CurriculumOptions = CurriculumOptions()
    """Which prompts come next."""

    optimizer: OptimizerOptions = OptimizerOptions()
    """How gradients become weight changes."""

    critic_optimizer: OptimizerOptions = OptimizerOptions(learning_rate=1e-4)
    """As `optimizer`, for the critic of a method that trains one."""

    share: float = Field(default=1.0, gt=0, le=1)
    """Share of the run's budget; the shares of all stages add up to 1."""

    prompts_per_batch: int = Field(default=16, ge=1)
    """Prompts of one roll-out batch."""

    group_size: int = Field(default=8, ge=1)
    """Traces per prompt, demonstrations among them included."""

    demonstration_prompts: int = Field(default=0, ge=0)
    """Prompts of the second stream added to each roll-out batch, each with its demonstration only."""

    updates_per_rollout: int = Field(default=1, ge=1)
    """Optimizer batches a roll-out batch is cut into."""

    epochs: int = Field(default=1, ge=1)
    """Times each roll-out batch is gone through."""

    temperature: float = Field(default=1.0, gt=0)
    """Sampling temperature of the rollouts, which is also that of the trained distribution."""


class Recipe(Options):
    """One run."""

    model_config = ConfigDict(json_schema_extra=_left_out_in_files("output"))

    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Name of the run: letters, digits, dot, dash, underscore."""

    seed: int = Field(default=0, ge=0, lt=2**63)
    """Root of every random draw; two methods with one seed see the same prompts and the same noise."""

    output: str = Field(min_length=1)
    """Run folder; runs/NAME unless given."""

    model: ModelOptions
    """What is trained."""

    data: DataOptions = DataOptions()
    """Rows from files: prompts, references, demonstrations."""

    domain: dict[str, DomainOptions] = Field(default_factory=dict)
    """Where prompts and verdicts come from, one table each; its key is the entry unless `name` is given."""

    backend: BackendOptions = BackendOptions()
    """The engine that writes the rollouts."""

    budget: BudgetOptions
    """How much the run may spend."""

    trainer: TrainerOptions = TrainerOptions()
    """How the optimizer steps are carried out."""

    verifier: VerifierOptions = VerifierOptions()
    """How responses are judged."""

    evaluation: EvaluationOptions = EvaluationOptions()
    """How progress is measured while training runs."""

    stage: tuple[StageOptions, ...] = Field(min_length=1)
    """The stages, in order."""

    @model_validator(mode="after")
    def _has_prompts(self) -> Recipe:
        if not self.domain and not self.data.sources:
            raise ValueError(
                "domain: a recipe needs prompts; add a [domain.NAME] table or a [[data.sources]]."
            )
        return self

    @model_validator(mode="after")
    def _stages_fit_together(self) -> Recipe:
        names = [stage.name for stage in self.stage]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"stage: names must be unique; got {twice[0]!r} twice. Give each stage a name.")
        total = sum(stage.share for stage in self.stage)
        if abs(total - 1) > SHARE_TOLERANCE:
            raise ValueError(
                f"stage: the shares of all stages must add up to 1; got {total:g}. Set stage.N.share."
            )
        return self
