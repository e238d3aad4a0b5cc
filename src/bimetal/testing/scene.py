"""Scenes: a method, tiny models for its roles, and random judged groups drafted by its own mix.

Conformance checks and tests drive the real objective layer and the real step with them.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
import torch

from bimetal.core.batch import Batch
from bimetal.core.streams import Streams
from bimetal.core.types import (
    Credit,
    Demonstration,
    Draft,
    Finish,
    Group,
    GroupState,
    Message,
    Origin,
    Prompt,
    PromptId,
    Segment,
    Signals,
    Status,
    Stream,
    Trace,
    TraceId,
    Verdict,
)
from bimetal.data.collate import Row, collate
from bimetal.data.microbatch import Piece
from bimetal.objectives.compose import shares
from bimetal.objectives.controller import value_of
from bimetal.objectives.method import Method, Need
from bimetal.objectives.mix import Mix
from bimetal.objectives.update import Gradients
from bimetal.testing.tiny import VOCABULARY, tiny_policy
from bimetal.trainer.arithmetic import EXACT, Arithmetic
from bimetal.trainer.optimizer import LearningRate, RoleOptimizer
from bimetal.trainer.parallel import Ranks
from bimetal.trainer.policy import CausalPolicy, Critic
from bimetal.trainer.roles import CRITIC, POLICY, REFERENCE, Models, frozen_role, role_of
from bimetal.trainer.step import STEP, StepAsk, StepShape, Work, run

_M = TypeVar("_M", bound=torch.nn.Module)

Drift = Literal["none", "some", "far"]
"""How far the policy is from the one that wrote: at its first update, past it, or beyond reason."""

GROUP_SIZE, LONGEST = 4, 12
"""Members per group, and tokens of the longest response of a scene."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What one optimizer step of a method needs; ``credits`` are in order of groups and members."""

    method: Method
    models: Models
    groups: tuple[Group, ...]
    signals: Signals
    credits: tuple[Credit, ...]
    dtype: torch.dtype = torch.float64

    @property
    def rows(self) -> tuple[Row, ...]:
        """One row per trace."""
        traces = [(trace, number) for number, group in enumerate(self.groups) for trace in group.traces]
        return tuple(
            Row(trace=trace, credit=credit, group=number)
            for (trace, number), credit in zip(traces, self.credits, strict=True)
        )

    def batch(self, order: Sequence[int] | None = None) -> Batch:
        """The step's batch, its rows in this order."""
        rows = self.rows
        chosen = [rows[i] for i in (range(len(rows)) if order is None else order)]
        names = [term.name for term in self.method.terms]
        return collate(chosen, terms=names, signals=self.signals, dtype=self.dtype)


def scene(method: Method, seed: int, *, dtype: torch.dtype = torch.float64, drift: Drift = "none") -> Scene:
    """Random groups for this method, and models for the roles it needs."""
    groups = drafted_groups(method.mix, seed)
    return stage(method, groups, seed=seed, dtype=dtype, drift=drift)


def stage(
    method: Method,
    groups: tuple[Group, ...],
    *,
    seed: int,
    dtype: torch.dtype = torch.float64,
    drift: Drift = "none",
) -> Scene:
    """The scene of these groups: models, signals from passes before the update, and credit."""
    policy = tiny_policy(seed, dtype=dtype, scale=6.0 if drift == "far" else 2.0)
    roles = {POLICY: role_of(POLICY, policy)}
    if Need.CRITIC in method.needs:
        roles[CRITIC] = role_of(CRITIC, _critic(policy, seed))
    if Need.REFERENCE in method.needs or any(s.other == REFERENCE for s in method.statistics.values()):
        roles[REFERENCE] = frozen_role(REFERENCE, _nudged(policy, seed, "reference"))
    for role in roles.values():
        if role.name != REFERENCE:
            role.optimizer = RoleOptimizer(role.parameters, name="sgd", rate=LearningRate(peak=1.0))
    models = Models(roles)
    signals = _signals(models, groups, seed=seed, dtype=dtype, drift=drift)
    return Scene(
        method=method,
        models=models,
        groups=groups,
        signals=signals,
        credits=method.credit(groups, signals),
        dtype=dtype,
    )


def asked(
    whole: Scene,
    batch: Batch,
    pieces: Sequence[Piece],
    *,
    progress: float = 0.3,
    ranks: Ranks | None = None,
    arithmetic: Arithmetic = EXACT,
) -> StepAsk:
    """What answers the method's update rule, for any cut of the batch: ``pieces`` are those of this rank."""
    terms = whole.method.terms
    batch = arithmetic.seen(batch)
    work = Work(batch, shares(terms, batch), pieces)
    named = {STEP: work, "probe": work} if Need.PROBE_BATCH in whole.method.needs else {STEP: work}
    coefficients = {term.name: value_of(term.coefficient, progress) for term in terms}
    shape = StepShape(micro_batch_tokens=10**9, arithmetic=arithmetic)
    return StepAsk(whole.models, whole.method, named, coefficients, ranks or Ranks(), shape)


def cut_gradients(
    whole: Scene,
    batch: Batch,
    pieces: Sequence[Piece],
    *,
    progress: float = 0.3,
    arithmetic: Arithmetic = EXACT,
) -> Mapping[str, Gradients]:
    """What the method's update rule gives every trained role, for any cut of the batch."""
    return whole.method.update.gradients(
        asked(whole, batch, pieces, progress=progress, arithmetic=arithmetic)
    )


def drafted_groups(mix: Mix, seed: int, *, groups: int = 4) -> tuple[Group, ...]:
    """Groups as the mix drafts them, for prompts with demonstrations and some of the second stream."""
    noise = Streams(seed).generator("scene-groups")
    streams = [Stream.MAIN] * groups + [Stream.DEMONSTRATIONS] * 2
    found = [_drafted(mix, noise, number, stream) for number, stream in enumerate(streams)]
    return tuple(group for group in found if group.traces)


