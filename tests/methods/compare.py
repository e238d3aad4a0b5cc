"""One real step of a method against its literal transcription, in value and in gradient."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from tests.methods.literal import Sample

from bimetal.core.metrics import Metrics
from bimetal.core.types import Finish, Group, Origin, Status, Stream, Trace, Verdict
from bimetal.objectives.method import Method
from bimetal.testing.scene import Drift, Scene, stage
from bimetal.testing.tiny import random_groups
from bimetal.trainer.roles import CRITIC, POLICY, REFERENCE
from bimetal.trainer.step import STEP, StepShape, take_step

SEEDS = (0, 1, 2)
LONGEST = 12
"""Tokens of the longest response in ``random_groups``."""


@dataclass(frozen=True, slots=True)
class Samples:
    """The literal view of a scene: free rollouts' groups, and everything that is a demonstration."""

    groups: list[list[Sample]]
    demonstrations: list[Sample]


def free_groups(seed: int) -> tuple[Group, ...]:
    """Groups of free rollouts."""
    return random_groups(seed, demonstrations=False)


def mixed_groups(seed: int) -> tuple[Group, ...]:
    """Groups whose last member is a demonstration, without the second stream."""
    return tuple(g for g in random_groups(seed) if g.prompt.stream is Stream.MAIN)


def two_streams(seed: int) -> tuple[Group, ...]:
    """Groups of free rollouts, and demonstrations of other prompts."""
    return (*free_groups(seed), *(g for g in random_groups(seed) if g.prompt.stream is Stream.DEMONSTRATIONS))


def forget_verdict(groups: Sequence[Group], group: int, member: int) -> tuple[Group, ...]:
    """The same groups, with one trace that nobody could judge."""
    traces = list(groups[group].traces)
    unknown = Verdict(status=Status.UNKNOWN, reward=None, reason="infra_error")
    traces[member] = dataclasses.replace(traces[member], verdict=unknown)
    changed = dataclasses.replace(groups[group], traces=tuple(traces))
    return (*groups[:group], changed, *groups[group + 1 :])


def check_against_literal(
    method: Method,
    groups: tuple[Group, ...],
    literal: Callable[[Samples], torch.Tensor],
    *,
    seed: int,
    drift: Drift,
    progress: float = 0.3,
) -> Metrics:
    """A real step in small micro-batches changes every parameter by minus the literal loss's gradient."""
    whole = stage(method, groups, seed=seed, drift=drift)
    roles = whole.models.trained
    parameters = {(role, name): p for role in roles for name, p in whole.models[role].parameters.items()}
    before = {key: p.detach().clone() for key, p in parameters.items()}
    loss = literal(_samples(whole))
    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    expected = {
        key: torch.zeros_like(p) if g is None else g
        for (key, p), g in zip(parameters.items(), gradients, strict=True)
    }

    shape = StepShape(micro_batch_tokens=40)
    metrics = take_step(whole.models, method, {STEP: whole.batch()}, progress=progress, shape=shape)

    value = sum(
        metrics.value(f"term/{term.name}/loss") * metrics.value(f"controller/{term.name}")
        for term in method.terms
    )
    assert value == pytest.approx(float(loss.detach()), rel=1e-9, abs=1e-9)
    for role in roles:
        keys = [key for key in parameters if key[0] == role]
        gap = torch.cat([(before[k] - parameters[k].detach() - expected[k]).reshape(-1) for k in keys])
        size = torch.cat([expected[k].reshape(-1) for k in keys])
        assert float(size.norm()) > 0
        assert float(gap.norm()) <= 1e-9 * float(size.norm())
    return metrics


def _samples(whole: Scene) -> Samples:
    groups, demonstrations = [], []
    for group in whole.groups:
        found = [_sample(whole, trace) for trace in group.traces if trace.is_known]
        demonstrations += [sample for sample in found if sample.is_demonstration]
        if group.prompt.stream is Stream.MAIN:
            groups.append(found)
    return Samples(groups, demonstrations)


def _sample(whole: Scene, trace: Trace) -> Sample:
    head, body = trace.segments
    ids = torch.tensor([[*head.token_ids, *body.token_ids]])
    logits = whole.models[POLICY].module.model(input_ids=ids).logits[0]
    logprobs, entropies, values, rows, reference_rows = [], [], [], [], []
    for t, token in enumerate(body.token_ids):
        row = torch.log_softmax(logits[len(head.token_ids) + t - 1], dim=0)
        rows.append(row)
        logprobs.append(row[token])
        entropies.append(-(row.exp() * row).sum())
    if REFERENCE in whole.models:
        logits = whole.models[REFERENCE].module.model(input_ids=ids).logits[0].detach()
        first = len(head.token_ids) - 1
        reference_rows = [torch.log_softmax(logits[first + t], dim=0) for t in range(len(body.token_ids))]
    if CRITIC in whole.models:
        critic = whole.models[CRITIC].module
        states = critic.backbone(input_ids=ids).last_hidden_state[0]
        values = [critic.value(states[len(head.token_ids) + t - 1])[0] for t in range(len(body.token_ids))]
    return Sample(
        logprobs=logprobs,
        reward=trace.reward,
        old=whole.signals.old_logprobs.get(trace.id, [float(x.detach()) for x in logprobs]),
        reference=whole.signals.reference_logprobs.get(trace.id, ()),
        values=values,
        old_values=whole.signals.values.get(trace.id, ()),
        entropies=entropies,
        is_demonstration=body.origin is Origin.DEMONSTRATION,
        is_finished=trace.finish is Finish.STOP,
        authored=body.logprobs or (),
        rows=rows,
        reference_rows=reference_rows,
    )
