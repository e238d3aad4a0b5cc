"""Faults of real trainers, as objects that are handed in: they prove that a check can fail.

Each stands for a fault that was found in published code; none is a branch of the step or the renderer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bimetal.core.batch import Batch, PolicyOutput
from bimetal.core.errors import unknown_name
from bimetal.core.types import Message
from bimetal.data.chat import Renderer
from bimetal.data.microbatch import Piece
from bimetal.objectives.compose import Shares, Term, shares
from bimetal.objectives.loss import CrossEntropy, only
from bimetal.objectives.method import Method
from bimetal.objectives.weight import one
from bimetal.trainer.arithmetic import EXACT, Arithmetic

LEAST_ACCUMULATION = 4
"""Micro-batches of a step from which on fault A drops some."""


def _same_method(method: Method) -> Method:
    return method


def _same_renderer(renderer: Renderer) -> Renderer:
    return renderer


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is wrong: in the step's arithmetic, in a method, or in how texts are rendered."""

    name: str
    what: str
    arithmetic: Arithmetic = EXACT
    method: Callable[[Method], Method] = _same_method
    renderer: Callable[[Renderer], Renderer] = _same_renderer


NO_FAULT = Fault(name="none", what="nothing is wrong")


def fault(name: str) -> Fault:
    """The fault of this name.

    Raises:
        UnknownNameError: There is none.
    """
    if name not in FAULTS:
        raise unknown_name("fault", name, FAULTS)
    return FAULTS[name]


def _first_and_last(pieces: Sequence[Piece]) -> Sequence[Piece]:
    live = [i for i, piece in enumerate(pieces) if piece.live]
    kept = live if len(live) < LEAST_ACCUMULATION else [live[0], live[-1]]
    return [dataclasses.replace(piece, live=i in kept) for i, piece in enumerate(pieces)]


def _last(pieces: Sequence[Piece]) -> Sequence[Piece]:
    live = [i for i, piece in enumerate(pieces) if piece.live]
    return [dataclasses.replace(piece, live=i == live[-1]) for i, piece in enumerate(pieces)]


def _alone(terms: Collection[Term], rows: Batch, parts: Shares, pieces: int) -> Shares:
    own = shares(terms, rows)
    # What had no share of the whole step, as all of a dead piece, has none here.
    return {name: torch.where(parts[name] == 0, 0.0, share / pieces) for name, share in own.items()}


def _shifted(batch: Batch) -> Batch:
    """Members and weights one token to the right of where they belong."""

    def shift(x: Tensor) -> Tensor:
        return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)

    members = {name: shift(x) & batch.mask for name, x in batch.members.items()}
    weights = {name: shift(x) for name, x in batch.weights.items()}
    return dataclasses.replace(batch, members=members, weights=weights)


@dataclass(frozen=True, slots=True)
class Attached:
    """A weighted cross-entropy whose weight lets gradient through: p log p in place of sg(p) log p."""

    inner: CrossEntropy

    def __call__(
        self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
    ) -> Float[Tensor, "b t"]:
        """As the loss itself in value, not in gradient."""
        loss = self.inner(batch, policy, members)
        weight = only(members, self.inner.weight(batch, policy, members))
        # (p / sg p) carries the gradient that the weight should not have.
        logprobs = only(members, policy.logprobs)
        carrier = torch.exp((logprobs - logprobs.detach()).clamp(-1.0, 1.0))
        return loss * torch.where(weight == 0, torch.ones_like(carrier), carrier)

    def watch(
        self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
    ) -> Mapping[str, Float[Tensor, "b t"]]:
        """As the loss itself."""
        return self.inner.watch(batch, policy, members)


def _with_attached_weights(method: Method) -> Method:
    def attach(term: Term) -> Term:
        loss = term.loss
        if not isinstance(loss, CrossEntropy) or loss.weight is one:
            return term
        return dataclasses.replace(term, loss=Attached(loss))

    return dataclasses.replace(method, terms=tuple(attach(term) for term in method.terms))


class _Drifted(Renderer):
    """Begins the assistant's turn in other words than the template."""

    def prompt_ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The prompt's ids with one more token before the response."""
        ids = super().prompt_ids(messages)
        return (*ids, ids[-1])


class _TwiceBegun(Renderer):
    """Adds the first token of the template's text once more, as encoding a rendered text with BOS does."""

    def prompt_ids(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The prompt's ids with the first one twice."""
        ids = super().prompt_ids(messages)
        return (ids[0], *ids)


FAULTS: Mapping[str, Fault] = {
    found.name: found
    for found in (
        Fault(
            name="drop-microbatches",
            what="of an accumulation of at least four only the first and the last micro-batch count",
            arithmetic=Arithmetic("drop-microbatches", pieces=_first_and_last),
        ),
        Fault(
            name="last-backward-only",
            what="only the last backward pass of a step survives",
            arithmetic=Arithmetic("last-backward-only", pieces=_last),
        ),
        Fault(
            name="mean-of-means",
            what="each micro-batch is normalised alone, and the results are averaged",
            arithmetic=Arithmetic("mean-of-means", piece_shares=_alone),
        ),
        Fault(
            name="off-by-one-mask",
            what="the loss mask stands one token beside the response",
            arithmetic=Arithmetic("off-by-one-mask", seen=_shifted),
        ),
        Fault(
            name="detached-weight-not-detached",
            what="token weights that must be constants carry a gradient",
            method=_with_attached_weights,
        ),
        Fault(
            name="template-drift",
            what="the prompt is not what the tokenizer's own chat template writes",
            renderer=lambda r: _Drifted(r.tokenizer),
        ),
        Fault(
            name="double-bos",
            what="the first token of the prompt stands there twice",
            renderer=lambda r: _TwiceBegun(r.tokenizer),
        ),
    )
}
"""Fault A, A' and B are those of arXiv:2604.23747."""