def _drafted(mix: Mix, noise: np.random.Generator, number: int, stream: Stream) -> Group:
    name = PromptId(f"tiny/{number}")
    prompt = Prompt(id=name, domain="tiny", messages=(Message(role="user", content="?"),), stream=stream)
    head = Segment(origin=Origin.PROMPT, token_ids=_tokens(noise, 1, 5))
    shown = tuple(
        Demonstration(
            prompt_id=name, text="", token_ids=tokens, author_logprobs=_logprobs(noise, len(tokens))
        )
        for tokens in (_tokens(noise, 2, LONGEST), _tokens(noise, 2, LONGEST))
    )
    traces: list[Trace] = []
    for _ in range(10):
        state = GroupState(
            prompt=prompt,
            visit=number,
            size=GROUP_SIZE,
            progress=0.3,
            demonstrations=shown,
            traces=tuple(traces),
        )
        drafts = mix(state)
        if not drafts:
            return Group(prompt=prompt, visit=number, traces=tuple(traces))
        for draft in drafts:
            traces.append(_trace(noise, state, head, draft=draft, member=len(traces)))
    raise AssertionError(
        "the mix asks for more than ten rounds: it must return () when the group is complete"
    )


def _trace(
    noise: np.random.Generator, state: GroupState, head: Segment, *, draft: Draft, member: int
) -> Trace:
    source = state.demonstrations[draft.demonstration]
    assert source.token_ids is not None and source.author_logprobs is not None
    kept = int(draft.prefix_fraction * len(source.token_ids))
    segments = [head]
    if kept:
        segments.append(
            Segment(
                origin=Origin.DEMONSTRATION,
                token_ids=source.token_ids[:kept],
                logprobs=source.author_logprobs[:kept],
            )
        )
    if draft.prefix_fraction < 1:
        tokens = _tokens(noise, 1, LONGEST)
        segments.append(
            Segment(origin=Origin.POLICY, token_ids=tokens, logprobs=_logprobs(noise, len(tokens)), version=0)
        )
    chance = noise.random()
    status = Status.UNKNOWN if chance < 0.1 else Status.CORRECT if chance < 0.55 else Status.WRONG
    reward = None if status is Status.UNKNOWN else float(status is Status.CORRECT)
    return Trace(
        id=TraceId(f"{state.prompt.id}/{member}"),
        prompt_id=state.prompt.id,
        domain="tiny",
        visit=state.visit,
        member=member,
        draft=draft,
        contexts=(tuple(segments),),
        finish=Finish.STOP,
        stream=state.prompt.stream,
        verdict=Verdict(status=status, reward=reward),
    )


def _signals(
    models: Models, groups: Sequence[Group], *, seed: int, dtype: torch.dtype, drift: Drift
) -> Signals:
    traces = [trace for group in groups for trace in group.traces]
    policy = models[POLICY].module
    assert isinstance(policy, CausalPolicy)
    noise = Streams(seed).generator("scene-signals")
    wild = {t.id: tuple(float(-200 * x) for x in noise.random(t.response_length)) for t in traces}
    old: Mapping[TraceId, tuple[float, ...]] = wild if drift == "far" else {}
    if drift == "some":
        old = per_trace(_nudged(policy, seed, "old"), traces, dtype)
    reference: Mapping[TraceId, tuple[float, ...]] = {}
    if REFERENCE in models:
        module = models[REFERENCE].module
        assert isinstance(module, CausalPolicy)
        reference = wild if drift == "far" else per_trace(module, traces, dtype)
    values: Mapping[TraceId, tuple[float, ...]] = {}
    if CRITIC in models:
        module = models[CRITIC].module
        assert isinstance(module, Critic)
        values = per_trace(module if drift == "none" else _nudged(module, seed, "critic"), traces, dtype)
    return Signals(values=values, old_logprobs=old, reference_logprobs=reference)


def per_trace(
    module: CausalPolicy | Critic, traces: Sequence[Trace], dtype: torch.dtype
) -> dict[TraceId, tuple[float, ...]]:
    """What a module says of every response token: log-probabilities, or values of a critic."""
    rows = [Row(trace=trace, credit=Credit(trace_id=trace.id), group=0) for trace in traces]
    batch = collate(rows, terms=(), signals=Signals(), dtype=dtype)
    with torch.no_grad():
        output = run(role_of("asked", module), batch, {}, Models())
    numbers = output.logprobs if output.values is None else output.values
    return {
        trace.id: tuple(float(x) for x in line[marked])
        for trace, line, marked in zip(traces, numbers, batch.mask, strict=True)
    }


def _critic(policy: CausalPolicy, seed: int) -> Critic:
    return _nudged(Critic(policy), seed, "value-head")


def _nudged(module: _M, seed: int, purpose: str) -> _M:
    """A copy with every weight moved a little, so that ratios differ from 1 and some gates close."""
    moved, noise = copy.deepcopy(module), Streams(seed).generator("scene-nudge", purpose)
    with torch.no_grad():
        for parameter in moved.parameters():
            step = torch.from_numpy(noise.standard_normal(tuple(parameter.shape)))
            parameter.add_(0.1 * step.to(parameter.dtype))
    return moved


def _tokens(noise: np.random.Generator, low: int, high: int) -> tuple[int, ...]:
    return tuple(int(i) for i in noise.integers(0, VOCABULARY, int(noise.integers(low, high + 1))))


def _logprobs(noise: np.random.Generator, count: int) -> tuple[float, ...]:
    return tuple(float(-x) for x in noise.random(count))
