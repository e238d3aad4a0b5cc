"""SFT: maximum likelihood of the demonstrations, prompt masked, end token included.

Differences from common practice:
1. The default divides by all demonstration tokens of the optimizer step, over every micro-batch and
   rank. Several trainers average micro-batch means instead, which overweights short samples
   (arXiv:2604.23747).
"""

from __future__ import annotations

from typing import Literal

from bimetal.core.types import Origin
from bimetal.objectives.aggregate import sequence_mean, sequence_sum, token_mean
from bimetal.objectives.credit import imitation
from bimetal.objectives.loss import CrossEntropy
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import demonstration_only

PAPER = "none; aggregations as in verl and OpenRLHF"
EQUATION = "L = -(1/Z) sum_{i,t} log p(y_{i,t} | x_i, y_{i,<t})"
EVIDENCE = (Evidence.CODE,)


class Config(Options):
    """Options of this method."""

    aggregate: Literal["token_mean", "sequence_mean", "sequence_sum"] = "token_mean"
    """What Z is: demonstration tokens; each sequence's mean, averaged; or each sequence's sum, averaged."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    aggregates = {"token_mean": token_mean, "sequence_mean": sequence_mean, "sequence_sum": sequence_sum}
    return Method(
        mix=demonstration_only,
        credit=imitation({"imitation": {Origin.DEMONSTRATION: 1.0}}),
        terms=(Term("imitation", CrossEntropy(), aggregates[options.aggregate]()),),
        needs=frozenset({Need.DEMONSTRATIONS}),
    )
