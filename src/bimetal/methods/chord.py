"""CHORD: (1 - mu) GRPO on rollouts + mu SFT on expert data of other prompts (arXiv:2508.11408).

Differences from the paper:
1. The schedule of mu runs over the stage's progress; the paper's runs over steps (W = 0, D = 200). ``decay``
   0.5 stands for D = 200 in a run of 400 steps.
2. Each part is a mean over its own members of the whole optimizer step, as in the authors' code; ms-swift
   divides by the tokens of a micro-batch.
3. The authors' code averages the RL part over tokens; the paper writes GRPO. ``rl_aggregate`` offers both.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bimetal.core.types import Group, Origin, Stream
from bimetal.objectives.advantage import standardized
from bimetal.objectives.aggregate import sequence_mean, token_mean
from bimetal.objectives.controller import Complement, RiseAndDecay
from bimetal.objectives.credit import GroupRule, attended, compared, routed
from bimetal.objectives.gate import clip
from bimetal.objectives.loss import CrossEntropy, PolicyGradient
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import by_stream, demonstration_only, free
from bimetal.objectives.ratio import over_old
from bimetal.objectives.weight import one, uncertainty

PAPER = "arXiv:2508.11408, equations 4 to 6"
EQUATION = "L = (1 - mu) L_GRPO - mu (1/N_demo) sum_t sg[phi(p_t)] log p_t,  phi = 1 or p (1 - p)"
EVIDENCE = (Evidence.CODE,)

VARIANTS = {
    "chord_mu": {"weight": "one", "peak": 0.9, "valley": 0.05, "rise": 0.0, "decay": 0.5},
    "chord_phi": {"weight": "uncertainty", "peak": 0.1, "valley": 0.1, "rise": 0.0, "decay": 0.0},
}


class Config(Options):
    """Options of this method."""

    weight: Literal["one", "uncertainty"] = "one"
    """What a demonstration token weighs: 1 (CHORD-mu), or p (1 - p) (CHORD-phi)."""
    peak: float = Field(0.9, ge=0, le=1)
    """mu after the rise; the share of imitation in the objective."""
    valley: float = Field(0.05, ge=0, le=1)
    """mu after the decay."""
    rise: float = Field(0.0, ge=0, le=1)
    """Share of the stage over which mu rises from 0 to ``peak``."""
    decay: float = Field(0.5, ge=0, le=1)
    """Share of the stage over which mu falls from ``peak`` to ``valley``."""
    clip_low: float = Field(0.2, ge=0, lt=1)
    """As in GRPO."""
    clip_high: float = Field(0.2, ge=0)
    """As in GRPO."""
    epsilon: float = Field(1e-6, gt=0)
    """As in GRPO."""
    rl_aggregate: Literal["sequence_mean", "token_mean"] = "sequence_mean"
    """How the RL part is averaged."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    mu = RiseAndDecay(peak=options.peak, valley=options.valley, rise=options.rise, decay=options.decay)
    surrogate = PolicyGradient(over_old, clip(options.clip_low, options.clip_high))
    weight = uncertainty if options.weight == "uncertainty" else one
    average = sequence_mean() if options.rl_aggregate == "sequence_mean" else token_mean()
    advantage = standardized(options.epsilon)

    def route(group: Group) -> GroupRule:
        if group.prompt.stream is Stream.DEMONSTRATIONS:
            return lambda g: attended(g, {"imitation": {Origin.DEMONSTRATION: 1.0}})
        return lambda g: compared(g, advantage, {"rl": {Origin.POLICY: 1.0}})

    return Method(
        mix=by_stream(main=free, demonstrations=demonstration_only),
        credit=routed(route),
        terms=(
            Term("rl", surrogate, average, Complement(mu)),
            Term("imitation", CrossEntropy(weight), token_mean(), mu),
        ),
        needs=frozenset({Need.REWARD, Need.DEMONSTRATIONS}),
    )
