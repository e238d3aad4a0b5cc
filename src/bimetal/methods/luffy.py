"""LUFFY: the demonstration joins the group, off-policy, with a reshaped ratio (arXiv:2504.14945).

Differences from the paper:
1. The sum over tokens is divided by L_max times the number of sequences of the optimizer step; the authors'
   code divides by L_max alone, so that its learning rate grows with the micro-batch.
2. The demonstration is judged by the same verifier as the rollouts, as in the code; the paper assumes it
   right.
3. The entropy bonus is the mean over all response tokens of the step; the code's is per micro-batch.
4. A prompt without a demonstration gets a group of free rollouts.
"""

from __future__ import annotations

from pydantic import Field

from bimetal.core.types import Origin
from bimetal.objectives.advantage import centered
from bimetal.objectives.aggregate import fixed_length, token_mean
from bimetal.objectives.credit import by_group
from bimetal.objectives.gate import no_gate, reshape
from bimetal.objectives.logprobs import Statistic, entropy
from bimetal.objectives.loss import PolicyGradient, StatisticLoss
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import one_demonstration
from bimetal.objectives.ratio import over_old, over_one

PAPER = "arXiv:2504.14945, equations 5 to 7"
EQUATION = (
    "L = -(1/(N L_max)) [sum_on rho A + sum_demo p/(p+gamma) A] - alpha mean H,  "
    "A = R - mean R over all of the group"
)
EVIDENCE = (Evidence.CODE,)


class Config(Options):
    """Options of this method."""

    gamma: float = Field(0.1, gt=0, lt=1)
    """Constant of the reshaping p / (p + gamma); a probability."""
    entropy: float = Field(0.001, ge=0)
    """Coefficient of the entropy bonus, in units of reward per nat; 0 leaves the term out."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    average = fixed_length(run.max_response_tokens)
    table = {"on": {Origin.POLICY: 1.0}, "off": {Origin.DEMONSTRATION: 1.0}}
    terms = [
        Term("on", PolicyGradient(over_old, no_gate()), average, pool="response"),
        Term("off", PolicyGradient(over_one, reshape(options.gamma)), average, pool="response"),
    ]
    if options.entropy > 0:
        table["entropy"] = {Origin.POLICY: 1.0, Origin.DEMONSTRATION: 1.0}
        terms.append(Term("entropy", StatisticLoss("entropy", sign=-1.0), token_mean(), options.entropy))
    return Method(
        mix=one_demonstration,
        credit=by_group(centered, table),
        terms=tuple(terms),
        needs=frozenset({Need.REWARD, Need.DEMONSTRATIONS}),
        statistics={"entropy": Statistic(entropy)} if options.entropy > 0 else {},
    )
