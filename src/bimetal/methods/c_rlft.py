"""C-RLFT: demonstrations of several qualities, each class with its weight and its word (arXiv:2309.11235).

Differences from the paper:
1. The class of a demonstration is a column of its row, and the condition word stands in the row's messages:
   the method weighs, the data condition. Without the word it is weighted SFT.
2. The denominator is the sum of the weights over the whole optimizer step, which the authors' all-reduced one
   is without accumulation.
3. ``balance = "sequence"`` is the authors' option by sequence: a token weighs w / (length + 1).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bimetal.core.types import Credit, Group, Origin, Trace
from bimetal.objectives.aggregate import weighted_token_mean
from bimetal.objectives.credit import lifted, members
from bimetal.objectives.loss import CrossEntropy
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import demonstration_only

PAPER = "arXiv:2309.11235"
EQUATION = "L = -sum_i w_i sum_t log p_t / sum_i w_i T_i,  w = 1 for experts, weight for the other classes"
EVIDENCE = (Evidence.CODE,)


class Config(Options):
    """Options of this method."""

    column: str = "class"
    """Column of the data that holds the class."""
    suboptimal: tuple[str, ...] = ("suboptimal",)
    """Classes that weigh less; every other prompt, and one without a class, counts as an expert's."""
    weight: float = Field(0.1, ge=0)
    """What a token of those classes weighs, as in the paper; an expert's weighs 1."""
    balance: Literal["token", "sequence"] = "token"
    """Whether the weight is that of a token, or is shared out among a sequence's tokens."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run

    def rule(group: Group) -> tuple[Credit, ...]:
        lesser = group.prompt.meta.get(options.column) in options.suboptimal
        return tuple(credit_of(trace, options.weight if lesser else 1.0) for trace in group.traces)

    def credit_of(trace: Trace, weight: float) -> Credit:
        each = weight if options.balance == "token" else weight / (trace.response_length + 1)
        table = {"imitation": {Origin.DEMONSTRATION: each}}
        return Credit(trace_id=trace.id, advantage=1.0, weights=members(trace, table))

    return Method(
        mix=demonstration_only,
        credit=lifted(rule),
        terms=(Term("imitation", CrossEntropy(), weighted_token_mean()),),
        needs=frozenset({Need.DEMONSTRATIONS}),
    )
