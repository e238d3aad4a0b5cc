"""One optimizer step: shares, forward, backward, check, update.

The step answers an update rule's questions (``objectives.update.Ask``): for gradients by term, batch
and role. Every answer is a sum over micro-batches and ranks of terms that already hold their share of
the whole step, so no cut of the batch changes it (design contract C1).
"""

# long: one object answers every question of an update rule
from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from bimetal.core.batch import ORIGIN_CODES, Batch, PolicyOutput
from bimetal.core.errors import NonFiniteError
from bimetal.core.metrics import Metrics, merge
from bimetal.core.types import JsonValue, Origin
from bimetal.data.microbatch import Piece, cut
from bimetal.objectives.compose import Shares, Term, evaluate, shares
from bimetal.objectives.controller import value_of
from bimetal.objectives.logprobs import Statistic
from bimetal.objectives.method import Method, Need
from bimetal.objectives.update import Change, Gradients
from bimetal.trainer.arithmetic import EXACT, Arithmetic
from bimetal.trainer.parallel import Ranks, is_sharded
from bimetal.trainer.policy import ENTROPY, CausalPolicy, Other
from bimetal.trainer.roles import CRITIC, POLICY, Models, Role

STEP = "step"
SOURCES = (Origin.DEMONSTRATION, Origin.POLICY)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """How a step is cut and watched: padded tokens per micro-batch, and whether to compare sources.

    ``old_is_policy`` says that this is the only update of its roll-out batch, so that the old policy is the
    policy and its log-probabilities need no pass of their own.
    """

    micro_batch_tokens: int
    compare_sources: bool = False
    number: int = 0
    old_is_policy: bool = True
    arithmetic: Arithmetic = EXACT


@dataclass(frozen=True, slots=True)
class Work:
    """One named batch: its rows, their shares in the whole step, and the pieces of it that this rank runs."""

    batch: Batch
    shares: Shares
    pieces: Sequence[Piece]


@dataclass(slots=True)
class StepAsk:
    """Answers an update rule; see ``objectives.update.Ask``."""

    models: Models
    method: Method
    work: Mapping[str, Work]
    coefficients: Mapping[str, float]
    ranks: Ranks
    shape: StepShape
    watched: Metrics = field(default_factory=Metrics)
    seen: set[str] = field(default_factory=set)

    def roles(self) -> tuple[str, ...]:
        """The trained roles that some term reads."""
        read = {term.role for term in self.method.terms}
        return tuple(name for name in self.models.trained if name in read)

    def gradients(
        self,
        *,
        terms: Collection[str] | None = None,
        batch: str = STEP,
        role: str = POLICY,
        through: str | None = None,
        origin: Origin | None = None,
    ) -> Gradients:
        """The gradient of these terms on this batch with respect to one role's parameters."""
        owner, runner = self.models[role], self.models[through or role]
        chosen = tuple(
            t for t in self.method.terms if (t.name in terms if terms is not None else t.role == role)
        )
        work = self.work[batch]
        parts = work.shares if origin is None else _only_origin(work, origin)
        for parameter in owner.parameters.values():
            parameter.grad = None
        # A rule may ask for a term more than once, alone and among others; its loss is reported once.
        reported = batch == STEP and origin is None
        watch = {t.name for t in chosen} - self.seen if reported else set[str]()
        self.seen |= watch
        broken: list[str] = []
        for piece in self.shape.arithmetic.pieces(work.pieces):
            broken += self._backward(
                chosen, work, parts, piece=piece, runner=runner, owner=owner, watch=watch
            )
        found = Gradients({name: _taken(p) for name, p in owner.parameters.items()})
        if runner.module is None or not is_sharded(runner.module):
            self.ranks.sum_in_place(list(found.parts.values()))
        self._refuse_non_finite(broken, found, role)
        return found

    def _backward(  # noqa: PLR0913 - one piece, and the step it is a part of
        self,
        terms: Sequence[Term],
        work: Work,
        parts: Shares,
        *,
        piece: Piece,
        runner: Role,
        owner: Role,
        watch: Collection[str],
    ) -> list[str]:
        """Add one piece's gradient; returns descriptions of what is not finite."""
        device = self.models.device
        rows = work.batch.rows(piece.rows).to(device)
        width = rows.input_ids.shape[1]
        index = torch.tensor(piece.rows)
        live = 1.0 if piece.live else 0.0
        local = {t.name: (parts[t.name][index][:, :width] * live).to(device) for t in terms}
        local = self.shape.arithmetic.piece_shares(terms, rows, local, sum(p.live for p in work.pieces))
        if runner.module is None:
            raise ValueError(
                f"role {runner.name!r} has no module of its own; ask `through` a role that has one"
            )
        output = run(runner, rows, self.method.statistics, self.models)
        if rows.old_logprobs is None and self.shape.old_is_policy:
            rows = rows.with_fields(old_logprobs=output.logprobs.detach())
        loss, pieces = evaluate(terms, rows, output, step_shares=local, coefficients=self.coefficients)
        if piece.live and watch:
            _watch(self.watched, [t for t in terms if t.name in watch], rows, output=output, parts=pieces)
        if is_sharded(runner.module):
            loss.backward()
        else:
            torch.autograd.backward(loss, inputs=list(owner.parameters.values()))
        return [
            f"term {name!r} in traces {', '.join(rows.trace_ids)}"
            for name, value in pieces.items()
            if not bool(torch.isfinite(value.detach()))
        ]

    def _refuse_non_finite(self, broken: Sequence[str], found: Gradients, role: str) -> None:
        bad = [name for name, g in found.parts.items() if not bool(torch.isfinite(g).all())]
        if not self.ranks.any(flag=bool(broken or bad)):
            return
        where = (
            "; ".join(broken) or f"gradient of {role} parameters {', '.join(bad[:3]) or '(on another rank)'}"
        )
        raise NonFiniteError(
            f"step {self.shape.number}: not finite: {where}. The optimizer has not moved. "
            "Lower the learning rate or look at these traces (a method that reads a number which no pass "
            "computed for them shows like this, too); the last checkpoint is intact"
        )


