"""The modules behind the roles: a language model and a critic, both answering with a ``PolicyOutput``.

Logits never exist in full: the backbone's hidden states at response positions are cut into chunks, and
each chunk's logits are made, reduced to a few numbers per position by chunk functions, and dropped; the
backward pass makes them again (decision record 0003).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from bimetal.core.batch import Batch, PolicyOutput
from bimetal.core.errors import ConfigError
from bimetal.objectives.logprobs import Statistic, entropy, token_logprob

CHUNK_ELEMENTS = 2**24
"""Logits held at once per chunk, in elements (64 MiB in float32)."""

ENTROPY = "entropy"
"""Name under which every forward pass reports the entropy, without gradient unless a method declares it."""

Hidden = Float[Tensor, "p d"]
Head = Callable[[Hidden], Float[Tensor, "p v"]]


@dataclass(frozen=True, slots=True)
class Other:
    """Hidden states of another role at the batch's response positions, and its head."""

    hidden: Hidden
    head: Head


class CausalPolicy(nn.Module):
    """A causal language model that returns per-token log-probabilities and declared statistics."""

    def __init__(self, model: nn.Module, *, autocast: torch.dtype | None = None) -> None:
        """Wrap a transformers model; ``autocast`` is the dtype of products, ``None`` for the weights' own."""
        super().__init__()
        self.model = model
        self.autocast = autocast

    @property
    def base(self) -> PreTrainedModel:
        """The transformers model, without the adapter wrapper if there is one."""
        unwrap = getattr(self.model, "get_base_model", None)
        return cast("PreTrainedModel", self.model if unwrap is None else unwrap())

    @property
    def output_layer(self) -> Any:  # noqa: ANN401 - transformers' types allow a model without one
        """Hidden states to logits."""
        return self.base.get_output_embeddings()

    @property
    def chunk_positions(self) -> int:
        """How many positions' logits exist at once."""
        return max(CHUNK_ELEMENTS // int(self.output_layer.weight.shape[0]), 1)

    def hidden(self, batch: Batch) -> Hidden:
        """The backbone's last hidden states at the response positions, in row-major order."""
        backbone = getattr(self.base, self.base.base_model_prefix)
        with _autocast(batch.input_ids.device, self.autocast):
            states = backbone(
                input_ids=batch.input_ids, attention_mask=batch.attention.long(), use_cache=False
            ).last_hidden_state
        return states[batch.mask]

    def head(self, hidden: Hidden) -> Float[Tensor, "p v"]:
        """Logits of hidden states, in float32 or wider."""
        with _autocast(hidden.device, self.autocast):
            logits = self.output_layer(hidden)
        return logits if logits.dtype is torch.float64 else logits.float()

    def forward(
        self, batch: Batch, statistics: Mapping[str, Statistic], others: Mapping[str, Other] | None = None
    ) -> PolicyOutput:
        """Log-probabilities, entropy and the declared statistics at every response position."""
        declared = dict(statistics)
        names = tuple(declared)
        targets, temperature = batch.targets[batch.mask], batch.temperature[batch.mask]
        columns = reduce_chunks(
            self.hidden(batch),
            self.head,
            targets,
            temperature=temperature,
            functions=tuple(declared.values()),
            others=others or {},
            chunk=self.chunk_positions,
        )
        dense = [_scatter(batch.mask, column) for column in columns]
        found = dict(zip(names, dense[2:], strict=True))
        return PolicyOutput(logprobs=dense[0], statistics={ENTROPY: dense[1], **found})

    def check_head(self) -> None:
        """Make sure that backbone plus head give the model's own logits.

        Raises:
            ConfigError: They do not (a model that scales or caps its logits outside its output layer).
        """
        device = next(self.parameters()).device
        ids = torch.arange(1, 9, device=device).unsqueeze(0) % int(self.base.config.vocab_size)
        with torch.no_grad():
            whole = self.base(input_ids=ids, use_cache=False).logits
            states = getattr(self.base, self.base.base_model_prefix)(input_ids=ids, use_cache=False)
            parts = self.output_layer(states.last_hidden_state)
        if not torch.allclose(whole.float(), parts.float(), rtol=1e-4, atol=1e-4):
            raise ConfigError(
                f"model {self.base.config.model_type!r}: its logits are not its output layer applied to its "
                "last "
                "hidden states (scaled or capped logits); this architecture is not supported for training yet"
            )


class Critic(nn.Module):
    """A value model: the backbone of a language model with a linear head, starting at value 0."""

    def __init__(self, policy: CausalPolicy) -> None:
        """Copy the policy's backbone; the two share nothing afterwards."""
        super().__init__()
        base = policy.base
        self.backbone = copy.deepcopy(getattr(base, base.base_model_prefix))
        example = next(self.backbone.parameters())
        self.value = nn.Linear(int(base.config.hidden_size), 1, dtype=example.dtype, device=example.device)
        nn.init.zeros_(self.value.weight)
        nn.init.zeros_(self.value.bias)
        self.autocast = policy.autocast

    def forward(
        self, batch: Batch, statistics: Mapping[str, Statistic], others: Mapping[str, Other] | None = None
    ) -> PolicyOutput:
        """``values[t]``: the expected reward before token t is written; no log-probabilities."""
        del statistics, others
        with _autocast(batch.input_ids.device, self.autocast):
            states = self.backbone(
                input_ids=batch.input_ids, attention_mask=batch.attention.long(), use_cache=False
            ).last_hidden_state
            values = self.value(states[batch.mask]).squeeze(-1)
        dense = _scatter(batch.mask, values if values.dtype is torch.float64 else values.float())
        return PolicyOutput(logprobs=torch.zeros_like(dense), values=dense)


def reduce_chunks(  # noqa: PLR0913 - all of it enters one recomputed function of a chunk
    hidden: Hidden,
    head: Head,
    targets: Int[Tensor, " p"],
    *,
    temperature: Float[Tensor, " p"],
    functions: Sequence[Statistic],
    others: Mapping[str, Other],
    chunk: int,
) -> list[Float[Tensor, " p"]]:
    """Per position: the token's log-probability, the entropy (detached), then each function's number.

    Logits exist for ``chunk`` positions at a time.
    """
    missing = {f.other for f in functions if f.other is not None} - set(others)
    if missing:
        raise ConfigError(f"a statistic compares with role {sorted(missing)}, which this run does not have")

    def reduce(
        states: Hidden, tokens: Int[Tensor, " p"], heat: Float[Tensor, " p"], *other_states: Hidden
    ) -> tuple[Tensor, ...]:
        logits = head(states) / heat.unsqueeze(-1)
        with torch.no_grad():
            spread = entropy(logits, tokens)
        given = dict(zip(others, other_states, strict=True))
        # Both distributions are those at the token's temperature, or equal models would have a divergence.
        theirs = {name: (others[name].head(given[name]) / heat.unsqueeze(-1)).detach() for name in others}
        found = [f.function(logits, tokens, None if f.other is None else theirs[f.other]) for f in functions]
        return (token_logprob(logits, tokens), spread, *found)

    parts: list[tuple[Tensor, ...]] = []
    for start in range(0, max(len(hidden), 1), chunk):
        span = slice(start, start + chunk)
        arguments = (
            hidden[span],
            targets[span],
            temperature[span],
            *(o.hidden[span] for o in others.values()),
        )
        recompute = torch.is_grad_enabled() and len(hidden) > chunk
        parts.append(checkpoint(reduce, *arguments, use_reentrant=False) if recompute else reduce(*arguments))
    return [torch.cat(column) for column in zip(*parts, strict=True)]


def _scatter(mask: Bool[Tensor, "b t"], values: Float[Tensor, " p"]) -> Float[Tensor, "b t"]:
    return torch.zeros(mask.shape, dtype=values.dtype, device=values.device).masked_scatter(mask, values)


def _autocast(device: torch.device, dtype: torch.dtype | None) -> torch.autocast:
    return torch.autocast(device.type, dtype=dtype or torch.bfloat16, enabled=dtype is not None)
