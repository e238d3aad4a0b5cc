"""Alarms: signs that a run goes wrong in a way its loss does not show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from bimetal.core.types import JsonValue

HORIZON = 0.9
"""Decay per step of the running means that alarms compare with."""

ENTROPY_FLOOR = 0.1
"""A running entropy below this share of the stage's highest is a collapse, unless the reward is near 1."""

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

    entropy: float | None = None
    peak_entropy: float | None = None
    reward: float | None = None
    reward_at_evaluation: float | None = None
    held_out: float | None = None

    def check(self, metrics: Mapping[str, float | None]) -> dict[str, str]:
        """Look at one step; each alarm has a sentence for people."""
        found: dict[str, str] = {}
        self._follow_reward(metrics.get("reward/mean"))
        found |= self._collapse(metrics.get("policy/entropy"))
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

    def _collapse(self, entropy: float | None) -> dict[str, str]:
        """Running means are compared: one step's entropy is that of a few rollouts."""
        if entropy is None:
            return {}
        now = self.entropy = _smoothed(self.entropy, entropy)
        peak = self.peak_entropy = max(now, self.peak_entropy or 0.0)
        if now >= ENTROPY_FLOOR * peak or (self.reward is not None and self.reward >= SOLVED):
            return {}
        return {
            "entropy_collapse": (
                f"entropy fell from {peak:.3g} to {now:.3g} nats per token while the reward "
                "is not near 1; lower the learning rate or raise the upper clip"
            )
        }

    def _follow_reward(self, reward: float | None) -> None:
        if reward is not None:
            self.reward = _smoothed(self.reward, reward)

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
            "entropy": self.entropy,
            "peak_entropy": self.peak_entropy,
            "reward": self.reward,
            "reward_at_evaluation": self.reward_at_evaluation,
            "held_out": self.held_out,
        }

    def load_state_dict(self, state: Mapping[str, JsonValue]) -> None:
        """Restore what ``state_dict`` gave."""
        for name in ("entropy", "peak_entropy", "reward", "reward_at_evaluation", "held_out"):
            setattr(self, name, cast("float | None", state[name]))


def _smoothed(mean: float | None, value: float) -> float:
    """The running mean with one more value; the first value begins it."""
    return value if mean is None else HORIZON * mean + (1 - HORIZON) * value
