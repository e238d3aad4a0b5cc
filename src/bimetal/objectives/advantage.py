"""Rewards of one group -> advantages.

Every function takes the rewards of the known members of one group (at least two: the credit helper
gives 0 to smaller groups, design contract C5) and returns one advantage each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

Advantage = Callable[[Float[Tensor, " g"]], Float[Tensor, " g"]]

UNIFORM_TOLERANCE = 1e-6
"""Rewards closer together than this are equal: a tiny deviation must not blow up a quotient by it."""


def centered(rewards: Float[Tensor, " g"]) -> Float[Tensor, " g"]:
    """Reward minus the group's mean (Dr. GRPO, arXiv:2503.20783); all equal gives exactly 0.

    >>> centered(torch.tensor([1.0, 0.0, 0.0, 0.0])).tolist()
    [0.75, -0.25, -0.25, -0.25]
    """
    if is_uniform(rewards):
        return torch.zeros_like(rewards)
    return rewards - rewards.mean()


def standardized(epsilon: float = 1e-6) -> Advantage:
    """Reward minus mean, over standard deviation plus ``epsilon`` (GRPO, arXiv:2402.03300, section 4.1).

    The deviation is the sample's (divisor g - 1), as in the common code bases; all equal gives exactly 0.
    """

    def advantage(rewards: Float[Tensor, " g"]) -> Float[Tensor, " g"]:
        if is_uniform(rewards):
            return torch.zeros_like(rewards)
        return (rewards - rewards.mean()) / (rewards.std(correction=1) + epsilon)

    return advantage


def leave_one_out(rewards: Float[Tensor, " g"]) -> Float[Tensor, " g"]:
    """Reward minus the mean of the *other* members (RLOO, arXiv:2402.14740)."""
    if is_uniform(rewards):
        return torch.zeros_like(rewards)
    others = rewards.shape[0] - 1
    return rewards - (rewards.sum() - rewards) / others


def returns_to_go(rewards: Sequence[float], *, discount: float) -> tuple[float, ...]:
    """The discounted sum of a token's reward and all later ones: G_t = r_t + gamma G_{t+1}.

    >>> returns_to_go([0.0, 0.0, 1.0], discount=0.5)
    (0.25, 0.5, 1.0)
    """
    found, following = [0.0] * len(rewards), 0.0
    for t in reversed(range(len(rewards))):
        following = rewards[t] + discount * following
        found[t] = following
    return tuple(found)


def is_uniform(rewards: Float[Tensor, " g"]) -> bool:
    """Whether all rewards are equal within ``UNIFORM_TOLERANCE``, so that the group teaches nothing."""
    if rewards.numel() == 0:
        return True
    return float(rewards.max() - rewards.min()) <= UNIFORM_TOLERANCE


def generalized(
    values: Sequence[float], reward: float, *, discount: float, trace_decay: float, final_value: float = 0.0
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Generalized advantages and return targets of one response (GAE, arXiv:1506.02438, eq. 16).

    The reward arrives with the last token. ``values[t]`` is the critic's estimate before token t.

    Args:
        values: One per policy token.
        reward: The trace's reward.
        discount: gamma, in [0, 1].
        trace_decay: lambda, in [0, 1].
        final_value: The value after the last token: 0 for a finished response; a bootstrap for a
            truncated one.

    Returns:
        Advantages A_t, and targets A_t + V_t taken before any whitening.
    """
    advantages = [0.0] * len(values)
    following_value, following_advantage = final_value, 0.0
    for t in reversed(range(len(values))):
        # delta_t = r_t + gamma V_{t+1} - V_t;  A_t = delta_t + gamma lambda A_{t+1}
        step_reward = reward if t == len(values) - 1 else 0.0
        delta = step_reward + discount * following_value - values[t]
        following_advantage = delta + discount * trace_decay * following_advantage
        advantages[t], following_value = following_advantage, values[t]
    return tuple(advantages), tuple(a + v for a, v in zip(advantages, values, strict=True))


def whitened(advantages: Sequence[Sequence[float]], epsilon: float = 1e-8) -> list[tuple[float, ...]]:
    """All tokens' advantages shifted to mean 0 and scaled to sample variance 1, over the roll-out batch.

    Fewer than two tokens, or equal ones, give 0.
    """
    flat = torch.tensor([a for row in advantages for a in row], dtype=torch.float64)
    if flat.numel() < 2 or is_uniform(flat):
        return [tuple(0.0 for _ in row) for row in advantages]
    mean, deviation = float(flat.mean()), float(flat.std(correction=1))
    return [tuple((a - mean) / (deviation + epsilon) for a in row) for row in advantages]
