"""The only place that adds terms or divides by a count.

    L = sum over terms k of  c_k(progress) * sum over tokens [ share_k * loss_k ]
    share_k = w_k * scale_k(members of k) / count_k(members of k's pool)

Shares are computed once, from the masks and weights of the whole optimizer step, before its first
forward pass, and then cut with the batch. So a micro-batch contributes its shares and shares add up,
whatever the cut (design contract C1).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from bimetal.core.batch import Batch, PolicyOutput
from bimetal.objectives.aggregate import Aggregate
from bimetal.objectives.controller import Coefficient
from bimetal.objectives.loss import Loss, only


@dataclass(frozen=True, slots=True)
class Term:
    """One named summand of an objective.

    ``pool`` names the terms that share one denominator; a term without one has its own, so adding
    demonstrations never softens the term on rollouts. ``role`` is whose model the loss reads.
    """

    name: str
    loss: Loss
    aggregate: Aggregate
    coefficient: Coefficient = 1.0
    pool: str = ""
    role: str = "policy"


Shares = Mapping[str, Float[Tensor, "b t"]]
"""term -> how much each token counts, denominator included."""


def shares(terms: Collection[Term], batch: Batch) -> dict[str, Float[Tensor, "b t"]]:
    """How much every token of the whole optimizer step counts in every term, in float64.

    A term without members has shares of exactly 0. Members of any term must lie inside ``batch.mask``.

    Raises:
        ValueError: Terms of one pool disagree about what they count.
    """
    result: dict[str, Float[Tensor, "b t"]] = {}
    for term in terms:
        pool = [
            other for other in terms if other.name == term.name or (term.pool and other.pool == term.pool)
        ]
        if len({other.aggregate.name for other in pool}) > 1:
            raise ValueError(
                f"terms of pool {term.pool!r} need one aggregate; got {[o.aggregate.name for o in pool]}"
            )
        members = batch.members[term.name]
        pooled = torch.stack([batch.members[other.name] for other in pool]).any(dim=0)
        weights = torch.stack([_masked(batch, other.name) for other in pool]).sum(dim=0)
        count = term.aggregate.count(pooled, weights, batch.group)
        scale = term.aggregate.scale(members, batch.group)
        result[term.name] = (
            _masked(batch, term.name) * scale / torch.where(count > 0, count, torch.ones_like(count))
        )
    return result


def evaluate(
    terms: Collection[Term],
    batch: Batch,
    policy: PolicyOutput,
    *,
    step_shares: Shares,
    coefficients: Mapping[str, float],
) -> tuple[Float[Tensor, ""], dict[str, Float[Tensor, ""]]]:
    """This micro-batch's part of the loss, and of each term before its coefficient.

    A term without members contributes exactly 0 and keeps a gradient path, so every rank runs the same
    collectives.
    """
    anchor = policy.logprobs if policy.values is None else policy.values
    total = only(torch.zeros_like(batch.mask), anchor).sum()
    parts: dict[str, Float[Tensor, ""]] = {}
    for term in terms:
        members = batch.members[term.name]
        loss = term.loss(batch, policy, members)
        share = step_shares[term.name].to(loss.dtype)
        parts[term.name] = (share * loss).sum()
        total = total + coefficients[term.name] * parts[term.name]
    return total, parts


def _masked(batch: Batch, term: str) -> Float[Tensor, "b t"]:
    weights = batch.weights[term].to(torch.float64)
    return torch.where(batch.members[term], weights, torch.zeros_like(weights))