def _watch(
    found: Metrics, terms: Sequence[Term], rows: Batch, *, output: PolicyOutput, parts: Mapping[str, Tensor]
) -> None:
    """Add one micro-batch's losses and whatever the terms' losses watch."""
    with torch.no_grad():
        for term in terms:
            members = rows.members[term.name]
            count = int(members.sum())
            found.total(f"term/{term.name}/loss", float(parts[term.name]))
            found.total(f"term/{term.name}/tokens", count)
            for name, values in term.loss.watch(rows, output, members).items():
                found.mean(name, float(values[members].double().sum()), count=count)
                if name == "ratio/mean" and count:
                    found.largest("ratio/max", float(values[members].max()))
        written = rows.mask & (rows.origin == ORIGIN_CODES[Origin.POLICY])
        count = int(written.sum())
        if output.values is not None or not count:
            return
        found.mean("policy/entropy", float(output.statistics[ENTROPY][written].double().sum()), count=count)
        if rows.old_logprobs is not None:
            old = rows.old_logprobs[written].double()
            moved = output.logprobs[written].double() - old
            found.mean("policy/divergence_from_old", float((torch.expm1(-moved) + moved).sum()), count=count)
            if rows.sampler_logprobs is not None:
                apart = (old - rows.sampler_logprobs[written].double()).abs()
                found.mean("policy/sampler_mismatch", float(apart.sum()), count=count)


def run(role: Role, rows: Batch, statistics: Mapping[str, Statistic], models: Models) -> PolicyOutput:
    """One forward pass of a role, with the hidden states of every role a statistic compares with.

    Raises:
        ValueError: The role is only parameters.
    """
    if role.module is None:
        raise ValueError(f"role {role.name!r} has no module")
    others: dict[str, Other] = {}
    for name in sorted({s.other for s in statistics.values() if s.other is not None}):
        module = models[name].module
        if isinstance(module, CausalPolicy):
            with torch.no_grad():
                others[name] = Other(module.hidden(rows), module.head)
    return role.module(rows, statistics if role.name != CRITIC else {}, others)


def take_step(
    models: Models,
    method: Method,
    batches: Mapping[str, Batch],
    *,
    progress: float,
    shape: StepShape,
    ranks: Ranks | None = None,
) -> Metrics:
    """Move every trained role once; ``batches["step"]`` is the optimizer step's batch.

    Raises:
        NonFiniteError: A loss or gradient is not finite; no parameter has moved.
    """
    ranks = ranks or Ranks()
    coefficients = {term.name: value_of(term.coefficient, progress) for term in method.terms}
    ask = StepAsk(
        models,
        method,
        {name: _work(method, batch, shape, ranks) for name, batch in batches.items()},
        coefficients,
        ranks,
        shape,
    )
    gradients = method.update.gradients(ask)
    metrics = merge(
        Metrics.from_state(cast("Mapping[str, JsonValue]", state))
        for state in ranks.gather(ask.watched.to_state())
    )
    if shape.compare_sources:
        compare_sources(ask, batches[STEP], metrics)
    norms = {name: gradient.norm() for name, gradient in gradients.items()}
    _refuse_non_finite_rule(norms, shape)
    for name, gradient in gradients.items():
        _apply(models[name], method, gradient, norm=norms[name], progress=progress, metrics=metrics)
    for name, value in coefficients.items():
        metrics.mean(f"controller/{name}", value)
    return metrics


