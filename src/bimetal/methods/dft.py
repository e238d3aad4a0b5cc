"""DFT: cross entropy weighted by the token's own detached probability (arXiv:2508.05629).

Differences from the paper:
1. The mean is over all demonstration tokens of the optimizer step; the authors' trainer divides by the number
   of micro-batches after ``backward``.
2. ASFT (arXiv:2509.23753) is the option ``anchor``: a divergence from the frozen initial policy over all
   words, averaged as the imitation is. Direction and coefficient are those of its authors' code.
3. EAFT (arXiv:2601.02151) is the option ``weight``: the entropy among the ``top`` likeliest tokens over its
   largest value, log(top). LLaMA-Factory divides by 3.0, which for 20 tokens is larger by 0.14 %.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bimetal.core.types import Origin
from bimetal.objectives.aggregate import token_mean
from bimetal.objectives.credit import imitation
from bimetal.objectives.logprobs import Statistic, divergence_from_other, divergence_to_other, top_k_entropy
from bimetal.objectives.loss import CrossEntropy, StatisticLoss
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import demonstration_only
from bimetal.objectives.weight import probability, statistic

PAPER = "arXiv:2508.05629, equation 9; variants arXiv:2509.23753 and arXiv:2601.02151"
EQUATION = (
    "L = -(1/N) sum_t sg[w_t] log p_t + anchor (1/N) sum_t KL_t,  w = p (DFT, ASFT) or H / log k (EAFT)"
)
EVIDENCE = (Evidence.CODE,)

VARIANTS = {"asft": {"anchor": 0.1}, "eaft": {"weight": "entropy"}}


class Config(Options):
    """Options of this method."""

    weight: Literal["probability", "entropy"] = "probability"
    """What a token weighs: its own probability (DFT), or the normalized entropy where it stands (EAFT)."""
    top: int = Field(20, ge=2)
    """Likeliest tokens among which that entropy is taken, as in LLaMA-Factory's EAFT."""
    anchor: float = Field(0.0, ge=0)
    """Coefficient of the divergence from the initial policy; 0 leaves the term out, ASFT's code has 0.1."""
    direction: Literal["forward", "reverse"] = "forward"
    """KL(initial || policy), as in ASFT's code, or KL(policy || initial)."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    statistics: dict[str, Statistic] = {}
    weight, needs = probability, {Need.DEMONSTRATIONS}
    if options.weight == "entropy":
        weight, statistics["flexibility"] = statistic("flexibility"), Statistic(top_k_entropy(options.top))
    terms = [Term("imitation", CrossEntropy(weight), token_mean())]
    if options.anchor > 0:
        function = divergence_to_other if options.direction == "forward" else divergence_from_other
        statistics["anchor"] = Statistic(function, other="reference")
        terms.append(Term("anchor", StatisticLoss("anchor"), token_mean(), options.anchor))
        needs.add(Need.REFERENCE)
    return Method(
        mix=demonstration_only,
        credit=imitation({term.name: {Origin.DEMONSTRATION: 1.0} for term in terms}),
        terms=tuple(terms),
        needs=frozenset(needs),
        statistics=statistics,
    )
