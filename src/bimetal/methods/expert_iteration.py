"""Expert iteration (RAFT, STaR): imitate the policy's own verified responses, a few of each prompt.

Differences from the papers:
1. Each roll-out batch is a round of its own, and training goes on from the weights it has; STaR begins every
   round again from the initial model (a recipe of stages does that).
2. Which responses stay where more are right than ``kept`` is an option; RAFT keeps the best, STaR the one it
   draws.
3. The mean is over the kept tokens of the optimizer step.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bimetal.core.types import Group, Origin, Trace
from bimetal.objectives.aggregate import sequence_mean, token_mean
from bimetal.objectives.choice import Choice, chosen
from bimetal.objectives.loss import CrossEntropy
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import free

PAPER = "arXiv:2304.06767 (RAFT), arXiv:2203.14465 (STaR)"
EQUATION = "L = -(1/N) sum over kept own responses with R >= least_reward, sum_t log p_t"
EVIDENCE = (Evidence.DERIVED,)


class Config(Options):
    """Options of this method."""

    least_reward: float = Field(1.0, gt=0, le=1)
    """The reward from which a response counts as verified (STaR: a right answer)."""
    kept: int = Field(4, ge=1)
    """How many verified responses of a prompt are imitated at most, so that easy prompts do not dominate
    (practice: 1 to 4)."""
    prefer: Literal["best", "first", "shortest"] = "best"
    """Which stay where more are verified: those of highest reward (RAFT), drawn first, or shortest."""
    aggregate: Literal["token_mean", "sequence_mean"] = "token_mean"
    """What N is: kept tokens, as in SFT, or each response's mean, averaged."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    average = token_mean() if options.aggregate == "token_mean" else sequence_mean()
    return Method(
        mix=free,
        credit=chosen(verified(options), {"imitation": {Origin.POLICY: 1.0}}),
        terms=(Term("imitation", CrossEntropy(), average),),
        needs=frozenset({Need.REWARD}),
    )


def verified(options: Config) -> Choice:
    """At most ``kept`` verified traces of a group; ties go to the one drawn first."""

    def order(trace: Trace) -> float:
        ranks = {"best": -trace.reward, "first": 0.0, "shortest": float(trace.response_length)}
        return ranks[options.prefer]

    def choose(group: Group) -> tuple[Trace, ...]:
        right = [t for t in group.traces if t.is_known and t.reward >= options.least_reward]
        return tuple(sorted(right, key=order)[: options.kept])

    return choose
