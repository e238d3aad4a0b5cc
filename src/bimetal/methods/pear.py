"""PEAR: demonstrations weighted by how likely the policy is to go on as their author did (arXiv:2602.01058).

Differences from the paper:
1. None in the formula, which is known from the paper's text and a re-implementation; no code of the authors
   was found.
2. The logarithm of a weight, discount included, is held in [-10, 5]; the re-implementation holds the weight
   itself in [0.1, 10].
3. Traces that are to be unlearned (an option of the paper) are left out.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from bimetal.core.batch import Batch, PolicyOutput
from bimetal.core.types import Origin
from bimetal.objectives.aggregate import token_mean
from bimetal.objectives.credit import imitation
from bimetal.objectives.loss import CrossEntropy
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import demonstration_only
from bimetal.objectives.ratio import required
from bimetal.objectives.weight import Weight

PAPER = "arXiv:2602.01058"
EQUATION = (
    "L = -(1/N) sum_t sg[G_t] log p_t,  G_t = gamma^(T-t) exp(sum_{j>t} clip(log p_j - log p_author,j))"
)
EVIDENCE = (Evidence.TEXT, Evidence.SECONDARY)

VARIANTS = {"pear_block": {"level": "block"}, "pear_sequence": {"level": "sequence"}}


class Config(Options):
    """Options of this method."""

    level: Literal["token", "block", "sequence"] = "token"
    """What a weight looks at: the tokens after this one, the blocks after its own, or the whole sequence."""
    block: int = Field(4, ge=1)
    """Tokens of a block."""
    discount: float = Field(0.999, gt=0, le=1)
    """gamma: what each token that follows a token, or a block, multiplies its weight by; the paper's value. A
    sequence is not discounted."""
    low: float = Field(-0.08, le=0)
    """What a token's log-ratio is raised to, in nats, before it is added; the paper's value."""
    high: float = Field(0.3, ge=0)
    """What a token's log-ratio is lowered to, in nats, before it is added; the paper's value."""
    floor: float = Field(-10.0, le=0)
    """What the logarithm of a weight does not fall below, in nats."""
    ceiling: float = Field(5.0, ge=0)
    """What the logarithm of a weight does not exceed, in nats."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    return Method(
        mix=demonstration_only,
        credit=imitation({"imitation": {Origin.DEMONSTRATION: 1.0}}),
        terms=(Term("imitation", CrossEntropy(future_ratio(options)), token_mean()),),
        needs=frozenset({Need.DEMONSTRATIONS, Need.AUTHOR}),
    )


def future_ratio(options: Config) -> Weight:
    """The discounted product of p / p_author over what follows, detached."""

    def weight(batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]) -> Float[Tensor, "b t"]:
        author = required(batch.author_logprobs, "author_logprobs")
        gaps = (policy.logprobs.detach() - author).clamp(options.low, options.high)
        gaps = torch.where(members, gaps, torch.zeros_like(gaps))
        total, length = gaps.sum(dim=1, keepdim=True), members.sum(dim=1, keepdim=True)
        if options.level == "sequence":
            return torch.exp(total.clamp(options.floor, options.ceiling)).expand_as(gaps)
        size = options.block if options.level == "block" else 1
        # The number of each member's block, from 0; what is no member adds nothing, wherever it is put.
        number = ((members.cumsum(dim=1) - 1) // size).clamp(min=0)
        sums = torch.zeros_like(gaps).scatter_add(1, number, gaps)
        after = (total - sums.cumsum(dim=1)).gather(1, number)
        # A whole number times a float is float32, whatever the precision of the rest.
        following = (length - torch.minimum((number + 1) * size, length)).to(gaps.dtype)
        discounted = after + math.log(options.discount) * following
        return torch.exp(discounted.clamp(options.floor, options.ceiling))

    return weight
