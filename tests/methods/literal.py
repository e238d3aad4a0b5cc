"""Slow, literal transcriptions of the published formulas: plain loops over traces and tokens.

Written from the method notes alone, before any file of ``bimetal.methods`` was opened, and without
``bimetal.objectives``. The notes are two pages, ``methods.md`` (sections "A common frame", A1, B1, B2) and
``rl_and_data.md`` (sections 0, 1.4, 1.5, 1.6, 1.27). Each function names its own. What the notes leave open
is an argument, never a choice made here.

Log-probabilities and values are float64 scalars of torch, so that autograd gives the gradient of the formula;
everything that the formula does not differentiate (old, reference, rewards, old values) is a Python float.
Every function returns a loss: minus the objective where the notes maximize one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One response: one entry per token that carries loss; ``reward`` is ``None`` where nobody knows it.

    ``authored`` are the log-probabilities of whoever wrote the tokens: the sampling engine, or a
    demonstration's author. ``rows`` and ``reference_rows`` are whole next-token distributions, in nats.
    """

    logprobs: Sequence[Tensor]
    reward: float | None = None
    old: Sequence[float] = ()
    reference: Sequence[float] = ()
    values: Sequence[Tensor] = ()
    old_values: Sequence[float] = ()
    entropies: Sequence[Tensor] = ()
    is_demonstration: bool = False
    is_finished: bool = True
    authored: Sequence[float] = ()
    rows: Sequence[Tensor] = ()
    reference_rows: Sequence[Tensor] = ()


def sft(samples: Sequence[Sample], *, aggregate: str) -> Tensor:
    """A1 with the aggregation table of the frame: minus the log-likelihood under one of three normalizers."""
    losses = [[-logprob for logprob in sample.logprobs] for sample in samples]
    return averaged(losses, aggregate)


def averaged(losses: Sequence[Sequence[Tensor]], aggregate: str, *, constant: float = 1.0) -> Tensor:
    """The aggregation table ("What Z is"): the whole step's token losses -> one number.

    Sequences without a loss token are excluded from N; with no token at all the mean is 0.
    """
    present = [row for row in losses if len(row) > 0]
    n = len(present)
    n_tok = 0
    for row in present:
        n_tok += len(row)
    total = torch.zeros((), dtype=torch.float64)
    for row in present:
        divisors = {"token_mean": n_tok, "sequence_mean": n * len(row), "sequence_sum": n}
        divisor = {**divisors, "fixed_length": n * constant}[aggregate]
        for loss in row:
            total = total + loss / divisor
    return total


def mean(numbers: Sequence[float]) -> float:
    """The arithmetic mean."""
    return math.fsum(numbers) / len(numbers)


def standard_deviation(numbers: Sequence[float], *, ddof: int) -> float:
    """With N - ddof in the denominator."""
    center = mean(numbers)
    return math.sqrt(math.fsum([(x - center) ** 2 for x in numbers]) / (len(numbers) - ddof))


def centered(group: Sequence[Sample]) -> list[float]:
    """R_i - mean R over the known members; 0 in a group with fewer than two of them (and for the unknown)."""
    known = [sample.reward for sample in group if sample.reward is not None]
    if len(known) < 2:
        return [0.0 for _ in group]
    return [0.0 if sample.reward is None else sample.reward - mean(known) for sample in group]


def standardized(group: Sequence[Sample], *, epsilon: float) -> list[float]:
    """1.5: (R_i - mean R) / (std R + eps), sample deviation; exactly 0 where all rewards are equal."""
    known = [sample.reward for sample in group if sample.reward is not None]
    if len(known) < 2 or max(known) == min(known):
        return [0.0 for _ in group]
    return [a / (standard_deviation(known, ddof=1) + epsilon) for a in centered(group)]


def ratio(logprob: Tensor, old: float) -> Tensor:
    """exp(log pi_theta - log pi_old), the log-ratio clamped to +-20 before exp (1.4)."""
    return torch.exp(torch.clamp(logprob - old, -20.0, 20.0))


