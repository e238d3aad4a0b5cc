"""Literal transcriptions of reward-driven losses: plain loops over groups, responses and tokens.

Written from the notes of RL algorithms (``rl_and_data.md``, part 1: sections 0, 1.1-1.3 and 1.7-1.9) alone,
before a file of these methods existed, and without ``bimetal.objectives``. Each function names its section.
What a section leaves open is an argument without a default, never a choice made here.

Conventions are those of ``literal.py``: tensors are what the formula differentiates, floats are what it does
not, every function returns a loss, and whoever calls has left out responses whose reward nobody knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from tests.methods.literal import (
    Sample,
    averaged,
    centered,
    clipped,
    mean,
    ratio,
    standard_deviation,
    standardized,
)
from torch import Tensor

Groups = Sequence[Sequence[Sample]]
Weigh = Callable[[Sample, float], list[float]]
"""(response, its advantage) -> one detached weight per token."""


def value(x: Tensor) -> float:
    """A number that nothing is differentiated through: sg(x)."""
    return float(x.detach())


def reward(sample: Sample) -> float:
    """R_i."""
    assert sample.reward is not None
    return sample.reward


def capped_exp(log_ratio: float) -> float:
    """exp of a log-ratio, the exponent clamped to +-20 (1.27)."""
    return math.exp(max(-20.0, min(20.0, log_ratio)))


def reinforce(
    samples: Sequence[Sample], *, baseline: Sequence[float], off_policy: str, aggregate: str = "sequence_sum"
) -> Tensor:
    """1.1: J = sum_t sg(W) sg(R - b) log pi; W is 1 (``none``), each ``token``'s pi / pi_old, or the product
    of all (``sequence``)."""
    losses: list[list[Tensor]] = []
    for sample, b in zip(samples, baseline, strict=True):
        logs = [value(x) - old for x, old in zip(sample.logprobs, sample.old, strict=True)]
        whole = capped_exp(math.fsum(logs))
        row = []
        for t, logprob in enumerate(sample.logprobs):
            w = {"none": 1.0, "token": capped_exp(logs[t]), "sequence": whole}[off_policy]
            row.append(-w * (reward(sample) - b) * logprob)
        losses.append(row)
    return averaged(losses, aggregate)


def batch_mean_of_others(samples: Sequence[Sample]) -> list[float]:
    """1.1: a baseline of the batch's mean reward in which a response does not see itself."""
    found = []
    for i in range(len(samples)):
        others = [reward(other) for j, other in enumerate(samples) if j != i]
        found.append(mean(others) if others else reward(samples[i]))
    return found


def rloo_advantages(group: Sequence[Sample], *, beta: float) -> list[float]:
    """1.2: R_i <- R_i - beta sum_t (log pi_old - log ref); A_i = R_i - the mean of the others.

    A group of one, for which that mean is undefined, gets 0.
    """
    rewards = []
    for sample in group:
        spent = 0.0
        if beta > 0:
            for old, reference in zip(sample.old, sample.reference, strict=True):
                spent += old - reference
        rewards.append(reward(sample) - beta * spent)
    if len(rewards) < 2:
        return [0.0 for _ in rewards]
    return [mean_gap(rewards, i) for i in range(len(rewards))]


def mean_gap(numbers: Sequence[float], i: int) -> float:
    """The i-th number minus the mean of all others."""
    return numbers[i] - mean([x for j, x in enumerate(numbers) if j != i])


def rloo(groups: Groups, *, beta: float, off_policy: str, aggregate: str = "sequence_sum") -> Tensor:
    """1.2: without a ratio, with each token's, or with that of the completion as one ``action``.

    The ratios are differentiated; an action's is prod_t (pi / pi_old).
    """
    losses: list[list[Tensor]] = []
    for group in groups:
        for sample, a in zip(group, rloo_advantages(group, beta=beta), strict=True):
            logs = [x - old for x, old in zip(sample.logprobs, sample.old, strict=True)]
            row = []
            for t, logprob in enumerate(sample.logprobs):
                if off_policy == "none":
                    row.append(-a * logprob)
                elif off_policy == "token":
                    row.append(-a * ratio(logprob, sample.old[t]))
                else:
                    # One number per completion; spread evenly, so that the sum over tokens is -A prod rho.
                    whole = torch.exp(torch.stack(logs).sum().clamp(-20.0, 20.0))
                    row.append(-a * whole / len(logs))
            losses.append(row)
    return averaged(losses, aggregate)


def reinforce_pp_advantages(
    groups: Groups, *, group_baseline: bool, beta: float, gamma: float, ddof: int, epsilon: float
) -> list[list[float]]:
    """1.3: r_t = -beta (log pi_old - log ref)_t, R at the end; return-to-go; whitened over all tokens.

    ``group_baseline``: R_i minus the group's mean takes the place of R_i.
    """
    returns: list[list[float]] = []
    for group in groups:
        ends = centered(group) if group_baseline else [reward(sample) for sample in group]
        for sample, end in zip(group, ends, strict=True):
            length = len(sample.logprobs)
            earned = [0.0] * length
            for t in range(length):
                if beta > 0:
                    earned[t] -= beta * (sample.old[t] - sample.reference[t])
            earned[-1] += end
            # Unrolled: G_t = sum_k gamma^k r_{t+k}.
            returns.append(
                [math.fsum(gamma**k * earned[t + k] for k in range(length - t)) for t in range(length)]
            )
    everything = [g for row in returns for g in row]
    if max(everything) - min(everything) == 0.0:
        return [[0.0 for _ in row] for row in returns]
    center, spread = mean(everything), standard_deviation(everything, ddof=ddof)
    return [[(g - center) / (spread + epsilon) for g in row] for row in returns]


