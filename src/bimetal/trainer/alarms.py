"""Alarms: signs that a run goes wrong in a way its loss does not show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from bimetal.core.types import JsonValue

HORIZON = 0.9
"""Decay per step of the running means that alarms compare with."""

ENTROPY_FLOOR = 0.1
"""Entropy below this share of the stage's first is a collapse, where the reward is not near 1 as well."""

SOLVED = 0.95
"""Above this mean reward a low entropy is success."""

TRUNCATED_SHARE = 0.5
"""More rollouts than this cut at the limit: the policy no longer stops."""

UNKNOWN_SHARE = 0.02
"""More unknown verdicts than this: a row, a verifier or a service is broken."""

DRIFT = 0.05
"""Training reward up and held-out reward down by this much each since the last evaluation."""


@dataclass(slots=True)
class Alarms:
    """The alarms of one stage; ``check`` returns the names and messages of those that ring."""

    first_entropy: float | None = None
    reward: float | None = None
    reward_at_evaluation: float | None = None
    held_out: float | None = None

    def check(self, metrics: Mapping[str, float | None]) -> dict[str, str]:
        """Look at one step; each alarm has a sentence for people."""
        found: dict[str, str] = {}
        self._follow_reward(metrics.get("reward/mean"))
        entropy = metrics.get("policy/entropy")
        if entropy is not None:
            self.first_entropy = entropy if self.first_entropy is None else self.first_entropy
            if entropy < ENTROPY_FLOOR * self.first_entropy and (self.reward is None or self.reward < SOLVED):
                found["entropy_collapse"] = (
                    f"entropy fell from {self.first_entropy:.3g} to {entropy:.3g} nats per token while the "
                    "reward is not near 1; lower the learning rate or raise the upper clip"
                )
        truncated = metrics.get("rollout/truncated_share")
        if truncated is not None and truncated > TRUNCATED_SHARE:
            found["truncation"] = (
                f"{truncated:.0%} of rollouts were cut at the limit; raise trainer.max_response_tokens or "
                "warm up with demonstrations that end"
            )
        unknown = metrics.get("errors/share")
        if unknown is not None and unknown > UNKNOWN_SHARE:
            found["unknown_share"] = (
                f"{unknown:.1%} of verdicts are unknown; read the traces' verdict details"
            )
        found |= self._drift(metrics.get("reward/held_out_mean"))
        return found

    def _follow_reward(self, reward: float | None) -> None:
        if reward is not None:
            self.reward = reward if self.reward is None else HORIZON * self.reward + (1 - HORIZON) * reward

    def _drift(self, held_out: float | None) -> dict[str, str]:
        if held_out is None:
            return {}
        before, trained_before = self.held_out, self.reward_at_evaluation
        self.held_out, self.reward_at_evaluation = held_out, self.reward
        if before is None or trained_before is None or self.reward is None:
            return {}
        if self.reward - trained_before > DRIFT and before - held_out > DRIFT:
            return {
                "reward_drift": (
                    f"training reward rose from {trained_before:.3f} to {self.reward:.3f} while held-out "
                    "reward fell from "
                    f"{before:.3f} to {held_out:.3f}; the policy may be gaming the verifier: read traces"
                )
            }
        return {}

    def state_dict(self) -> dict[str, JsonValue]:
        """Everything that must be restored on resume."""
        return {
            "first_entropy": self.first_entropy,
            "reward": self.reward,
            "reward_at_evaluation": self.reward_at_evaluation,
            "held_out": self.held_out,
        }

    def load_state_dict(self, state: Mapping[str, JsonValue]) -> None:
        """Restore what ``state_dict`` gave."""
        for name in ("first_entropy", "reward", "reward_at_evaluation", "held_out"):
            setattr(self, name, cast("float | None", state[name]))
