"""A run: everything that has state, and how it is reported, saved and restored."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import torch
from torch import Tensor

from bimetal.config.schema import Recipe
from bimetal.core.budget import Budget, Currency, FlopModel
from bimetal.core.errors import CheckpointError, TrainingError, boundary
from bimetal.core.metrics import Metrics
from bimetal.core.streams import Streams
from bimetal.core.types import Group, JsonValue
from bimetal.data.ledger import Ledger, write_ledger
from bimetal.rollout.backend import Backend
from bimetal.rollout.journal import Journal
from bimetal.rollout.pipeline import Pipeline
from bimetal.rollout.traces import TraceWriter
from bimetal.trainer.checkpoint import Checkpoints
from bimetal.trainer.parallel import Ranks
from bimetal.trainer.report import JsonLines, Line, Sink, finite
from bimetal.trainer.roles import Models
from bimetal.trainer.stages import Plan, Stage, assign_roles

IDLE_LIMIT = 10
"""Roll-out batches in a row that may teach nothing before the run stops."""

log = logging.getLogger(__name__)

Evaluate = Callable[[int], Metrics]
"""Optimizer steps taken -> metrics of the held-out problems."""


@dataclass(slots=True)
class Position:
    """Where a run is: optimizer steps taken, roll-out batches made, the stage, and the last checkpoint."""

    step: int = 0
    batch: int = 0
    stage: int = 0
    saved_at: int = 0
    saved_batch: int = 0
    older_batch: int = 0
    evaluated_at: int = -1
    batch_began_at: int = 0
    idle: int = 0
    lines: int = 0


@dataclass(slots=True, kw_only=True)
class Run:
    """See the module; ``start_stage``, ``evaluate_policy`` and ``save_policy`` are handed in."""

    recipe: Recipe
    folder: Path
    models: Models
    plans: Sequence[Plan]
    stage: Stage
    start_stage: Callable[[Plan], Stage]
    backend: Backend
    pipeline: Pipeline
    journal: Journal
    budget: Budget
    flops: FlopModel
    streams: Streams
    checkpoints: Checkpoints
    lines: JsonLines
    traces: TraceWriter
    evaluate_policy: Evaluate
    save_policy: Callable[[Path], None]
    sinks: Sequence[Sink] = ()
    ranks: Ranks = field(default_factory=Ranks)
    ledger: Ledger = field(default_factory=Ledger)
    visits: dict[str, int] = field(default_factory=dict)
    position: Position = field(default_factory=Position)
    times: dict[str, float] = field(default_factory=dict)
    clock: float = field(default_factory=perf_counter)

    def begin_stage(self, number: int) -> None:
        """Turn to a stage: fresh optimizers and curricula, the weights as they are."""
        self.position.stage = number
        self.stage = self.start_stage(self.plans[number])
        assign_roles(self.models, self.plans[number])
        self.budget.begin_stage(number)
        self.note(f"stage {self.stage.name} begins at step {self.position.step}")
        if self.budget.is_stage_spent:
            self.note(
                f"stage {self.stage.name} is left out: the stages before it have spent its share of the "
                "budget; raise budget.amount, or make their roll-out batches smaller"
            )

    def end_stage(self) -> None:
        """Write the model as the stage leaves it, where the recipe asks for it."""
        if self.recipe.trainer.save_stage_models:
            self.save_policy(self.folder / "stages" / self.stage.name)

    def is_due(self, every: int | str) -> bool:
        """Whether something with this cadence in steps is due at the step that comes next."""
        return isinstance(every, int) and self.position.step % every == 0

    def report(self, metrics: Metrics) -> None:
        """Write one step's line: metrics, budget, alarms."""
        now = perf_counter()
        self.budget.spend({Currency.WALL_SECONDS: now - self.clock})
        self.clock = now
        found = finite(metrics.to_json())
        for name, message in self.stage.alarms.check(found).items():
            found[f"alarm/{name}"] = 1.0
            self.note(f"alarm {name} at step {self.position.step}: {message}")
        spent = {c: self.budget.spent(c) for c in Currency}
        found |= {f"budget/{c.value}": float(n) for c, n in spent.items() if c.is_counted}
        found |= {
            "budget/progress": self.budget.progress,
            "budget/stage_progress": self.budget.stage_progress,
        }
        found |= {f"curriculum/{n}": float(v) for n, v in self.stage.main.metrics().items()}
        times = {f"time/{n}_seconds": s for n, s in self.times.items()}
        times |= {f"budget/{c.value}": float(n) for c, n in spent.items() if not c.is_counted}
        self.times = {}
        self._emit(found, times)
        for controller in self.stage.controllers.values():
            controller.observe({n: v for n, v in found.items() if v is not None})

    def evaluate(self) -> None:
        """Measure the held-out problems once at this step, and report."""
        if self.position.evaluated_at == self.position.step:
            return
        start = perf_counter()
        found = finite(self.evaluate_policy(self.position.step).to_json())
        self.position.evaluated_at = self.position.step
        for name, message in self.stage.alarms.check(found).items():
            found[f"alarm/{name}"] = 1.0
            self.note(f"alarm {name} at step {self.position.step}: {message}")
        if found:
            self._emit(found, {"time/evaluation_seconds": perf_counter() - start})
        # Evaluation is not part of what the run costs.
        self.clock = perf_counter()

    def finish_batch(self, groups: Sequence[Group]) -> None:
        """Learn from a roll-out batch that was trained on; evaluate and save where due.

        Raises:
            TrainingError: Many batches in a row held nothing to learn from.
        """
        step, trainer = self.position.step, self.recipe.trainer
        self.stage.main.observe([g for g in groups if g.prompt.stream.value == "main"])
        self.ledger.observe(groups)
        self.position.idle = 0 if step > self.position.batch_began_at else self.position.idle + 1
        self.position.batch_began_at = step
        if self.position.idle >= IDLE_LIMIT:
            raise TrainingError(
                f"{IDLE_LIMIT} roll-out batches in a row held no trace to learn from; look at the traces: "
                "every verdict may be unknown, or no prompt may have a demonstration"
            )
        self.position.batch += 1
        every = self.recipe.evaluation.every_steps
        if isinstance(every, int) and step // every > max(self.position.evaluated_at, 0) // every:
            self.evaluate()
        if step - self.position.saved_at >= trainer.checkpoint_every_steps:
            self.save()

    def finish(self) -> None:
        """Evaluate, save, and write the model in Hugging Face format."""
        self.evaluate()
        self.save()
        self.save_policy(self.folder / "model")
        self.note(f"finished at step {self.position.step}; the model is in {self.folder / 'model'}")
        for sink in self.sinks:
            sink.close()

    def save(self) -> None:
        """Write a checkpoint of everything."""
        position = self.position
        if position.step != position.saved_at:
            # At the same step the checkpoint replaces its predecessor; the one before stays the older one.
            position.older_batch = position.saved_batch
        position.saved_at, position.saved_batch = position.step, position.batch
        tensors: dict[str, dict[str, Tensor]] = {}
        for name, role in self.models.items():
            owned = role.module.named_parameters() if role.module is not None and not role.parameters else ()
            tensors[name] = {n: p.detach() for n, p in (role.parameters or dict(owned)).items()}
            if role.optimizer is not None and (state := role.optimizer.tensors()):
                tensors[f"{name}.optimizer"] = state
        self.traces.flush(self.position.batch)
        self.checkpoints.save(self.position.step, tensors, self._state())
        write_ledger(self.ledger, self.folder / "ledger.parquet")
        # A damaged newest checkpoint falls back by one, so the journal keeps what came after the one before.
        self.journal.forget_before(position.older_batch)

    def restore(self) -> bool:
        """Go to the newest intact checkpoint; whether there was one.

        Raises:
            CheckpointError: None is intact, or it belongs to another recipe.
        """
        found = self.checkpoints.load_newest()
        if found is None:
            self.lines.cut_to(0)
            self.traces.cut_after(-1)
            return False
        step, tensors, state = found
        with boundary(CheckpointError, f"checkpoint of step {step} does not fit this recipe"):
            self._load(tensors, state)
        self.lines.cut_to(self.position.lines)
        self.traces.cut_after(self.position.batch)
        return True

    def note(self, text: str) -> None:
        """Tell people."""
        log.info(text)
        for sink in self.sinks:
            sink.note(text)

    def _emit(self, metrics: Mapping[str, float | None], times: Mapping[str, float]) -> None:
        line = Line(
            step=self.position.step,
            stage=self.stage.name,
            batch=self.position.batch,
            metrics=metrics,
            times=times,
        )
        self.lines.line(line)
        self.position.lines += 1
        for sink in self.sinks:
            sink.line(line)

    def _state(self) -> dict[str, JsonValue]:
        position = self.position
        return {
            "position": {name: getattr(position, name) for name in Position.__slots__},
            "budget": self.budget.state_dict(),
            "ledger": self.ledger.state_dict(),
            "visits": dict(self.visits),
            "stage": self.stage.state_dict(),
        }

    def _load(self, tensors: Mapping[str, Mapping[str, Tensor]], state: Mapping[str, Any]) -> None:
        self.position = Position(**{name: int(state["position"][name]) for name in Position.__slots__})
        if not 0 <= self.position.stage < len(self.plans):
            raise CheckpointError(
                f"it was saved in stage {self.position.stage}; the recipe has {len(self.plans)}"
            )
        self.stage = self.start_stage(self.plans[self.position.stage])
        for plan in self.plans[: self.position.stage + 1]:
            assign_roles(self.models, plan)
        with torch.no_grad():
            for name, role in self.models.items():
                owned = role.parameters or dict(
                    role.module.named_parameters() if role.module is not None else ()
                )
                saved = tensors[name]
                if {key: t.shape for key, t in saved.items()} != {key: p.shape for key, p in owned.items()}:
                    raise CheckpointError(f"role {name!r}: the checkpoint's parameters are not the model's")
                for key, parameter in owned.items():
                    parameter.copy_(saved[key])
                if role.optimizer is not None:
                    role.optimizer.load_tensors(tensors.get(f"{name}.optimizer", {}))
        self.budget.load_state_dict(state["budget"])
        self.ledger.load_state_dict(state["ledger"])
        self.visits = {str(k): int(v) for k, v in state["visits"].items()}
        self.stage.load_state_dict(cast("Mapping[str, JsonValue]", state["stage"]))
        self.backend.load_weights(None, self.position.step)
