"""CISPO: the importance weight is capped and detached, so that no token stops teaching (arXiv:2506.13585).

Differences from the paper:
1. The paper does not publish its upper bound. ``cap`` bounds the ratio itself, by 5 unless set, as in trl's
   settings for ScaleRL (arXiv:2510.13786); verl's option means 1 + its value.
2. A group whose rewards are all equal has advantage exactly 0; ``epsilon`` keeps the quotient finite.
3. Dynamic sampling and the length penalty that the paper runs with are not part of this file.
"""

from __future__ import annotations

from pydantic import Field

from bimetal.core.types import Origin
from bimetal.objectives.advantage import standardized
from bimetal.objectives.aggregate import token_mean
from bimetal.objectives.correction import capped
from bimetal.objectives.credit import by_group
from bimetal.objectives.loss import Reinforce
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import free
from bimetal.objectives.ratio import over_old

PAPER = "arXiv:2506.13585, section 3.1"
EQUATION = "L = -mean_t sg[clip(p/p_old, floor, cap)] A log p,  A = (R - mean R) / std R in the group"
EVIDENCE = (Evidence.CODE, Evidence.PAPER)


class Config(Options):
    """Options of this method."""

    cap: float = Field(5.0, ge=1)
    """The largest weight of a token; a ratio (trl: 5)."""
    floor: float = Field(0.0, ge=0, le=1)
    """The smallest weight of a token; a ratio (paper: no lower bound)."""
    epsilon: float = Field(1e-6, gt=0)
    """Added to the standard deviation of the group's rewards (verl: 1e-6)."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    weight = capped(over_old, low=options.floor, high=options.cap)
    return Method(
        mix=free,
        credit=by_group(standardized(options.epsilon), {"rl": {Origin.POLICY: 1.0}}),
        terms=(Term("rl", Reinforce(weight), token_mean()),),
        needs=frozenset({Need.REWARD}),
    )