def reinforce_pp(
    groups: Groups,
    *,
    group_baseline: bool,
    beta: float,
    gamma: float,
    ddof: int,
    epsilon: float,
    low: float,
    high: float,
    aggregate: str = "token_mean",
) -> Tensor:
    """1.3: PPO's clip on whitened returns-to-go, token mean."""
    advantages = reinforce_pp_advantages(
        groups, group_baseline=group_baseline, beta=beta, gamma=gamma, ddof=ddof, epsilon=epsilon
    )
    losses: list[list[Tensor]] = []
    flat = [sample for group in groups for sample in group]
    for sample, row in zip(flat, advantages, strict=True):
        losses.append(
            [
                -clipped(ratio(logprob, sample.old[t]), row[t], low=low, high=high)
                for t, logprob in enumerate(sample.logprobs)
            ]
        )
    return averaged(losses, aggregate)


def overlong_penalty(length: int, *, longest: int, cache: int) -> float:
    """1.7: 0 up to L_max - L_c, a straight line down to -1 at L_max, -1 beyond."""
    if length <= longest - cache:
        return 0.0
    if length > longest:
        return -1.0
    return ((longest - cache) - length) / cache


def dapo_rewards(
    group: Sequence[Sample], *, right: float, wrong: float, longest: int, cache: int
) -> list[float]:
    """1.7: the reward of a right or a wrong answer (the paper's +1 and -1) plus the overlong penalty.

    Rewards between 0 and 1 lie on the line between the two. ``cache`` 0 is no penalty.
    """
    found = []
    for sample in group:
        shaped = wrong + (right - wrong) * reward(sample)
        if cache > 0:
            shaped += overlong_penalty(len(sample.logprobs), longest=longest, cache=cache)
        found.append(shaped)
    return found


def standardized_numbers(numbers: Sequence[float], *, epsilon: float) -> list[float]:
    """1.5's advantage, of numbers instead of samples; 0 for fewer than two or for equal ones."""
    if len(numbers) < 2 or max(numbers) == min(numbers):
        return [0.0 for _ in numbers]
    spread = standard_deviation(numbers, ddof=1) + epsilon
    return [(x - mean(numbers)) / spread for x in numbers]


def dapo(
    groups: Groups,
    *,
    low: float,
    high: float,
    epsilon: float,
    right: float,
    wrong: float,
    longest: int,
    cache: int,
    keep_truncated: bool = True,
    count_truncated: bool = True,
) -> Tensor:
    """1.7: advantages of shaped rewards, asymmetric clip, mean over tokens of the step.

    Overlong filtering (``keep_truncated`` false) takes away the loss of truncated responses, which still take
    part in their group's statistics; ``count_truncated`` leaves their tokens in the mean's denominator.
    """
    losses: list[list[Tensor]] = []
    for group in groups:
        shaped = dapo_rewards(group, right=right, wrong=wrong, longest=longest, cache=cache)
        for sample, a in zip(group, standardized_numbers(shaped, epsilon=epsilon), strict=True):
            dropped = not keep_truncated and not sample.is_finished
            if dropped and not count_truncated:
                continue
            losses.append(
                [
                    (0.0 if dropped else -1.0) * clipped(ratio(logprob, old), a, low=low, high=high)
                    for logprob, old in zip(sample.logprobs, sample.old, strict=True)
                ]
            )
    return averaged(losses, "token_mean")


def gspo(groups: Groups, *, low: float, high: float, epsilon: float, token_form: bool) -> Tensor:
    """1.8: s_i = exp of the mean log-ratio; mean_i min(s A, clip(s) A).

    ``token_form``: at each token sg(s_i) pi / sg(pi) in the place of s_i, averaged over its tokens.
    """
    total = torch.zeros((), dtype=torch.float64)
    present = [sample for group in groups for sample in group if len(sample.logprobs) > 0]
    for group in groups:
        for sample, a in zip(group, standardized(group, epsilon=epsilon), strict=True):
            logs = [x - old for x, old in zip(sample.logprobs, sample.old, strict=True)]
            s = torch.exp((torch.stack(logs).sum() / len(logs)).clamp(-20.0, 20.0))
            if not token_form:
                total = total - clipped(s, a, low=low, high=high) / len(present)
                continue
            for logprob in sample.logprobs:
                here = value(s) * torch.exp(logprob - value(logprob))
                total = total - clipped(here, a, low=low, high=high) / len(logs) / len(present)
    return total


def cispo(groups: Groups, *, floor: float, cap: float, epsilon: float) -> Tensor:
    """1.9: sg(clip(rho, floor, cap)) A log pi over all tokens; the two bounds are ratios themselves."""
    losses: list[list[Tensor]] = []
    for group in groups:
        for sample, a in zip(group, standardized(group, epsilon=epsilon), strict=True):
            row = []
            for logprob, old in zip(sample.logprobs, sample.old, strict=True):
                held = min(max(capped_exp(value(logprob) - old), floor), cap)
                row.append(-held * a * logprob)
            losses.append(row)
    return averaged(losses, "token_mean")
