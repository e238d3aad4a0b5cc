"""Passes before the update: old and reference log-probabilities, and the critic's values, per trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bimetal.core.types import Credit, Group, Origin, Signals, Trace, TraceId
from bimetal.data.collate import Row, collate
from bimetal.data.microbatch import cut
from bimetal.objectives.method import Method, Need
from bimetal.trainer.roles import CRITIC, POLICY, REFERENCE, Models, Role
from bimetal.trainer.step import run


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Which roles look at which traces before the update."""

    old: tuple[Trace, ...] = ()
    reference: tuple[Trace, ...] = ()
    values: tuple[Trace, ...] = ()


def wanted(method: Method, groups: Sequence[Group], *, updates: int) -> Passes:
    """The passes this method needs for this roll-out batch.

    With one update the old policy is the policy, so its pass is saved. A term that takes a ratio over the old
    policy has its members in groups with rollouts; elsewhere the old log-probabilities are NaN, so one that
    has not is refused at its first step.
    """
    traces = tuple(t for g in groups for t in g.traces)
    # A group without a rollout has nobody to compare with: it is imitated, and imitation needs no old policy.
    compared = tuple(t for g in groups if any(map(_is_written, g.traces)) for t in g.traces)
    return Passes(
        old=compared if updates > 1 else (),
        reference=traces if Need.REFERENCE in method.needs else (),
        values=tuple(filter(_is_written, traces)) if Need.CRITIC in method.needs else (),
    )


def _is_written(trace: Trace) -> bool:
    """Whether the policy wrote any of it."""
    return any(s.origin is Origin.POLICY for s in trace.segments)


def signals(models: Models, passes: Passes, *, micro_batch_tokens: int) -> Signals:
    """What the passes found, one number per response token of every trace."""
    return Signals(
        old_logprobs=_look(models, POLICY, passes.old, micro_batch_tokens),
        reference_logprobs=_look(models, REFERENCE, passes.reference, micro_batch_tokens),
        values=_look(models, CRITIC, passes.values, micro_batch_tokens),
    )


def _look(
    models: Models, role: str, traces: Sequence[Trace], tokens: int
) -> dict[TraceId, tuple[float, ...]]:
    if not traces:
        return {}
    return _values(models, models[role], traces, tokens)


@torch.no_grad()
def _values(
    models: Models, role: Role, traces: Sequence[Trace], tokens: int
) -> dict[TraceId, tuple[float, ...]]:
    rows = [Row(trace=t, credit=Credit(trace_id=t.id), group=0) for t in traces]
    dtype = next(iter(models[POLICY].parameters.values())).dtype
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    batch = collate(rows, terms=(), signals=Signals(), dtype=wide)
    (pieces,) = cut([int(n) for n in batch.attention.sum(dim=1)], tokens=tokens)
    found: dict[TraceId, tuple[float, ...]] = {}
    for piece in pieces:
        part = batch.rows(piece.rows).to(models.device)
        output = run(role, part, {}, models)
        numbers = output.logprobs if output.values is None else output.values
        for name, line, mask in zip(part.trace_ids, numbers, part.mask, strict=True):
            found[name] = tuple(float(x) for x in line[mask].tolist())
    return found