def clipped(rho: Tensor, advantage: float, *, low: float, high: float, dual: float | None = None) -> Tensor:
    """min(rho A, clip(rho, 1 - low, 1 + high) A); with ``dual`` and A < 0, not below dual * A (1.4)."""
    first = rho * advantage
    second = torch.clamp(rho, 1.0 - low, 1.0 + high) * advantage
    value = first if float(first.detach()) <= float(second.detach()) else second
    if dual is not None and advantage < 0.0 and float(value.detach()) < dual * advantage:
        return torch.full((), dual * advantage, dtype=torch.float64)
    return value


def k3(logprob: Tensor, reference: float) -> Tensor:
    """1.27: exp(-lr) - 1 + lr with lr = log pi - log ref."""
    lr = logprob - reference
    return torch.exp(-lr) - 1.0 + lr


def grpo(
    groups: Sequence[Sequence[Sample]],
    *,
    low: float,
    high: float,
    beta: float,
    epsilon: float,
    aggregate: str = "sequence_mean",
) -> Tensor:
    """1.5: -mean_i (1 / T_i) sum_t [ min(rho A, clip(rho) A) - beta k3 ]."""
    losses: list[list[Tensor]] = []
    for group in groups:
        advantages = standardized(group, epsilon=epsilon)
        for sample, advantage in zip(group, advantages, strict=True):
            row = []
            for t, logprob in enumerate(sample.logprobs):
                objective = clipped(ratio(logprob, sample.old[t]), advantage, low=low, high=high)
                if beta > 0.0:
                    objective = objective - beta * k3(logprob, sample.reference[t])
                row.append(-objective)
            losses.append(row)
    return averaged(losses, aggregate)


def dr_grpo(groups: Sequence[Sequence[Sample]], *, low: float, high: float, constant: float) -> Tensor:
    """1.6 and 0 (seq-sum-const): A_i = R_i - mean R; -mean_i (1 / C) sum_t min(rho A, clip(rho) A)."""
    losses: list[list[Tensor]] = []
    for group in groups:
        for sample, advantage in zip(group, centered(group), strict=True):
            losses.append(
                [
                    -clipped(ratio(logprob, old), advantage, low=low, high=high)
                    for logprob, old in zip(sample.logprobs, sample.old, strict=True)
                ]
            )
    return averaged(losses, "fixed_length", constant=constant)


def generalized_advantages(
    reward: float, values: Sequence[float], *, gamma: float, lam: float
) -> tuple[list[float], list[float]]:
    """1.4: delta_t = r_t + gamma V_{t+1} - V_t; A_t = delta_t + gamma lambda A_{t+1}; target A_t + V_t.

    The reward sits on the last token; beyond it the value is 0.
    """
    length = len(values)
    advantages = [0.0] * length
    for t in range(length):
        # The recursion unrolled, so that it shares nothing with a backward loop:
        # A_t = sum_k (gamma lam)^k delta_{t+k}.
        for k in range(length - t):
            here = t + k
            following = values[here + 1] if here + 1 < length else 0.0
            earned = reward if here == length - 1 else 0.0
            delta = earned + gamma * following - values[here]
            advantages[t] += (gamma * lam) ** k * delta
    return advantages, [a + v for a, v in zip(advantages, values, strict=True)]


