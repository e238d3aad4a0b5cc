"""REINFORCE with a baseline: the log-likelihood of whole responses, weighted by reward minus a baseline.

Differences from the paper:
1. Williams' estimator has no ratio. ``correction`` multiplies by the detached ratio of token or response, for
   updates past the first of a roll-out batch; the ratio is never differentiated.
2. Of the baselines in use, this file has those that a roll-out batch holds: no running mean, no greedy
   rollout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from bimetal.core.types import Credit, Group, Origin, Signals
from bimetal.objectives.advantage import centered, leave_one_out
from bimetal.objectives.aggregate import sequence_sum
from bimetal.objectives.correction import capped
from bimetal.objectives.credit import CreditRule, by_batch, members, nothing
from bimetal.objectives.loss import Reinforce
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import free
from bimetal.objectives.ratio import over_old, sequence_product_over_old
from bimetal.objectives.weight import one

PAPER = "Williams (1992), Simple statistical gradient-following algorithms, section 4"
EQUATION = "L = -(1/N) sum_{i,t} sg[W (R_i - b)] log p,  W = 1, p/p_old, or prod_t p/p_old"
EVIDENCE = (Evidence.CODE,)

_TABLE = {"rl": {Origin.POLICY: 1.0}}


class Config(Options):
    """Options of this method."""

    baseline: Literal["others", "batch", "none"] = "others"
    """What b is: the mean reward of the batch's other rollouts (unbiased); of all, itself included (the
    gradient is (n-1)/n of that); or 0."""
    correction: Literal["none", "token", "sequence"] = "none"
    """What W is: 1; the token's ratio (biased, steady); or the response's (unbiased, noisy)."""
    cap: float | None = Field(None, gt=0)
    """The largest W; absent leaves W as it is (verl caps its correction at 2)."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    cap = math.inf if options.cap is None else options.cap
    weight = {
        "none": one,
        "token": capped(over_old, high=cap),
        "sequence": capped(sequence_product_over_old, high=cap),
    }[options.correction]
    rule = {
        "others": by_batch(leave_one_out, _TABLE),
        "batch": by_batch(centered, _TABLE),
        "none": rewarded(),
    }[options.baseline]
    return Method(
        mix=free,
        credit=rule,
        terms=(Term("rl", Reinforce(weight), sequence_sum()),),
        needs=frozenset({Need.REWARD}),
    )


def rewarded() -> CreditRule:
    """The advantage of a known trace is its reward, whatever the others got."""

    def credit(groups: Sequence[Group], signals: Signals) -> tuple[Credit, ...]:
        del signals
        return tuple(
            Credit(trace_id=t.id, advantage=t.reward, weights=members(t, _TABLE))
            if t.is_known
            else nothing(t)
            for group in groups
            for t in group.traces
        )

    return credit
