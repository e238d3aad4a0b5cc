"""REINFORCE++: PPO's clip with returns whitened over all tokens of the batch, no critic (arXiv:2501.03262).

Differences from the paper:
1. The divergence inside the reward is that of the sampling engine from the reference (log mu - log p_ref), so
   it needs no pass of the old policy.
2. Whitening divides by the sample deviation (n - 1), as verl does; OpenRLHF divides by the population's.
3. With ``baseline = "group"`` a known trace alone in its group compares with nothing: it stays a member, has
   advantage 0 and takes no part in the whitening (design contract C5).
4. Tokens that the policy did not write are skipped: the return is carried across them, undiscounted, and they
   are no part of the whitening.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bimetal.core.types import Origin, Signals, Trace
from bimetal.objectives.aggregate import token_mean
from bimetal.objectives.credit import sampled_divergence
from bimetal.objectives.gate import clip
from bimetal.objectives.loss import PolicyGradient
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import free
from bimetal.objectives.ratio import over_old
from bimetal.objectives.returns import centered_verdicts, verdicts, whitened_returns

PAPER = "arXiv:2501.03262, section 3"
EQUATION = (
    "L = -mean_t min(rho A, clip(rho, 1-low, 1+high) A),  A = (G - mean G) / std G over the batch's tokens,  "
    "G_t = sum_{k>=t} gamma^(k-t) r_k,  r_t = -beta (log mu - log p_ref), at the end + R (- the group's mean)"
)
EVIDENCE = (Evidence.CODE,)

VARIANTS = {"reinforce_pp_baseline": {"baseline": "group"}}


class Config(Options):
    """Options of this method."""

    baseline: Literal["none", "group"] = "none"
    """What is taken from the reward before whitening: nothing, or the group's mean (REINFORCE++-baseline)."""
    discount: float = Field(1.0, ge=0, le=1)
    """gamma: what the next token's return counts (OpenRLHF: 1)."""
    beta: float = Field(0.0, ge=0)
    """Coefficient of each token's divergence from the initial policy inside the reward; 0 leaves it out."""
    clip_low: float = Field(0.2, ge=0, lt=1)
    """The ratio may fall by this before a negative advantage stops teaching; a share (OpenRLHF: 0.2)."""
    clip_high: float = Field(0.2, ge=0)
    """The ratio may rise by this before a positive advantage stops teaching; a share (ProRLv2: 0.27)."""
    epsilon: float = Field(1e-8, gt=0)
    """Added to the deviation of the batch's returns (verl, OpenRLHF: 1e-8)."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    needs = {Need.REWARD, *((Need.REFERENCE, Need.SAMPLER) if options.beta > 0 else ())}
    surrogate = PolicyGradient(over_old, clip(options.clip_low, options.clip_high))

    def spending(trace: Trace, signals: Signals) -> list[float]:
        return [options.beta * nats for nats in sampled_divergence(trace, signals)]

    credit = whitened_returns(
        {"rl": {Origin.POLICY: 1.0}},
        ends=centered_verdicts if options.baseline == "group" else verdicts,
        spending=spending if options.beta > 0 else None,
        discount=options.discount,
        epsilon=options.epsilon,
    )
    return Method(
        mix=free, credit=credit, terms=(Term("rl", surrogate, token_mean()),), needs=frozenset(needs)
    )
