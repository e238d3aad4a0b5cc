"""RRHF: rank candidates' likelihoods as their rewards are ranked, and imitate the best (arXiv:2304.05302).

Differences from the paper:
1. Candidates are the demonstrations of a prompt and the policy's own responses; the paper's come from several
   models, fixed. The verifier ranks them.
2. The likelihood of the best is a sum over its tokens, as in the paper; the code divides it by the padded
   length of the batch. Both parts are averaged over the step's prompts; the code has one per batch.
3. With few values of reward there are many ties: they make no pair, and the first of the best is imitated.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from bimetal.core.batch import Batch, PolicyOutput
from bimetal.core.types import Credit, Group, Origin, Trace
from bimetal.objectives.aggregate import prompt_sum
from bimetal.objectives.choice import best
from bimetal.objectives.credit import lifted, members, nothing
from bimetal.objectives.loss import Coupled, CrossEntropy, only
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import every_demonstration
from bimetal.objectives.weight import Weight

PAPER = "arXiv:2304.05302"
EQUATION = (
    "L = (1/G) sum over prompts [weight sum_{R_i < R_j} max(0, s_i - s_j) - sum_t log p_best,t],  "
    "s_i = sum_t log p_i,t / T_i^power"
)
EVIDENCE = (Evidence.CODE,)


class Config(Options):
    """Options of this method."""

    weight: float = Field(1.0, gt=0)
    """Coefficient of the ranking, as in the authors' scripts; the default of their code is 100."""
    power: float = Field(1.0, ge=0)
    """alpha: a likelihood is divided by this power of its length, as in the authors' scripts."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    return Method(
        mix=every_demonstration,
        credit=lifted(ranked),
        terms=(
            Term(
                "ranking", Coupled(out_of_order(options.power)), prompt_sum(), options.weight, pool="prompt"
            ),
            Term("imitation", CrossEntropy(), prompt_sum(), pool="prompt"),
        ),
        needs=frozenset({Need.REWARD, Need.WHOLE_GROUPS}),
    )


def ranked(group: Group) -> tuple[Credit, ...]:
    """The reward as advantage of every known candidate; the best is imitated, too."""
    everyone, first = {Origin.POLICY: 1.0, Origin.DEMONSTRATION: 1.0}, best(group)

    def credit_of(trace: Trace) -> Credit:
        terms = ("ranking", "imitation") if trace in first else ("ranking",)
        weights = members(trace, dict.fromkeys(terms, everyone))
        return Credit(trace_id=trace.id, advantage=trace.reward, weights=weights)

    return tuple(credit_of(t) if t.is_known else nothing(t) for t in group.traces)


def out_of_order(power: float) -> Weight:
    """The hinges max(0, s_i - s_j) of pairs with R_i < R_j, as a detached coefficient on every token.

    A candidate counts +1 for each violated pair in which it is the worse one and -1 for each in which it is
    the better one; that sum over T^power, times log p, adds up to the group's hinges. Needs whole groups.
    """

    def coefficient(batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
        logprobs, present = only(members, policy.logprobs.detach()), members.any(dim=1)
        length = members.sum(dim=1).clamp(min=1).to(logprobs.dtype) ** power
        score = logprobs.sum(dim=1) / length
        reward = torch.where(members, batch.advantages, -math.inf).amax(dim=1)
        together = (batch.group[:, None] == batch.group[None, :]) & present[:, None] & present[None, :]
        violated = together & (reward[:, None] < reward[None, :]) & (score[:, None] > score[None, :])
        each = (violated.sum(dim=1) - violated.sum(dim=0)) / length
        return each.unsqueeze(1).expand_as(logprobs)

    return coefficient
