"""SED-SFT: cross entropy that leaves room at uncertain positions (arXiv:2602.07464).

Differences from the paper:
1. The threshold is an option. The authors' script measures it: the mass above which a share of 0.7 lies, over
   about 100 validation samples. ``diversity/flexible_share`` says which share of tokens falls below it.
2. One ``top`` for both; the authors' calibration takes 10 and their loss falls back to 2.
3. The loss is not multiplied by the number of processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from bimetal.core.batch import Batch, PolicyOutput
from bimetal.core.types import Origin
from bimetal.objectives.aggregate import token_mean
from bimetal.objectives.credit import imitation
from bimetal.objectives.logprobs import Statistic, top_k_mass
from bimetal.objectives.loss import CrossEntropy, only
from bimetal.objectives.method import Evidence, Method, Need, Options, RunShape, Term
from bimetal.objectives.mix import demonstration_only

PAPER = "arXiv:2602.07464"
EQUATION = "L = (1/N) sum_t [-log p_t + strength 1[Q_t < threshold] (p_t - 1/2)^2],  Q = mass of the top k"
EVIDENCE = (Evidence.CODE,)


class Config(Options):
    """Options of this method."""

    strength: float = Field(1.0, gt=0)
    """lambda: coefficient of the pull to p = 1/2, as in the authors' script; above 1 a certain token's
    probability is pushed down."""
    threshold: float = Field(0.95, ge=0, le=1)
    """Mass of the likeliest tokens below which a position is uncertain; the default of the authors' loss."""
    top: int = Field(10, ge=1)
    """k: how many of the likeliest tokens that mass is of, as in the authors' calibration."""


def build(options: Config, run: RunShape) -> Method:
    """Assemble the method."""
    del run
    shown = {Origin.DEMONSTRATION: 1.0}
    return Method(
        mix=demonstration_only,
        credit=imitation({"imitation": shown, "diversity": shown}),
        terms=(
            Term("imitation", CrossEntropy(), token_mean()),
            Term("diversity", Diversity(options.threshold), token_mean(), options.strength),
        ),
        needs=frozenset({Need.DEMONSTRATIONS}),
        statistics={"mass": Statistic(top_k_mass(options.top))},
    )


@dataclass(frozen=True, slots=True)
class Diversity:
    """(p - 1/2)^2 at positions whose likeliest tokens hold less than ``threshold``; not detached."""

    threshold: float

    def __call__(
        self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
    ) -> Float[Tensor, "b t"]:
        """The squared distance for members that are uncertain."""
        del batch
        p = torch.exp(only(members, policy.logprobs))
        return only(members & self._uncertain(policy), (p - 0.5).square())

    def watch(
        self, batch: Batch, policy: PolicyOutput, members: Bool[Tensor, "b t"]
    ) -> Mapping[str, Float[Tensor, "b t"]]:
        """The share of uncertain positions."""
        del batch
        return {"diversity/flexible_share": (members & self._uncertain(policy)).to(policy.logprobs.dtype)}

    def _uncertain(self, policy: PolicyOutput) -> Bool[Tensor, "b t"]:
        return policy.statistic("mass").detach() < self.threshold
