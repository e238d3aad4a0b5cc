"""PPO: clipped policy gradient, advantages from a trained critic (arXiv:1707.06347, arXiv:1506.02438).

Differences from the papers:
1. The reward arrives once, with the last token; there is no penalty per token.
2. A response cut at the length limit is graded like any other and its end counts as terminal (value 0
   after the last token), because its verdict is final.
3. Advantages are whitened over the tokens of the roll-out batch, value targets are not (code bases; not in
   the papers).
4. Policy and critic are separate models with an optimizer each; the value loss has no coefficient, because
   it moves nothing but the critic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from pydantic import Field

from bimetal.core.types import Credit, Group, Origin, Signals, Trace
from bimetal.objectives.advantage import generalized, whitened
from bimetal.objectives.aggregate import token_mean
from bimetal.objectives.credit import CreditRule, members, nothing
from bimetal.objectives.gate import clip, dual_clip
from bimetal.objectives.loss import PolicyGradient, ValueRegression
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import free
from bimetal.objectives.ratio import over_old

PAPER = "arXiv:1707.06347, equation 7; arXiv:1506.02438, equation 16"
EQUATION = "L = -mean_t min(rho A, clip(rho, 1-low, 1+high) A);  L_V = 0.5 mean_t max((V-R)^2, (clip(V)-R)^2)"
EVIDENCE = (Evidence.CODE, Evidence.PAPER)

_TABLE = {"rl": {Origin.POLICY: 1.0}, "value": {Origin.POLICY: 1.0}}


class Config(Options):
    """Options of this method."""

    clip_low: float = Field(0.2, ge=0, lt=1)
    """The ratio may fall by this before a negative advantage stops teaching; a share."""
    clip_high: float = Field(0.2, ge=0)
    """The ratio may rise by this before a positive advantage stops teaching; a share."""
    dual_clip: float | None = Field(None, gt=1)
    """Ratio beyond which a negative advantage stops teaching; absent for plain PPO."""
    discount: float = Field(1.0, ge=0, le=1)
    """gamma: how much the next token's value counts."""
    trace_decay: float = Field(1.0, ge=0, le=1)
    """lambda: 1 is the return minus the value, 0 the one-step error."""
    value_clip: float | None = Field(None, gt=0)
    """How far a value may move from its old one before its error stops teaching, in units of reward; absent
    for plain regression."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    low, high = options.clip_low, options.clip_high
    gate = clip(low, high) if options.dual_clip is None else dual_clip(low, high, floor=options.dual_clip)
    return Method(
        mix=free,
        credit=generalized_advantages(options.discount, options.trace_decay),
        terms=(
            Term("rl", PolicyGradient(over_old, gate), token_mean()),
            Term("value", ValueRegression(options.value_clip or math.inf), token_mean(), role="critic"),
        ),
        needs=frozenset({Need.REWARD, Need.CRITIC}),
    )


def generalized_advantages(discount: float, trace_decay: float) -> CreditRule:
    """Advantages of tokens over the critic's values, whitened over the batch; a group of one is enough."""

    def credit(groups: Sequence[Group], signals: Signals) -> tuple[Credit, ...]:
        traces: list[Trace] = [trace for group in groups for trace in group.traces]
        judged = [t for t in traces if t.is_known]
        found = [
            generalized(signals.values[t.id], t.reward, discount=discount, trace_decay=trace_decay)
            for t in judged
        ]
        white = whitened([advantages for advantages, _ in found])
        credits = {
            t.id: Credit(trace_id=t.id, advantage=a, weights=members(t, _TABLE), returns=returns)
            for t, a, (_, returns) in zip(judged, white, found, strict=True)
        }
        return tuple(credits.get(t.id) or nothing(t) for t in traces)

    return credit
