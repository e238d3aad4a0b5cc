"""DPO: the preferred response gains on the other, measured against the initial policy (arXiv:2305.18290).

Differences from the paper:
1. ``pairs = "online"`` draws rollouts and prefers the one of highest reward to the one of lowest, one pair
   per group; a group of equal rewards has no pair. ``"offline"`` is the paper's: two demonstrations.
2. Offline, the demonstration of highest ``quality`` is preferred to that of lowest. Where a prompt's rows
   have no quality at all, the first is preferred to the last; where all are of one quality there is no pair.
3. The mean is over the pairs of the optimizer step.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bimetal.core.types import Draft, GroupState, Origin
from bimetal.objectives.aggregate import sequence_mean
from bimetal.objectives.loss import CrossEntropy
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import free
from bimetal.objectives.preference import PairwiseMargin, best_and_worst, first_two, paired

PAPER = "arXiv:2305.18290, equation 7; IPO: arXiv:2310.12036"
EQUATION = (
    "L = -mean over pairs log sigmoid(h),  h = beta [log(p/p_ref)(preferred) - log(p/p_ref)(other)],  summed "
    "over response tokens"
)
EVIDENCE = (Evidence.CODE,)

VARIANTS = {
    "dpo_offline": {"pairs": "offline"},
    "ipo": {"loss": "squared"},
}


class Config(Options):
    """Options of this method."""

    pairs: Literal["online", "offline"] = "online"
    """Whether pairs are rollouts that were judged, or demonstrations of different quality (paper)."""
    beta: float = Field(0.1, gt=0)
    """What a nat of margin counts; the larger, the nearer to the initial policy (practice: 0.01 to 0.5)."""
    loss: Literal["logistic", "squared"] = "logistic"
    """The paper's loss of a pair, or IPO's (h / beta - 1 / (2 beta))^2."""
    smoothing: float = Field(0.0, ge=0, lt=0.5)
    """Chance that a preference is the wrong way round (cDPO); the logistic loss only."""
    imitation: float = Field(0.0, ge=0)
    """Coefficient of the preferred response's mean negative log-likelihood, which keeps it from falling."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    online = options.pairs == "online"
    origin = Origin.POLICY if online else Origin.DEMONSTRATION
    loss = PairwiseMargin(options.beta, options.smoothing, squared=options.loss == "squared")
    terms = [Term("preference", loss, sequence_mean())]
    if options.imitation > 0:
        terms.append(Term("imitation", CrossEntropy(), sequence_mean(), options.imitation))
    return Method(
        mix=free if online else two_demonstrations,
        credit=paired(
            best_and_worst if online else first_two,
            both={"preference": origin},
            preferred={"imitation": origin} if options.imitation > 0 else {},
        ),
        terms=tuple(terms),
        needs=frozenset({Need.REFERENCE, Need.WHOLE_GROUPS, Need.REWARD if online else Need.DEMONSTRATIONS}),
    )


def two_demonstrations(state: GroupState) -> tuple[Draft, ...]:
    """The demonstration of highest quality, then that of lowest; none where they do not differ."""
    qualities = [d.quality for d in state.demonstrations]
    known = [i for i, quality in enumerate(qualities) if quality is not None]
    if state.traces or len(qualities) < 2:
        return ()
    if not known:
        return _whole(0), _whole(len(qualities) - 1)
    ordered = sorted(known, key=lambda i: -(qualities[i] or 0.0))
    if qualities[ordered[0]] == qualities[ordered[-1]]:
        return ()
    return _whole(ordered[0]), _whole(ordered[-1])


def _whole(number: int) -> Draft:
    return Draft(prefix_fraction=1.0, demonstration=number)