def ppo(
    samples: Sequence[Sample],
    *,
    low: float,
    high: float,
    dual: float | None,
    gamma: float,
    lam: float,
    whitening_ddof: int | None,
    whitening_epsilon: float,
    value_coefficient: float,
    value_clip: float | None,
    aggregate: str = "token_mean",
    value_aggregate: str = "token_mean",
) -> Tensor:
    """1.4 (whitening as in 1.3): the clipped policy loss plus value_coefficient times the value loss.

    Advantages and targets come from the old values; the advantages, never the targets, are whitened over all
    tokens of the batch. ``whitening_ddof`` is ``None`` for no whitening.
    """
    advantages: list[list[float]] = []
    targets: list[list[float]] = []
    for sample in samples:
        assert sample.reward is not None
        a, target = generalized_advantages(sample.reward, sample.old_values, gamma=gamma, lam=lam)
        advantages.append(a)
        targets.append(target)
    if whitening_ddof is not None:
        everything = [a for row in advantages for a in row]
        center, spread = mean(everything), standard_deviation(everything, ddof=whitening_ddof)
        advantages = [[(a - center) / (spread + whitening_epsilon) for a in row] for row in advantages]
    policy: list[list[Tensor]] = []
    value: list[list[Tensor]] = []
    for i, sample in enumerate(samples):
        policy.append(
            [
                -clipped(ratio(logprob, sample.old[t]), advantages[i][t], low=low, high=high, dual=dual)
                for t, logprob in enumerate(sample.logprobs)
            ]
        )
        value.append(
            [
                value_loss(v, sample.old_values[t], targets[i][t], clip=value_clip)
                for t, v in enumerate(sample.values)
            ]
        )
    return averaged(policy, aggregate) + value_coefficient * averaged(value, value_aggregate)


def value_loss(value: Tensor, old: float, target: float, *, clip: float | None) -> Tensor:
    """1.4: 0.5 max( (V - Ret)^2, (clip(V, V_old - e, V_old + e) - Ret)^2 )."""
    free = (value - target) ** 2
    if clip is None:
        return 0.5 * free
    held = (torch.clamp(value, old - clip, old + clip) - target) ** 2
    return 0.5 * (free if float(free.detach()) >= float(held.detach()) else held)


def chord_mu(k: float, *, peak: float, valley: float, warmup: float, decay: float) -> float:
    """B1: linear 0 -> peak over W, valley + (peak - valley)(1 + cos(pi (k - W) / D)) / 2 over D, valley."""
    if k < warmup:
        return peak * k / warmup
    if k < warmup + decay:
        return valley + 0.5 * (peak - valley) * (1.0 + math.cos(math.pi * (k - warmup) / decay))
    return valley


def chord(
    groups: Sequence[Sequence[Sample]],
    demonstrations: Sequence[Sample],
    *,
    mu: float,
    phi: bool,
    low: float,
    high: float,
    epsilon: float,
    aggregate: str,
) -> Tensor:
    """B1: (1 - mu) L_GRPO + mu L_SFT; phi weights the demonstrations' tokens by sg[p (1 - p)]; each part is a
    mean over its own kind of samples of the step, the imitation part over tokens."""
    rows: list[list[Tensor]] = []
    for sample in demonstrations:
        row = []
        for logprob in sample.logprobs:
            p = math.exp(float(logprob.detach()))
            row.append(-logprob * (p * (1.0 - p) if phi else 1.0))
        rows.append(row)
    imitation = averaged(rows, "token_mean")
    explore = grpo(groups, low=low, high=high, beta=0.0, epsilon=epsilon, aggregate=aggregate)
    return (1.0 - mu) * explore + mu * imitation


def luffy(
    groups: Sequence[Sequence[Sample]], *, gamma: float, longest: float, entropy: float = 0.0
) -> Tensor:
    """B2: the demonstration is a member of its group and of its mean; no std; on-policy -A p / pi_old without
    clip, off-policy -A f(p) with f(p) = p / (p + gamma); all token losses in one sum; minus entropy times the
    mean entropy of the response tokens.

    Divided by L_max and by the number of sequences of the step, so that the step does not depend on how many
    sequences a micro-batch holds (the published code divides the micro-batch's sum by L_max alone).
    """
    total = torch.zeros((), dtype=torch.float64)
    sequences = 0
    for group in groups:
        for sample, advantage in zip(group, centered(group), strict=True):
            if len(sample.logprobs) > 0:
                sequences += 1
            for t, logprob in enumerate(sample.logprobs):
                if sample.is_demonstration:
                    p = torch.exp(logprob)
                    total = total - advantage * p / (p + gamma)
                else:
                    total = total - advantage * ratio(logprob, sample.old[t])
    spread = averaged([sample.entropies for group in groups for sample in group], "token_mean")
    return total / longest / sequences - entropy * spread
