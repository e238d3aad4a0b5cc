"""GRPO: clipped policy gradient with advantages standardized inside the group (arXiv:2402.03300).

Differences from the paper:
1. The divergence from the reference is a term of its own with coefficient beta, 0 by default, as most
   open recipes run it; the paper uses 0.04 with the k3 estimator.
2. A group whose rewards are all equal has advantage exactly 0.
3. ``epsilon`` keeps the quotient finite; the paper has none.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bimetal.core.types import Origin
from bimetal.objectives.advantage import standardized
from bimetal.objectives.aggregate import sequence_mean
from bimetal.objectives.correction import CorrectionName, correction_named
from bimetal.objectives.credit import by_group
from bimetal.objectives.gate import clip
from bimetal.objectives.loss import Divergence, PolicyGradient
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import free
from bimetal.objectives.ratio import over_old

PAPER = "arXiv:2402.03300, equation 3"
EQUATION = "L = -(1/N) sum_i (1/T_i) sum_t [min(rho A, clip(rho, 1-low, 1+high) A) - beta k3]"
EVIDENCE = (Evidence.CODE, Evidence.PAPER)


class Config(Options):
    """Options of this method."""

    clip_low: float = Field(0.2, ge=0, lt=1)
    """The ratio may fall by this before a negative advantage stops teaching; a share."""
    clip_high: float = Field(0.2, ge=0)
    """The ratio may rise by this before a positive advantage stops teaching; a share."""
    epsilon: float = Field(1e-6, gt=0)
    """Added to the standard deviation of the group's rewards."""
    beta: float = Field(0.0, ge=0)
    """Coefficient of the divergence from the initial policy; 0 leaves the term out."""
    estimator: Literal["k1", "k2", "k3", "k3_plus", "weighted_k3"] = "k3"
    """How the divergence is estimated from the sampled token; as a loss, k2, k3_plus and weighted_k3 have the
    gradient of KL(policy || reference), k3 that of KL(reference || policy), k1 none on average."""
    correction: CorrectionName = "none"
    """What corrects for rollouts of another engine or older weights: nothing; p_old / mu as it is (decoupled
    PPO); held at ``correction_high``, by token or sequence (truncated importance sampling); or 0 outside the
    band (IcePop)."""
    correction_low: float = Field(0.5, ge=0, le=1)
    """The least p_old / mu that ``banded`` keeps; a ratio (NeMo-RL: 0.5)."""
    correction_high: float = Field(2.0, ge=1)
    """The largest p_old / mu; a ratio (verl: 2)."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    low, high = options.correction_low, options.correction_high
    correction = correction_named(options.correction, low=low, high=high)
    surrogate = PolicyGradient(over_old, clip(options.clip_low, options.clip_high), correction)
    terms = [Term("rl", surrogate, sequence_mean())]
    needs = {Need.REWARD, *(() if options.correction == "none" else (Need.SAMPLER,))}
    if options.beta > 0:
        terms.append(Term("divergence", Divergence(options.estimator), sequence_mean(), options.beta))
        needs.add(Need.REFERENCE)
    table = {term.name: {Origin.POLICY: 1.0} for term in terms}
    return Method(
        mix=free,
        credit=by_group(standardized(options.epsilon), table),
        terms=tuple(terms),
        needs=frozenset(needs),
    )
