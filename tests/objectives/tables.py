"""Small batches written out by hand, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from bimetal.core.batch import Batch, PolicyOutput
from bimetal.core.types import (
    Draft,
    Finish,
    Group,
    Message,
    Origin,
    Prompt,
    PromptId,
    Segment,
    Status,
    Stream,
    Trace,
    TraceId,
    Verdict,
)

NAN, INF = math.nan, math.inf

Rows = Sequence[Sequence[float]]


def numbers(rows: Rows) -> Tensor:
    """Rows of numbers, [b t]."""
    return torch.tensor(rows, dtype=torch.float64)


def marks(rows: Sequence[Sequence[int]]) -> Tensor:
    """Rows of 0 and 1 as a mask."""
    return torch.tensor(rows, dtype=torch.bool)


def log(rows: Rows) -> list[list[float]]:
    """Logarithms of probabilities written as such; NaN and infinities stay what they are."""
    return [[math.log(x) if 0 < x < INF else x for x in row] for row in rows]


def a_batch(
    members: Mapping[str, Sequence[Sequence[int]]],
    *,
    weights: Mapping[str, Rows] | None = None,
    advantages: Rows | None = None,
    group: Sequence[int] | None = None,
    **fields: Rows,
) -> Batch:
    """A batch with these members; weight 1 and advantage 1 where nothing else is said."""
    masks = {name: marks(rows) for name, rows in members.items()}
    first = next(iter(masks.values()))
    ones = torch.ones(first.shape, dtype=torch.float64)
    given = {name: numbers(rows) for name, rows in (weights or {}).items()}
    zeros = torch.zeros(first.shape, dtype=torch.long)
    return Batch(
        trace_ids=tuple(TraceId(f"t{i}") for i in range(first.shape[0])),
        input_ids=zeros,
        targets=zeros,
        attention=torch.ones_like(first),
        mask=torch.stack(list(masks.values())).any(dim=0),
        origin=zeros + 1,
        temperature=ones,
        group=torch.tensor(list(range(first.shape[0])) if group is None else list(group)),
        members=masks,
        weights={name: given.get(name, ones) for name in masks},
        advantages=ones if advantages is None else numbers(advantages),
        **{name: numbers(rows) for name, rows in fields.items()},
    )


def said(logprobs: Rows, *, values: Rows | None = None, **statistics: Rows) -> PolicyOutput:
    """What a model says, with a gradient to ask for."""
    return PolicyOutput(
        logprobs=numbers(logprobs).requires_grad_(),
        values=None if values is None else numbers(values).requires_grad_(),
        statistics={name: numbers(rows).requires_grad_() for name, rows in statistics.items()},
    )


def slope(of: Tensor, by: Tensor) -> list[list[float]]:
    """The gradient of the sum, as rows."""
    (found,) = torch.autograd.grad(of.sum(), by, retain_graph=True)
    return found.tolist()


def slope_at(function: Callable[[Tensor], Tensor], rows: Rows) -> list[list[float]]:
    """The gradient of the function's sum at a point."""
    x = numbers(rows).requires_grad_()
    return slope(function(x), x)


def a_trace(
    name: str,
    *,
    member: int = 0,
    reward: float | None = 1.0,
    policy: int = 0,
    demonstration: int = 0,
    stream: Stream = Stream.MAIN,
) -> Trace:
    """A trace with a prompt of two tokens, then that many demonstration tokens, then policy tokens."""
    segments = [Segment(origin=Origin.PROMPT, token_ids=(1, 2))]
    if demonstration:
        segments.append(Segment(origin=Origin.DEMONSTRATION, token_ids=(3,) * demonstration))
    if policy:
        segments.append(Segment(origin=Origin.POLICY, token_ids=(4,) * policy, logprobs=(-0.5,) * policy))
    status = Status.UNKNOWN if reward is None else Status.CORRECT if reward == 1.0 else Status.WRONG
    return Trace(
        id=TraceId(name),
        prompt_id=PromptId("p"),
        domain="d",
        visit=0,
        member=member,
        draft=Draft(),
        contexts=(tuple(segments),),
        finish=Finish.STOP,
        verdict=Verdict(status=status, reward=reward),
        stream=stream,
    )


def a_group(*traces: Trace, stream: Stream = Stream.MAIN) -> Group:
    """A group of these traces."""
    prompt = Prompt(
        id=PromptId("p"), domain="d", messages=(Message(role="user", content="?"),), stream=stream
    )
    return Group(prompt=prompt, visit=0, traces=traces)
