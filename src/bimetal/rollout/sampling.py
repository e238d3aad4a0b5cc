"""Drawing one token per sequence from a batch of logits, with noise that belongs to the sequence.

    scaled   = logits / temperature                  (temperature 1 for greedy)
    logprobs = log_softmax(scaled)                   float32, untruncated
    token    = the first v with  sum over w <= v of p(w)  >  u,  or argmax for greedy

The uniform u comes with the request, so a token depends on its own logits and its own stream only.
Probabilities are counted in units of 2^-52: sums of integers are exact, the same on every device and
in every order, and no rounding at the end of the distribution can draw a token of probability 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bimetal.core.streams import uniforms
from bimetal.rollout.backend import Request

UNITS = 2.0**52
"""Units that probability 1 is counted in; one below 2^-53 (36.7 nats) is never drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How the tokens of each sequence of a batch are drawn, as tensors.

    ``temperature`` is 1 where ``greedy``; ``top_k`` is the vocabulary's size and ``top_p`` 1 where
    nothing is cut off. ``is_truncated`` says whether any sequence is truncated, so that training
    never pays for a sort. ``noise`` holds the uniforms, one row per sequence.
    """

    temperature: Float[Tensor, "b 1"]
    greedy: Bool[Tensor, " b"]
    top_k: Int[Tensor, "b 1"]
    top_p: Float[Tensor, "b 1"]
    noise: Float[Tensor, "b t"]
    is_truncated: bool

    def at(self, rows: Int[Tensor, " r"]) -> Rules:
        """The rules of these rows."""
        return Rules(
            temperature=self.temperature[rows],
            greedy=self.greedy[rows],
            top_k=self.top_k[rows],
            top_p=self.top_p[rows],
            noise=self.noise[rows],
            is_truncated=self.is_truncated,
        )


def rules_of(requests: Sequence[Request], *, vocabulary: int, device: torch.device) -> Rules:
    """The rules of these requests; uniform number n of a request's stream belongs to its token n."""
    settings = [request.sampling for request in requests]
    longest = max(s.max_tokens for s in settings)
    noise = np.zeros((len(requests), longest))
    for row, request in enumerate(requests):
        count = request.sampling.max_tokens
        noise[row, :count] = uniforms(request.key, count)
    wide = _wide(device)

    def column(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device).unsqueeze(1)

    return Rules(
        temperature=column([s.temperature or 1.0 for s in settings]),
        greedy=torch.tensor([s.temperature == 0.0 for s in settings], device=device),
        top_k=torch.tensor([[s.top_k or vocabulary] for s in settings], device=device),
        top_p=column([s.top_p for s in settings]).to(wide),
        noise=torch.from_numpy(noise).to(device, wide),
        is_truncated=any(s.top_k or s.top_p < 1.0 for s in settings),
    )


def draw(
    logits: Float[Tensor, "b v"], rules: Rules, *, step: int
) -> tuple[Int[Tensor, " b"], Float[Tensor, " b"]]:
    """One token per sequence, and its log-probability in nats, temperature-scaled and untruncated.

    Args:
        logits: Of the position to be filled, any float type.
        rules: One row per sequence.
        step: The number of the token in its answer, counted from 0.
    """
    logprobs = torch.log_softmax(logits.float() / rules.temperature, dim=-1)
    units = _units(logprobs.to(rules.noise.dtype).exp())
    if rules.is_truncated:
        units = _truncated(units, rules)
    drawn = _inverse_cdf(units, rules.noise[:, step])
    tokens = torch.where(rules.greedy, logprobs.argmax(dim=-1), drawn)
    return tokens, logprobs.gather(1, tokens.unsqueeze(1)).squeeze(1)


def inverse_cdf(probabilities: Float[Tensor, "b v"], noise: Float[Tensor, " b"]) -> Int[Tensor, " b"]:
    """The first token whose cumulative probability exceeds the noise; never one of probability 0.

    The probabilities need not add up to 1: noise is scaled by their sum.

    >>> inverse_cdf(torch.tensor([[0.5, 0.0, 0.5]]), torch.tensor([0.5]))
    tensor([2])
    """
    return _inverse_cdf(_units(probabilities), noise)


def _inverse_cdf(units: Int[Tensor, "b v"], noise: Float[Tensor, " b"]) -> Int[Tensor, " b"]:
    cumulative = units.cumsum(dim=-1)
    total = cumulative[:, -1:]
    # Below the total, so that the first sum above it belongs to a token that has units.
    threshold = torch.minimum((noise.unsqueeze(1) * total).floor().long(), total - 1)
    tokens = torch.searchsorted(cumulative, threshold, right=True)
    # Where a probability is NaN the search runs off the end; the caller sees a NaN log-probability.
    return tokens.clamp(max=units.shape[1] - 1).squeeze(1)


def _units(probabilities: Float[Tensor, "b v"]) -> Int[Tensor, "b v"]:
    return (probabilities * UNITS).round().long()


def _truncated(units: Int[Tensor, "b v"], rules: Rules) -> Int[Tensor, "b v"]:
    """The units with zeros outside the ``top_k`` likeliest tokens and outside the nucleus.

    The nucleus is the smallest set of likeliest tokens whose probability reaches ``top_p``; the
    likeliest token is always in it. Equal probabilities are ordered by token id.
    """
    ordered, order = units.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(units.shape[1], device=units.device)
    before = ordered.cumsum(dim=-1) - ordered
    nucleus = before < rules.top_p * ordered.sum(dim=-1, keepdim=True)
    kept = (rank < rules.top_k) & (nucleus | (rank == 0))
    return torch.zeros_like(units).scatter(1, order, torch.where(kept, ordered, 0))


def _wide(device: torch.device) -> torch.dtype:
    """The widest float type of the device: Apple's has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64
