"""p / q: the policy's probability of a token over a denominator; the function is named after q."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bimetal.core.batch import Batch, PolicyOutput

Ratio = Callable[[Batch, PolicyOutput, Bool[Tensor, "b t"]], Float[Tensor, "b t"]]

MAX_LOG_RATIO = 20.0
"""Log-ratios are clamped to +-20 before exp: float32 overflows above 88, and a clip's gradient would become
0 * inf."""


def over_old(batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
    """With q = p_old: importance sampling (PPO, arXiv:1707.06347, section 3).

    Raises:
        ValueError: The batch holds no old log-probabilities.
    """
    return _exp_difference(policy.logprobs, required(batch.old_logprobs, "old_logprobs"), members)


def over_sampler(batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
    """With q = mu, the probability under the engine that wrote the token.

    Raises:
        ValueError: The batch holds no sampler log-probabilities.
    """
    return _exp_difference(policy.logprobs, required(batch.sampler_logprobs, "sampler_logprobs"), members)


def over_one(batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
    """With q = 1: the probability itself, where a text's author is unknown (LUFFY, arXiv:2504.14945)."""
    del batch
    return torch.exp(torch.where(members, policy.logprobs, torch.zeros_like(policy.logprobs)))


def over_self(batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
    """With q = p, detached: always 1, with the gradient of the log-probability."""
    del batch
    return _exp_difference(policy.logprobs, policy.logprobs.detach(), members)


def sequence_over_old(
    batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
) -> Float[Tensor, "b t"]:
    """The geometric mean of a sequence's token ratios, at each member (GSPO, arXiv:2507.18071, eq. 7).

    Raises:
        ValueError: The batch holds no old log-probabilities.
    """
    log_ratio = _log_ratio_over_old(batch, policy, members)
    mean = log_ratio.sum(dim=-1, keepdim=True) / members.sum(dim=-1, keepdim=True).clamp(min=1)
    return _exp_of_row(mean, members)


def sequence_over_old_by_token(
    batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
) -> Float[Tensor, "b t"]:
    """As ``sequence_over_old``, with the gradient of the token's own probability (GSPO, section 4.3).

    sg[s_i] p / sg[p]: the value is the sequence's, so that advantages may differ by token.

    Raises:
        ValueError: The batch holds no old log-probabilities.
    """
    return sequence_over_old(batch, policy, members).detach() * over_self(batch, policy, members)


def sequence_product_over_old(
    batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
) -> Float[Tensor, "b t"]:
    """The product of a sequence's token ratios, at each member: the whole response is one action.

    Raises:
        ValueError: The batch holds no old log-probabilities.
    """
    total = _log_ratio_over_old(batch, policy, members).sum(dim=-1, keepdim=True)
    return _exp_of_row(total, members)


def required(field: Float[Tensor, "b t"] | None, name: str) -> Float[Tensor, "b t"]:
    """The field, or an error that says the method forgot to declare its need.

    Raises:
        ValueError: The field is ``None``.
    """
    if field is None:
        raise ValueError(f"the batch holds no {name}; declare the need in the method's `needs`")
    return field


def _exp_difference(
    logprobs: Float[Tensor, "b t"], others: Float[Tensor, "b t"], members: Bool[Tensor, "b t"]
) -> Float[Tensor, "b t"]:
    # The input of exp is masked, not its output: a masked infinity would come back as NaN in backward.
    log_ratio = torch.where(members, logprobs - others, torch.zeros_like(logprobs))
    return torch.exp(log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))


def _log_ratio_over_old(
    batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
) -> Float[Tensor, "b t"]:
    old = required(batch.old_logprobs, "old_logprobs")
    return torch.where(members, policy.logprobs - old, torch.zeros_like(old))


def _exp_of_row(log_ratio: Float[Tensor, "b 1"], members: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
    spread = torch.where(members, log_ratio, torch.zeros_like(log_ratio))
    return torch.exp(spread.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO))
