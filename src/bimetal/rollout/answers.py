"""What a wave of sequences has written so far, and why each of them ended."""

from __future__ import annotations

from collections.abc import Sequence, Set

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bimetal.core.errors import RolloutError
from bimetal.core.types import Finish
from bimetal.rollout.backend import Output, Request
from bimetal.rollout.stopping import Decode, StopStrings

_RUNNING, _STOP, _LENGTH, _CANCELLED = range(4)
_FINISH = {_STOP: Finish.STOP, _LENGTH: Finish.LENGTH, _CANCELLED: Finish.CANCELLED}


class Answers:
    """Tokens and log-probabilities by request and step, kept as tensors until all have ended.

    Args:
        requests: One row each.
        decode: Ids to text, for stop strings.
        device: Where tokens arrive.
        vocabulary: Number of token ids the model can write.
    """

    def __init__(
        self, requests: Sequence[Request], *, decode: Decode, device: torch.device, vocabulary: int
    ) -> None:
        self._requests = requests
        limits = [request.sampling.max_tokens for request in requests]
        self._limits = torch.tensor(limits, device=device)
        self._tokens = torch.zeros((len(requests), max(limits)), dtype=torch.long, device=device)
        self._logprobs = torch.zeros((len(requests), max(limits)), device=device)
        self._counts = torch.zeros(len(requests), dtype=torch.long, device=device)
        self._finish = torch.full((len(requests),), _RUNNING, device=device)
        self._row_of = {request.id: row for row, request in enumerate(requests)}
        self._watchers = {
            row: StopStrings(request.sampling.stop_strings, decode=decode)
            for row, request in enumerate(requests)
            if request.sampling.stop_strings
        }
        stop_sets = list(dict.fromkeys(request.sampling.stop_token_ids for request in requests))
        self._stop_set = torch.tensor(
            [stop_sets.index(request.sampling.stop_token_ids) for request in requests], device=device
        )
        self._stops = torch.zeros((len(stop_sets), vocabulary), dtype=torch.bool)
        for number, ids in enumerate(stop_sets):
            self._stops[number, [i for i in ids if 0 <= i < vocabulary]] = True
        self._stops = self._stops.to(device)

    def cancel(self, request_ids: Set[str]) -> None:
        """End these requests with what they have."""
        for row in (self._row_of[i] for i in sorted(request_ids) if i in self._row_of):
            if self._finish[row] == _RUNNING:
                self._finish[row] = _CANCELLED

    def take(
        self, rows: Int[Tensor, " b"], *, tokens: Int[Tensor, " b"], logprobs: Float[Tensor, " b"], step: int
    ) -> Bool[Tensor, " b"]:
        """Add one token to each of these rows that still runs, and say which of them run on.

        Args:
            rows: The request each place of the batch belongs to.
            tokens: One per row.
            logprobs: Nats, one per row.
            step: The number of the token in its answer, counted from 0.
        """
        self._tokens[rows, step] = tokens
        self._logprobs[rows, step] = logprobs
        before = self._finish[rows]
        stopped = self._stops[self._stop_set[rows], tokens]
        if self._watchers:
            stopped = stopped | self._stopped_by_strings(rows, tokens)
        ended = torch.where(step + 1 >= self._limits[rows], _LENGTH, _RUNNING)
        ended = torch.where(stopped, _STOP, ended)
        ran = before == _RUNNING
        after = torch.where(ran, ended, before)
        self._finish[rows] = after
        self._counts[rows] += ran.long()
        return after == _RUNNING

    def outputs(self, *, count: int, version: int) -> list[Output]:
        """The first ``count`` requests' outputs, in order.

        Raises:
            RolloutError: A log-probability is not finite; names the request.
        """
        sizes, codes = self._counts.tolist(), self._finish.tolist()
        tokens, logprobs = self._tokens.tolist(), self._logprobs.tolist()
        written = torch.arange(self._tokens.shape[1], device=self._counts.device) < self._counts.unsqueeze(1)
        broken = (written & ~self._logprobs.isfinite()).any(dim=1)[:count]
        if broken.any():
            names = [self._requests[row].id for row in broken.nonzero().squeeze(1).tolist()]
            raise RolloutError(
                f"the model's logits are not finite; found for {len(names)} requests, first {names[0]}; "
                "look at the weights: the last update may have diverged"
            )
        return [
            Output(
                request_id=self._requests[row].id,
                token_ids=tuple(tokens[row][: sizes[row]]),
                logprobs=tuple(logprobs[row][: sizes[row]]),
                finish=_FINISH[codes[row]],
                version=version,
            )
            for row in range(count)
        ]

    def _stopped_by_strings(self, rows: Int[Tensor, " b"], tokens: Int[Tensor, " b"]) -> Bool[Tensor, " b"]:
        """Which rows' text now contains one of their stop strings: the only per-token work in Python."""
        stopped = torch.zeros(len(rows), dtype=torch.bool)
        pairs = zip(rows.tolist(), tokens.tolist(), strict=True)
        for place, (row, token) in enumerate(pairs):
            watcher = self._watchers.get(row)
            if watcher is not None and watcher.completed_by(token):
                stopped[place] = True
        return stopped.to(rows.device)
