"""C3PO: GRPO on a constant number of tokens per step, whatever the lengths (Ring-lite, arXiv:2506.14731).

Differences from the paper:
1. The budget is that of a roll-out batch, which is an optimizer step where there is one update; with several,
   each still divides by the whole budget.
2. The paper does not say in which order responses are taken. Here it is a fixed shuffle by their names, which
   does not know their lengths.
3. Where the batch holds fewer tokens than the budget, all are trained and the divisor stays the budget.
4. The balance loss and the router's z-loss of mixtures of experts are not part of this file.
5. The divergence is the k3 estimate, as in GRPO. A uniform group has advantage exactly 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from bimetal.core.streams import stable_hash
from bimetal.core.types import Credit, Group, Origin, Signals, Trace
from bimetal.objectives.advantage import standardized
from bimetal.objectives.aggregate import token_budget
from bimetal.objectives.credit import CreditRule, by_group, nothing, written
from bimetal.objectives.gate import clip
from bimetal.objectives.logprobs import Statistic, entropy
from bimetal.objectives.loss import Divergence, PolicyGradient, StatisticLoss
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import free
from bimetal.objectives.ratio import over_old

PAPER = "arXiv:2506.14731, section on C3PO"
EQUATION = (
    "L = -(1/budget) sum over tokens of chosen responses [min(rho A, clip(rho, 1-low, 1+high) A) - beta k3 + "
    "alpha H],  responses taken in random order until their tokens reach the budget,  A as in GRPO"
)
EVIDENCE = (Evidence.PAPER,)


class Config(Options):
    """Options of this method."""

    budget: int = Field(409_600, ge=1)
    """Tokens a step trains, and its divisor (paper: 409600)."""
    clip_low: float = Field(0.2, ge=0, lt=1)
    """The ratio may fall by this before a negative advantage stops teaching; a share (paper: 0.2)."""
    clip_high: float = Field(0.2, ge=0)
    """The ratio may rise by this before a positive advantage stops teaching; a share (paper: 0.2)."""
    beta: float = Field(1e-3, ge=0)
    """Coefficient of the divergence from the initial policy; 0 leaves the term out (paper: 1e-3)."""
    entropy: float = Field(5e-4, ge=0)
    """Coefficient of the entropy bonus, in units of reward per nat; 0 leaves it out (paper: 5e-4)."""
    epsilon: float = Field(1e-6, gt=0)
    """Added to the standard deviation of the group's rewards (verl: 1e-6)."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    average, needs = token_budget(options.budget), {Need.REWARD}
    surrogate = PolicyGradient(over_old, clip(options.clip_low, options.clip_high))
    terms = [Term("rl", surrogate, average)]
    if options.beta > 0:
        terms.append(Term("divergence", Divergence(), average, options.beta))
        needs.add(Need.REFERENCE)
    if options.entropy > 0:
        terms.append(Term("entropy", StatisticLoss("entropy", sign=-1.0), average, options.entropy))
    rule = by_group(standardized(options.epsilon), {term.name: {Origin.POLICY: 1.0} for term in terms})
    return Method(
        mix=free,
        credit=within_budget(rule, options.budget),
        terms=tuple(terms),
        needs=frozenset(needs),
        statistics={"entropy": Statistic(entropy)} if options.entropy > 0 else {},
    )


def drawn(groups: Sequence[Group]) -> list[Trace]:
    """The known traces of a roll-out batch in a shuffled order that is the same wherever it is made."""
    known = [trace for group in groups for trace in group.traces if trace.is_known]
    return sorted(known, key=lambda trace: stable_hash("c3po", trace.id))


def within_budget(rule: CreditRule, budget: int) -> CreditRule:
    """The rule's credits of whole groups, kept for traces as drawn until their tokens reach the budget."""

    def credit(groups: Sequence[Group], signals: Signals) -> tuple[Credit, ...]:
        taken, tokens = set[str](), 0
        for trace in drawn(groups):
            if tokens < budget:
                taken.add(trace.id)
                tokens += sum(written(trace))
        traces = [trace for group in groups for trace in group.traces]
        given = zip(traces, rule(groups, signals), strict=True)
        return tuple(c if t.id in taken else nothing(t) for t, c in given)

    return credit
