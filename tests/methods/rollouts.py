"""Rollouts whose sampler is the old policy or stands near it, for methods that read both."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import torch
from tests.methods.compare import free_groups

from bimetal.core.streams import Streams
from bimetal.core.types import Finish, Group, Origin, Trace, TraceId
from bimetal.objectives.method import Method
from bimetal.testing.scene import Drift, per_trace, stage
from bimetal.testing.tiny import tiny_policy

Spans = Mapping[TraceId, tuple[float, ...]]


def written_by_old(method: Method, *, seed: int, drift: Drift, apart: float = 0.0) -> tuple[Group, ...]:
    """Free groups whose sampler log-probabilities are the old policy's, moved by up to ``apart`` nats."""
    groups = free_groups(seed)
    old: Spans = stage(method, groups, seed=seed, drift=drift).signals.old_logprobs
    if not old:
        traces = [trace for group in groups for trace in group.traces]
        old = per_trace(tiny_policy(seed, scale=2.0), traces, torch.float64)
    noise = Streams(seed).generator("rollouts-apart")

    def said(trace: Trace) -> tuple[float, ...]:
        return tuple(x + apart * float(noise.uniform(-1, 1)) for x in old[trace.id])

    return changed(groups, lambda trace: _said(trace, said(trace)))


def cut_every_third(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """The same groups, where every third response ended at the length limit."""
    seen = iter(range(10**6))
    return changed(
        groups, lambda t: dataclasses.replace(t, finish=Finish.LENGTH) if next(seen) % 3 == 0 else t
    )


def changed(groups: tuple[Group, ...], change: Callable[[Trace], Trace]) -> tuple[Group, ...]:
    """The same groups with every trace changed."""
    return tuple(dataclasses.replace(g, traces=tuple(map(change, g.traces))) for g in groups)


def _said(trace: Trace, logprobs: tuple[float, ...]) -> Trace:
    head, body = trace.segments
    assert body.origin is Origin.POLICY
    return dataclasses.replace(trace, contexts=((head, dataclasses.replace(body, logprobs=logprobs)),))
