"""On-policy SFT: maximum likelihood of the policy's own right, finished responses (arXiv:2602.13407).

Differences from the paper:
1. The mean is over the kept tokens of the optimizer step. The authors' mini-batches after the first are a
   little off-policy without a correction; here that takes several updates per roll-out batch.
2. Nothing is trimmed to a multiple of the number of processes.
3. The length limit, which is the length penalty, is the trainer's ``max_response_tokens``; the paper's is
   3500.
"""

from __future__ import annotations

from typing import Literal

from bimetal.core.types import Origin
from bimetal.objectives.aggregate import sequence_mean, token_mean
from bimetal.objectives.choice import chosen, rewarded
from bimetal.objectives.loss import CrossEntropy
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import free

PAPER = "arXiv:2602.13407"
EQUATION = "L = -(1/N) sum over own responses with R > 0 that ended by themselves, sum_t log p_t"
EVIDENCE = (Evidence.CODE,)


class Config(Options):
    """Options of this method."""

    aggregate: Literal["token_mean", "sequence_mean"] = "token_mean"
    """What N is: kept tokens, as in the paper, or each response's mean, averaged, which weighs short ones
    more."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    average = token_mean() if options.aggregate == "token_mean" else sequence_mean()
    return Method(
        mix=free,
        credit=chosen(rewarded, {"imitation": {Origin.POLICY: 1.0}}),
        terms=(Term("imitation", CrossEntropy(), average),),
        needs=frozenset({Need.REWARD}),
    )
