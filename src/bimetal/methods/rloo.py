"""RLOO: REINFORCE over whole responses, each compared with the others of its group (arXiv:2402.14740).

Differences from the paper:
1. The paper takes one update per roll-out batch and has no ratio. Past the first update the default holds the
   whole response's ratio in PPO's clip, as trl does; ``ratio = "none"`` is the paper's own form. At the first
   update all three have one gradient.
2. The divergence inside the reward is that of the sampling engine from the reference (log mu - log p_ref), so
   it needs no pass of the old policy; the two are the same policy up to the engine's arithmetic.
3. ``beta`` is 0 by default, as reward-verified recipes run it; the paper's runs use 0.03.
"""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from bimetal.core.types import Origin, Signals, Trace
from bimetal.objectives.advantage import leave_one_out
from bimetal.objectives.aggregate import sequence_mean, sequence_sum
from bimetal.objectives.credit import by_group, sampled_divergence
from bimetal.objectives.gate import clip
from bimetal.objectives.loss import PolicyGradient, Reinforce
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import free
from bimetal.objectives.ratio import over_old, sequence_product_over_old

PAPER = "arXiv:2402.14740, section 3.3"
EQUATION = (
    "L = -(1/N) sum_i min(rho_i A_i, clip(rho_i, 1-low, 1+high) A_i),  rho_i = prod_t p/p_old,  "
    "A_i = R_i - mean of the others' R,  R_i = reward - beta sum_t (log mu - log p_ref)"
)
EVIDENCE = (Evidence.CODE, Evidence.PAPER)


class Config(Options):
    """Options of this method."""

    ratio: Literal["sequence", "token", "none"] = "sequence"
    """What corrects later updates: the response's ratio (trl), each token's (verl), or nothing (paper)."""
    clip_low: float = Field(0.2, ge=0, lt=1)
    """The ratio may fall by this before a negative advantage stops teaching; a share (trl: 0.2)."""
    clip_high: float = Field(0.2, ge=0)
    """The ratio may rise by this before a positive advantage stops teaching; a share (trl: 0.2)."""
    beta: float = Field(0.0, ge=0)
    """What a nat of divergence from the initial policy costs, in units of reward; 0 leaves it out."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    gate = clip(options.clip_low, options.clip_high)
    # The mean over a response of one number that all its tokens carry is that number: once per response.
    term = {
        "sequence": Term("rl", PolicyGradient(sequence_product_over_old, gate), sequence_mean()),
        "token": Term("rl", PolicyGradient(over_old, gate), sequence_sum()),
        "none": Term("rl", Reinforce(), sequence_sum()),
    }[options.ratio]

    def reward(trace: Trace, signals: Signals) -> float:
        return trace.reward - options.beta * math.fsum(sampled_divergence(trace, signals))

    needs = {Need.REWARD, *((Need.REFERENCE, Need.SAMPLER) if options.beta > 0 else ())}
    return Method(
        mix=free,
        credit=by_group(
            leave_one_out, {"rl": {Origin.POLICY: 1.0}}, reward=reward if options.beta > 0 else None
        ),
        terms=(term,),
        needs=frozenset(needs),
    )