def passes_of(models: Models, method: Method, batch: Batch, shape: StepShape) -> dict[str, int]:
    """Forward-and-backward passes over each trace, by role, that ``take_step`` makes with a plain update."""
    read = {term.role for term in method.terms}
    passes = {role: 1 for role in models.trained if role in read}
    if shape.compare_sources and _has_both_sources(batch):
        passes[POLICY] += 2
    return passes


def compare_sources(ask: StepAsk, batch: Batch, metrics: Metrics) -> None:
    """How much of the policy's gradient comes from demonstrations and from rollouts, and their cosine."""
    norms, found = {}, {}
    if not _has_both_sources(batch):
        return
    for origin in SOURCES:
        found[origin] = ask.gradients(origin=origin)
        norms[origin] = found[origin].norm()
    total = norms[Origin.DEMONSTRATION] + norms[Origin.POLICY]
    if total == 0:
        return
    metrics.mean("gradient/share_demonstrations", norms[Origin.DEMONSTRATION] / total)
    metrics.mean("gradient/share_rollouts", norms[Origin.POLICY] / total)
    if min(norms.values()) > 0:
        inner = found[Origin.DEMONSTRATION].dot(found[Origin.POLICY])
        metrics.mean(
            "gradient/cosine_demonstrations_rollouts",
            inner / (norms[Origin.DEMONSTRATION] * norms[Origin.POLICY]),
        )


def _has_both_sources(batch: Batch) -> bool:
    return all(bool((batch.mask & (batch.origin == ORIGIN_CODES[origin])).any()) for origin in SOURCES)


def _work(method: Method, batch: Batch, shape: StepShape, ranks: Ranks) -> Work:
    batch = shape.arithmetic.seen(batch)
    lengths = [int(n) for n in batch.attention.sum(dim=1)]
    groups = [int(g) for g in batch.group] if Need.WHOLE_GROUPS in method.needs else None
    lists = cut(lengths, tokens=shape.micro_batch_tokens, ranks=ranks.size, groups=groups)
    return Work(batch, shares(method.terms, batch), lists[ranks.rank])


def _refuse_non_finite_rule(norms: Mapping[str, float], shape: StepShape) -> None:
    """What the update rule made of finite gradients must be finite too, for every role, before one moves."""
    bad = sorted(name for name, norm in norms.items() if not math.isfinite(norm))
    if bad:
        raise NonFiniteError(
            f"step {shape.number}: not finite: the gradient that the update rule made for {', '.join(bad)}. "
            "The optimizer has not moved. Look for a division by a zero norm in the rule; the last "
            "checkpoint is intact"
        )


def _apply(
    role: Role, method: Method, gradient: Gradients, *, norm: float, progress: float, metrics: Metrics
) -> None:
    if role.optimizer is None:
        raise ValueError(f"the update rule gave a gradient to role {role.name!r}, which does not train")
    before = {}
    if method.update.parameters is not None:
        before = {name: p.detach().clone() for name, p in role.parameters.items()}
    rate = role.optimizer.step(gradient, norm=norm, progress=progress)
    if method.update.parameters is not None:
        with torch.no_grad():
            method.update.parameters(
                Change(role.name, before, {n: p.data for n, p in role.parameters.items()})
            )
    prefix = "" if role.name == POLICY else f"{role.name}_"
    metrics.mean(f"gradient/{prefix}norm", norm)
    metrics.mean(f"optimizer/{prefix}learning_rate", rate)


def _only_origin(work: Work, origin: Origin) -> Shares:
    chosen = work.batch.origin == ORIGIN_CODES[origin]
    return {name: part * chosen for name, part in work.shares.items()}


def _taken(parameter: torch.nn.Parameter) -> Tensor:
    gradient = parameter.grad
    parameter.grad = None
    return torch.zeros_like(parameter) if gradient is None else gradient
