"""The records that hold tensors: a batch of traces, and what the policy says about it.

Position t holds what concerns the token *predicted* at t, so nothing downstream shifts: ``targets[t]``
is the token after ``input_ids[t]``, and ``advantages[t]``, ``old_logprobs[t]`` and the rest are of that
token. A field no method needs is ``None``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bimetal.core.types import Origin, TraceId

ORIGIN_CODES: Mapping[Origin, int] = {
    Origin.PROMPT: 0,
    Origin.POLICY: 1,
    Origin.DEMONSTRATION: 2,
    Origin.ENVIRONMENT: 3,
}
"""How ``Batch.origin`` encodes who wrote the predicted token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Traces of one optimizer step, or the rows of it that go through the model at once.

    ``attention`` marks real input tokens, ``mask`` the positions whose predicted token belongs to a
    response (whoever wrote it). ``temperature`` is that of the token's author: 1 for demonstrations.
    ``members[term]`` and ``weights[term]`` say what counts in a term; a weight of 0 keeps its token in
    the term's denominator. ``group`` numbers the groups of the step. Log-probabilities are in nats.
    """

    trace_ids: tuple[TraceId, ...]
    input_ids: Int[Tensor, "b t"]
    targets: Int[Tensor, "b t"]
    attention: Bool[Tensor, "b t"]
    mask: Bool[Tensor, "b t"]
    origin: Int[Tensor, "b t"]
    temperature: Float[Tensor, "b t"]
    group: Int[Tensor, " b"]
    members: Mapping[str, Bool[Tensor, "b t"]]
    weights: Mapping[str, Float[Tensor, "b t"]]
    advantages: Float[Tensor, "b t"]
    returns: Float[Tensor, "b t"] | None = None
    old_logprobs: Float[Tensor, "b t"] | None = None
    old_values: Float[Tensor, "b t"] | None = None
    sampler_logprobs: Float[Tensor, "b t"] | None = None
    reference_logprobs: Float[Tensor, "b t"] | None = None
    author_logprobs: Float[Tensor, "b t"] | None = None

    @property
    def size(self) -> int:
        """Number of traces."""
        return self.input_ids.shape[0]

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The same batch with ``change`` applied to every tensor."""
        return dataclasses.replace(
            self,
            **{
                f.name: _apply(change, getattr(self, f.name))
                for f in dataclasses.fields(self)
                if f.name != "trace_ids"
            },
        )

    def rows(self, index: Sequence[int]) -> Batch:
        """These rows, in this order, cut to the longest of them."""
        chosen = torch.tensor(list(index), dtype=torch.long)
        width = max(int(self.attention[chosen].sum(dim=1).max()) if len(index) else 0, 1)
        part = self.map(lambda x: x[chosen][:, :width] if x.dim() == 2 else x[chosen])
        return dataclasses.replace(part, trace_ids=tuple(self.trace_ids[i] for i in index))

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        return self.map(lambda x: x.to(device))

    def with_fields(self, **fields: Tensor | None) -> Batch:
        """The same batch with some fields replaced."""
        return dataclasses.replace(self, **fields)  # type: ignore[arg-type]


def _apply(change: Callable[[Tensor], Tensor], value: object) -> object:
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, Mapping):
        return {key: change(item) for key, item in value.items()}
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOutput:
    """What one role's model says about a batch under its current weights.

    ``logprobs`` is present for language models, ``values`` for critics. ``statistics`` holds what the
    method declared under its own names (entropy, divergence from the reference, top-k mass, ...).
    All are float32 or wider; positions outside ``Batch.mask`` hold 0.
    """

    logprobs: Float[Tensor, "b t"]
    values: Float[Tensor, "b t"] | None = None
    statistics: Mapping[str, Float[Tensor, "b t"]] = dataclasses.field(default_factory=dict)

    def statistic(self, name: str) -> Float[Tensor, "b t"]:
        """A declared per-token statistic.

        Raises:
            KeyError: The method did not declare it in ``Method.statistics``.
        """
        if name not in self.statistics:
            raise KeyError(f"statistic {name!r} was not declared; declared: {sorted(self.statistics)}")
        return self.statistics[name]
