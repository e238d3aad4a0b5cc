"""The rows of a batch that is being written, and what the model remembers of them in its KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from bimetal.rollout.backend import Request


class CachedRows:
    """Contexts that were read, left-padded, and the tokens that were read behind them.

    Reads each distinct context once, however many requests share it; with a fixed width, one row
    per request, so that the shape of every pass depends on the number of requests alone.

    Args:
        module: A causal language model in the manner of transformers.
        requests: One row each.
        pad: The id in places that attention never sees.
        fixed_width: Tokens every context is padded to; the longest context of the batch if not given.

    Attributes:
        rows: The request each place of the batch belongs to.
        logits: Of the next token, by place.
    """

    def __init__(
        self, module: nn.Module, requests: Sequence[Request], *, pad: int, fixed_width: int | None
    ) -> None:
        contexts = [request.context_ids for request in requests]
        if fixed_width is None:
            distinct, width = list(dict.fromkeys(contexts)), max(map(len, contexts))
        else:
            # One column nobody attends to: with none, a batch of full contexts would get another kernel.
            distinct, width = contexts, fixed_width + 1
        device = next(module.parameters()).device
        ids, mask = _left_padded(distinct, width=width, pad=pad)
        ids, mask = ids.to(device), mask.to(device)
        room = max(request.sampling.max_tokens for request in requests)
        self._last_position = positions_of(module) - 1
        self._width = width
        self._mask = torch.cat([mask, mask.new_ones(len(distinct), room)], dim=1)
        self._length = mask.sum(dim=1)
        output: Any = module(
            input_ids=ids,
            attention_mask=mask,
            position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0),
            use_cache=True,
            logits_to_keep=1,
        )
        self._cache = output.past_key_values
        self.logits: Float[Tensor, "b v"] = output.logits[:, -1]
        self.rows: Int[Tensor, " b"] = torch.arange(len(distinct), device=device)
        if len(distinct) < len(contexts):
            place = {context: row for row, context in enumerate(distinct)}
            self.keep(torch.tensor([place[context] for context in contexts], device=device))
            self.rows = torch.arange(len(contexts), device=device)

    def keep(self, kept: Int[Tensor, " r"]) -> None:
        """Keep these places of the batch, in this order."""
        self.rows, self._mask, self._length = self.rows[kept], self._mask[kept], self._length[kept]
        self.logits = self.logits[kept]
        self._cache.batch_select_indices(kept)

    def advance(self, module: nn.Module, tokens: Int[Tensor, " b"]) -> None:
        """Read one token per place."""
        self._width += 1
        # A finished row that stays in the batch may be read past the model's last position.
        positions = self._length.clamp(max=self._last_position)
        output: Any = module(
            input_ids=tokens.unsqueeze(1),
            attention_mask=self._mask[:, : self._width],
            position_ids=positions.unsqueeze(1),
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=1,
        )
        self._length = self._length + 1
        self.logits = output.logits[:, -1]


def positions_of(module: nn.Module) -> int:
    """Positions of the model, in tokens."""
    config: Any = module.config
    return int(config.get_text_config().max_position_embeddings)


def vocabulary_of(module: nn.Module) -> int:
    """Token ids the model can read and write."""
    config: Any = module.config
    return int(config.get_text_config().vocab_size)


def _left_padded(
    contexts: Sequence[tuple[int, ...]], *, width: int, pad: int
) -> tuple[Int[Tensor, "b t"], Int[Tensor, "b t"]]:
    """The contexts at the right edge of a table, and 1 where it holds one of their tokens."""
    ids = torch.full((len(contexts), width), pad)
    mask = torch.zeros((len(contexts), width), dtype=torch.long)
    for row, context in enumerate(contexts):
        ids[row, width - len(context) :] = torch.tensor(context)
        mask[row, width - len(context) :] = 1
    return ids, mask
