"""GSPO: the ratio and its clip belong to the sequence, as the reward does (arXiv:2507.18071).

Differences from the paper:
1. None in the formula. A group whose rewards are all equal has advantage exactly 0; ``epsilon`` keeps the
   quotient finite.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bimetal.core.types import Origin
from bimetal.objectives.advantage import standardized
from bimetal.objectives.aggregate import sequence_mean
from bimetal.objectives.credit import by_group
from bimetal.objectives.gate import clip
from bimetal.objectives.loss import PolicyGradient
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import free
from bimetal.objectives.ratio import sequence_over_old, sequence_over_old_by_token

PAPER = "arXiv:2507.18071, section 4"
EQUATION = (
    "L = -(1/N) sum_i min(s_i A_i, clip(s_i, 1-low, 1+high) A_i),  s_i = exp((1/T_i) sum_t log(p/p_old)); "
    "by token s_i,t = sg[s_i] p / sg[p]"
)
EVIDENCE = (Evidence.CODE,)

VARIANTS = {"gspo_token": {"form": "token"}}


class Config(Options):
    """Options of this method."""

    form: Literal["sequence", "token"] = "sequence"
    """Whether a token's gradient flows through the whole sequence's ratio or only its own probability; one
    gradient as long as the advantage is the sequence's, as here."""
    clip_low: float = Field(3e-4, ge=0, lt=1)
    """The ratio may fall by this before a negative advantage stops teaching; a share (paper: 3e-4)."""
    clip_high: float = Field(4e-4, ge=0)
    """The ratio may rise by this before a positive advantage stops teaching; a share (paper: 4e-4)."""
    epsilon: float = Field(1e-6, gt=0)
    """Added to the standard deviation of the group's rewards (verl: 1e-6)."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    ratio = sequence_over_old if options.form == "sequence" else sequence_over_old_by_token
    surrogate = PolicyGradient(ratio, clip(options.clip_low, options.clip_high))
    return Method(
        mix=free,
        credit=by_group(standardized(options.epsilon), {"rl": {Origin.POLICY: 1.0}}),
        terms=(Term("rl", surrogate, sequence_mean()),),
        needs=frozenset({Need.REWARD}),
    )
