"""SuperHF: imitate the best of a group of own responses, held to the initial policy (arXiv:2310.16763).

Differences from the paper:
1. The reward is the verifier's, not that of a learned model; the first of several best responses is kept.
   Where all are wrong that is a wrong one, as in the paper; ``least_reward`` leaves such groups out.
2. The divergence is averaged as the imitation is; the authors' code sums it per sample, under a mask that is
   one token off.
3. Penalties on inverse loss and on length are left out.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bimetal.core.types import Group, Origin, Trace
from bimetal.objectives.aggregate import sequence_mean, sequence_sum, token_mean
from bimetal.objectives.choice import best, chosen
from bimetal.objectives.logprobs import Statistic, divergence_to_other
from bimetal.objectives.loss import CrossEntropy, StatisticLoss
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import free

PAPER = "arXiv:2310.16763"
EQUATION = "L = (1/Z) sum over the best of each group, sum_t [-log p_t + beta KL(p_0 || p)_t]"
EVIDENCE = (Evidence.CODE,)


class Config(Options):
    """Options of this method."""

    beta: float = Field(0.23, ge=0)
    """Coefficient of the divergence KL(initial || policy) over all words, as the authors set it for LLaMA; 0
    leaves the term out."""
    least_reward: float = Field(0.0, ge=0, le=1)
    """A group whose best response has less teaches nothing."""
    aggregate: Literal["token_mean", "sequence_mean", "sequence_sum"] = "sequence_mean"
    """What Z is, in both terms: kept tokens; each response's mean, averaged; or its sum, averaged."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    averages = {"token_mean": token_mean, "sequence_mean": sequence_mean, "sequence_sum": sequence_sum}
    average = averages[options.aggregate]()

    def choose(group: Group) -> tuple[Trace, ...]:
        return tuple(trace for trace in best(group) if trace.reward >= options.least_reward)

    terms, needs = [Term("imitation", CrossEntropy(), average)], {Need.REWARD}
    if options.beta > 0:
        terms.append(Term("anchor", StatisticLoss("anchor"), average, options.beta))
        needs.add(Need.REFERENCE)
    anchor = {"anchor": Statistic(divergence_to_other, other="reference")}
    return Method(
        mix=free,
        credit=chosen(choose, {term.name: {Origin.POLICY: 1.0} for term in terms}),
        terms=tuple(terms),
        needs=frozenset(needs),
        statistics=anchor if options.beta > 0 else {},
    )
