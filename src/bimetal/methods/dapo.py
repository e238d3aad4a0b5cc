"""DAPO: GRPO with a higher upper clip, a mean over tokens, and a soft penalty for length (arXiv:2503.14476).

Differences from the paper:
1. Dynamic sampling, which refills groups that are all right or all wrong, is the pipeline's and not the
   method's; without it such groups have advantage 0, or that of their lengths.
2. Equation 8 averages over the tokens of a group, its code over those of the step; this file does the latter.
3. Responses end at the run's limit, so L_max is the limit and nothing lies beyond it.
4. A group of equal shaped rewards has advantage exactly 0; ``epsilon`` keeps the quotient finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from bimetal.core.types import Credit, Finish, Group, Origin, Signals, Trace
from bimetal.objectives.advantage import standardized
from bimetal.objectives.aggregate import token_mean
from bimetal.objectives.correction import CorrectionName, correction_named
from bimetal.objectives.credit import CreditRule, Reward, by_group, nothing
from bimetal.objectives.gate import clip
from bimetal.objectives.loss import PolicyGradient
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import free
from bimetal.objectives.ratio import over_old

PAPER = "arXiv:2503.14476, equations 8 to 13"
EQUATION = (
    "L = -mean_t min(rho A, clip(rho, 1-low, 1+high) A),  A = (r - mean r) / std r in the group,  "
    "r = 2 reward - 1 - max(0, (length - (L_max - L_c)) / L_c)"
)
EVIDENCE = (Evidence.CODE, Evidence.PAPER)


class Config(Options):
    """Options of this method."""

    clip_low: float = Field(0.2, ge=0, lt=1)
    """The ratio may fall by this before a negative advantage stops teaching; a share (paper: 0.2)."""
    clip_high: float = Field(0.28, ge=0)
    """The ratio may rise by this before a positive advantage stops teaching; a share (paper: 0.28)."""
    epsilon: float = Field(1e-6, gt=0)
    """Added to the standard deviation of the group's rewards (verl: 1e-6)."""
    correction: CorrectionName = "none"
    """What corrects for rollouts of another engine or older weights: nothing; p_old / mu as it is (decoupled
    PPO); held at ``correction_high``, by token or sequence (truncated importance sampling); or 0 outside the
    band (IcePop)."""
    correction_low: float = Field(0.5, ge=0, le=1)
    """The least p_old / mu that ``banded`` keeps; a ratio (NeMo-RL: 0.5)."""
    correction_high: float = Field(2.0, ge=1)
    """The largest p_old / mu; a ratio (verl: 2)."""
    overlong: Literal["shape", "filter", "keep"] = "shape"
    """Long responses are penalized softly (paper, section 3.4); or, where cut at the limit, left out of the
    loss and its mean but not of the group's statistics (the same section's first step); or just kept."""
    overlong_share: float = Field(0.2, gt=0, le=1)
    """L_c: the last share of the allowed length, over which the penalty grows to 1 (paper: 4096 of 20480)."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    low, high = options.correction_low, options.correction_high
    correction = correction_named(options.correction, low=low, high=high)
    surrogate = PolicyGradient(over_old, clip(options.clip_low, options.clip_high), correction)
    buffer = options.overlong_share * run.max_response_tokens if options.overlong == "shape" else None
    rule = by_group(
        standardized(options.epsilon),
        {"rl": {Origin.POLICY: 1.0}},
        reward=shaped(run.max_response_tokens, buffer),
    )
    return Method(
        mix=free,
        credit=without_cut(rule) if options.overlong == "filter" else rule,
        terms=(Term("rl", surrogate, token_mean()),),
        needs=frozenset({Need.REWARD, *(() if options.correction == "none" else (Need.SAMPLER,))}),
    )


def shaped(longest: int, buffer: float | None) -> Reward:
    """Reward from -1 to 1, minus 0 up to ``longest - buffer`` tokens, rising to 1 at ``longest`` (eq. 13)."""

    def reward(trace: Trace, signals: Signals) -> float:
        del signals
        excess = 0.0 if buffer is None else (trace.response_length - (longest - buffer)) / buffer
        return 2 * trace.reward - 1 - min(max(excess, 0.0), 1.0)

    return reward


def without_cut(rule: CreditRule) -> CreditRule:
    """The rule's credits, but none for a response that was cut at the length limit."""

    def credit(groups: Sequence[Group], signals: Signals) -> tuple[Credit, ...]:
        traces = [trace for group in groups for trace in group.traces]
        given = rule(groups, signals)
        return tuple(
            nothing(t) if t.finish is Finish.LENGTH else c for t, c in zip(traces, given, strict=True)
        )

    return credit
