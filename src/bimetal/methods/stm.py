"""STM: SFT on the tokens that the initial model finds likely enough (arXiv:2501.14315).

Differences from the paper:
1. Perplexities are those of the frozen initial policy, looked up again with every roll-out batch instead of
   stored with the data; they are the same numbers.
2. A dropped token has weight 0, and the denominator is the sum of the weights: the tokens that are kept. With
   the authors' ignored labels it is the same mean, here over the whole optimizer step.
3. The control with random tokens is left out; ``unlikely`` tokens are the other control. It masks what the
   paper keeps, so the number of masked tokens is not matched.
4. To an untrained model no token is likely enough, and nothing is learned: begin from a trained one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from bimetal.core.types import Credit, Group, Origin, SegmentWeight, Signals, Trace
from bimetal.objectives.aggregate import weighted_token_mean
from bimetal.objectives.credit import CreditRule
from bimetal.objectives.loss import CrossEntropy
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import demonstration_only

PAPER = "arXiv:2501.14315"
EQUATION = "L = -(1/sum_t S_t) sum_t S_t log p_t,  S = 1 where 1/p_0 <= threshold, else 0"
EVIDENCE = (Evidence.CODE,)


class Config(Options):
    """Options of this method."""

    threshold: float = Field(2.5, ge=1)
    """Largest perplexity, 1 / p_0, of a token that is learned, as in the paper; a huge one is SFT."""
    keep: Literal["likely", "unlikely"] = "likely"
    """Which side of the threshold is learned; ``unlikely`` is the paper's control."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    return Method(
        mix=demonstration_only,
        credit=masked(options.threshold, options.keep),
        terms=(Term("imitation", CrossEntropy(), weighted_token_mean()),),
        needs=frozenset({Need.DEMONSTRATIONS, Need.REFERENCE}),
    )


def masked(threshold: float, keep: str) -> CreditRule:
    """Demonstration tokens on one side of a perplexity get weight 1, the others 0.

    A demonstration without a token to learn is no member, so that a run that learns nothing is stopped.
    """

    def weight(logprob: float) -> float:
        likely = -logprob <= math.log(threshold)
        return float(likely) if keep == "likely" else float(-logprob >= math.log(threshold))

    def credit_of(trace: Trace, logprobs: Sequence[float]) -> Credit:
        found: list[SegmentWeight] = []
        start = -sum(len(s.token_ids) for s in trace.segments if s.origin is Origin.PROMPT)
        for index, segment in enumerate(trace.segments):
            stop = start + len(segment.token_ids)
            if segment.origin is Origin.DEMONSTRATION:
                weights = tuple(weight(x) for x in logprobs[start:stop])
                if any(weights):
                    found.append(SegmentWeight(term="imitation", segment=index, weight=weights))
            start = stop
        return Credit(trace_id=trace.id, advantage=1.0, weights=tuple(found))

    def credit(groups: Sequence[Group], signals: Signals) -> tuple[Credit, ...]:
        return tuple(
            credit_of(trace, signals.reference_logprobs[trace.id])
            for group in groups
            for trace in group.traces
        )

    return credit
