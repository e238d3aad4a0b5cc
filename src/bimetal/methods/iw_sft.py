"""iw-SFT: demonstrations weighted by how much likelier they have become than at the start (arXiv:2507.12856).

Differences from the paper:
1. The exponent is the mean of the log-ratios over a sequence's tokens, as in the authors' code, and not their
   sum, the log-ratio of whole sequences, which reaches the cap at once for long ones.
2. The denominator is the number of demonstration tokens of the optimizer step: the number that the code gets
   from its trainer. ``sequence_sum`` divides by demonstrations.
3. ``level = "token"`` is the code's other branch: each token's own ratio, held between 0.2 and 1.8.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bimetal.core.types import Origin
from bimetal.objectives.aggregate import sequence_sum, token_mean
from bimetal.objectives.credit import imitation
from bimetal.objectives.loss import CrossEntropy
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import demonstration_only
from bimetal.objectives.weight import over_reference, sequence_over_reference

PAPER = "arXiv:2507.12856"
EQUATION = "L = -(1/N) sum_i w_i sum_t log p_t,  w = sg[min(exp(tau mean_t log(p/p_0)), cap)]"
EVIDENCE = (Evidence.CODE,)

VARIANTS = {"iw_sft_token": {"level": "token"}}


class Config(Options):
    """Options of this method."""

    level: Literal["sequence", "token"] = "sequence"
    """Whether a sequence has one weight or each token its own."""
    power: float = Field(1.0, ge=0)
    """tau: how strongly a sequence's ratio counts; 0 is SFT. The code calls its function, whose default is 2,
    with 1."""
    cap: float = Field(16.0, gt=0)
    """What no sequence's weight exceeds, as in the code."""
    token_low: float = Field(0.2, ge=0)
    """What no token's own weight falls below, as in the code."""
    token_high: float = Field(1.8, gt=0)
    """What no token's own weight exceeds, as in the code."""
    aggregate: Literal["token_mean", "sequence_sum"] = "token_mean"
    """What N is: demonstration tokens, or demonstrations."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    weight = sequence_over_reference(options.power, high=options.cap)
    if options.level == "token":
        weight = over_reference(options.token_low, options.token_high)
    average = token_mean() if options.aggregate == "token_mean" else sequence_sum()
    return Method(
        mix=demonstration_only,
        credit=imitation({"imitation": {Origin.DEMONSTRATION: 1.0}}),
        terms=(Term("imitation", CrossEntropy(weight), average),),
        needs=frozenset({Need.DEMONSTRATIONS, Need.REFERENCE}),
    )
