"""Dr. GRPO: GRPO without the two biased divisions, by deviation and by length (arXiv:2503.20783).

Differences from the paper:
1. None in the formula. The constant is the run's longest allowed response (``max_response_tokens``).
"""

from __future__ import annotations

from pydantic import Field

from bimetal.core.types import Origin
from bimetal.objectives.advantage import centered
from bimetal.objectives.aggregate import fixed_length
from bimetal.objectives.credit import by_group
from bimetal.objectives.gate import clip
from bimetal.objectives.loss import PolicyGradient
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import free
from bimetal.objectives.ratio import over_old

PAPER = "arXiv:2503.20783, section 3.2"
EQUATION = "L = -(1/N) sum_i (1/C) sum_t min(rho (R_i - mean R), clip(rho, 1-low, 1+high) (R_i - mean R))"
EVIDENCE = (Evidence.CODE,)


class Config(Options):
    """Options of this method."""

    clip_low: float = Field(0.2, ge=0, lt=1)
    """The ratio may fall by this before a negative advantage stops teaching; a share."""
    clip_high: float = Field(0.2, ge=0)
    """The ratio may rise by this before a positive advantage stops teaching; a share."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    surrogate = PolicyGradient(over_old, clip(options.clip_low, options.clip_high))
    return Method(
        mix=free,
        credit=by_group(centered, {"rl": {Origin.POLICY: 1.0}}),
        terms=(Term("rl", surrogate, fixed_length(run.max_response_tokens)),),
        needs=frozenset({Need.REWARD}),
    )
