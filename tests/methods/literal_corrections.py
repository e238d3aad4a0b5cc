"""Literal transcriptions of corrections and penalties of RL losses, of C3PO, DPO and expert iteration.

Written from ``rl_and_data.md``, part 1, alone: sections 1.12 (C3PO), 1.19 (rollout against trainer), 1.20
(decoupled PPO), 1.21 (DPO), 1.25 (expert iteration) and 1.27 (divergence estimators), before a file of these
methods existed, and without ``bimetal.objectives``. Conventions are those of ``literal_rl.py``;
``Sample.authored`` is log mu.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from tests.methods.literal import Sample, averaged, clipped, k3, mean, ratio, standardized
from tests.methods.literal_rl import Groups, Weigh, capped_exp, reward, value
from torch import Tensor


def gaps(sample: Sample) -> list[float]:
    """1.19: log pi_old - log mu, per token."""
    return [old - mu for old, mu in zip(sample.old, sample.authored, strict=True)]


def truncated_tokens(cap: float, floor: float = 0.0) -> Weigh:
    """1.19, TIS by token: min(w, C), optionally not below a bound."""
    return lambda sample, a: [max(floor, min(capped_exp(gap), cap)) for gap in gaps(sample)]


def truncated_sequences(cap: float) -> Weigh:
    """1.19, TIS by sequence: min(prod w, C) at every token."""
    return lambda sample, a: [min(capped_exp(math.fsum(gaps(sample))), cap)] * len(sample.old)


def inside_tokens(low: float, high: float) -> Weigh:
    """1.19, IcePop: w where low <= w <= high, else 0."""

    def weigh(sample: Sample, a: float) -> list[float]:
        found = []
        for gap in gaps(sample):
            w = capped_exp(gap)
            found.append(w if low <= w <= high else 0.0)
        return found

    return weigh


def inside_sequences(low: float, high: float) -> Weigh:
    """1.19, sequence mask: every token's own w where the geometric mean of w lies in the band, else 0."""

    def weigh(sample: Sample, a: float) -> list[float]:
        center = capped_exp(mean(gaps(sample)))
        return [capped_exp(gap) if low <= center <= high else 0.0 for gap in gaps(sample)]

    return weigh


def divergent(kind: str, *, by: str, threshold: float) -> Weigh:
    """1.19, rejection by divergence: 0 where the estimate of KL(mu || pi_old) is above a threshold, else 1.

    Samples are mu's, so log mu - log pi_old takes the place of lr in 1.27. ``by``: each ``token``'s own
    estimate, or the sequence's ``sum``, ``mean`` or ``max``.
    """

    def weigh(sample: Sample, a: float) -> list[float]:
        estimates = [estimate(kind, -gap) for gap in gaps(sample)]
        if by == "token":
            return [0.0 if x > threshold else 1.0 for x in estimates]
        whole = {"sum": math.fsum(estimates), "mean": mean(estimates), "max": max(estimates)}[by]
        return [0.0 if whole > threshold else 1.0 for _ in estimates]

    return weigh


def off_policy_sequences(delta: float) -> Weigh:
    """1.19, off-policy sequence mask: 0 where A < 0 and mean(log mu - log pi_theta) > delta, else 1."""

    def weigh(sample: Sample, a: float) -> list[float]:
        drift = mean([mu - value(x) for mu, x in zip(sample.authored, sample.logprobs, strict=True)])
        return [0.0 if a < 0.0 and drift > delta else 1.0 for _ in sample.logprobs]

    return weigh


def estimate(kind: str, log_ratio: float) -> float:
    """1.27: k1 = lr, k2 = lr^2 / 2, k3 = exp(-lr) - 1 + lr."""
    return {
        "k1": log_ratio,
        "k2": log_ratio**2 / 2.0,
        "k3": capped_exp(-log_ratio) - 1.0 + log_ratio,
    }[kind]


def weighted_grpo(
    groups: Groups, *, weigh: Weigh, low: float, high: float, epsilon: float, aggregate: str
) -> Tensor:
    """1.19 and 1.20: sg(weight) min(u A, clip(u) A) with u = pi / pi_old.

    Decoupled PPO is ``weigh=truncated_tokens(math.inf)``: (pi_prox / mu) min(u A, clip(u) A) with pi_prox =
    pi_old. A weight of 0 stays in the denominator.
    """
    losses: list[list[Tensor]] = []
    for group in groups:
        for sample, a in zip(group, standardized(group, epsilon=epsilon), strict=True):
            weights = weigh(sample, a)
            losses.append(
                [
                    -weights[t] * clipped(ratio(logprob, sample.old[t]), a, low=low, high=high)
                    for t, logprob in enumerate(sample.logprobs)
                ]
            )
    return averaged(losses, aggregate)


def proximal(sample: Sample, *, share: float) -> list[float]:
    """1.20, cheaper proximal: log pi_prox = log mu + a (log pi_theta - log mu), a in [0, 1], detached."""
    return [mu + share * (value(x) - mu) for mu, x in zip(sample.authored, sample.logprobs, strict=True)]


def penalty(kind: str, logprob: Tensor, reference: float, *, written: float | None = None) -> Tensor:
    """1.27, put in the loss: k1, k2, k3, and two of the true reverse divergence's gradient.

    ``weighted_k3`` is rho k3, rho = pi / q differentiated too, q = ``written`` the policy that sampled;
    ``k3_plus`` has the value of k3 and the gradient of k2.
    """
    lr = logprob - reference
    if kind == "k1":
        return lr
    if kind == "k2":
        return lr**2 / 2.0
    third = torch.exp(-lr) - 1.0 + lr
    if kind == "k3":
        return third
    if kind == "k3_plus":
        return lr**2 / 2.0 + (value(third) - value(lr) ** 2 / 2.0)
    assert kind == "weighted_k3" and written is not None
    return ratio(logprob, written) * third


def divergence(samples: Sequence[Sample], *, kind: str, written: str, aggregate: str) -> Tensor:
    """1.27: the penalty, averaged as the loss beside it; ``written`` is "old" or "authored", whose rho is."""
    losses = []
    for sample in samples:
        authors = {"old": sample.old, "authored": sample.authored}[written]
        losses.append(
            [
                penalty(kind, logprob, sample.reference[t], written=authors[t])
                for t, logprob in enumerate(sample.logprobs)
            ]
        )
    return averaged(losses, aggregate)


def spent_in_reward(sample: Sample, *, beta: float) -> list[float]:
    """1.27, put in the reward: -beta k1 at each token, detached, of the policy that sampled (as in 1.3)."""
    return [-beta * (old - ref) for old, ref in zip(sample.old, sample.reference, strict=True)]


def margin(chosen: Sample, rejected: Sample, *, beta: float) -> Tensor:
    """1.21: h = beta [(log pi+ - log ref+) - (log pi- - log ref-)], sums over tokens."""
    total = torch.zeros((), dtype=torch.float64)
    for sample, sign in ((chosen, 1.0), (rejected, -1.0)):
        for logprob, reference in zip(sample.logprobs, sample.reference, strict=True):
            total = total + sign * beta * (logprob - reference)
    return total


def log_sigmoid(x: Tensor) -> Tensor:
    """log(1 / (1 + exp(-x))), in the form whose exponent is not positive."""
    return x - torch.log1p(torch.exp(x)) if value(x) < 0.0 else -torch.log1p(torch.exp(-x))


def dpo(
    pairs: Sequence[tuple[Sample, Sample]], *, beta: float, smoothing: float, identity: bool, imitation: float
) -> Tensor:
    """1.21: the mean over pairs (chosen, rejected) of -(1 - e) log sigmoid(h) - e log sigmoid(-h).

    With ``identity`` (IPO) of (h / beta - 1 / (2 beta))^2 instead; plus ``imitation`` times -log pi+ / |y+|.
    No pair gives 0.
    """
    total = torch.zeros((), dtype=torch.float64)
    for chosen, rejected in pairs:
        h = margin(chosen, rejected, beta=beta)
        if identity:
            loss = (h / beta - 1.0 / (2.0 * beta)) ** 2
        else:
            loss = -(1.0 - smoothing) * log_sigmoid(h) - smoothing * log_sigmoid(-h)
        for logprob in chosen.logprobs:
            loss = loss - imitation * logprob / len(chosen.logprobs)
        total = total + loss / len(pairs)
    return total


def expert_iteration_kept(group: Sequence[Sample], *, at_least: float, cap: int, prefer: str) -> list[int]:
    """1.25: at most ``cap`` verified responses of a prompt: the ``first``, ``shortest``, or ``best`` ones.

    Ties are decided by position.
    """
    right = [i for i, sample in enumerate(group) if reward(sample) >= at_least]
    keys = {
        "first": lambda i: (0.0, i),
        "shortest": lambda i: (float(len(group[i].logprobs)), i),
        "best": lambda i: (-reward(group[i]), i),
    }
    return sorted(sorted(right, key=keys[prefer])[:cap])


def expert_iteration(groups: Groups, *, at_least: float, cap: int, prefer: str, aggregate: str) -> Tensor:
    """1.25 (RAFT, STaR): maximum likelihood of the kept responses."""
    losses: list[list[Tensor]] = []
    for group in groups:
        for i in expert_iteration_kept(group, at_least=at_least, cap=cap, prefer=prefer):
            losses += [[-logprob for logprob in group[i].logprobs]]
    return averaged(losses, aggregate)


def c3po_selected(lengths: Sequence[int], *, order: Sequence[int], budget: int) -> list[int]:
    """1.12: in this order, until the tokens taken first reach the budget."""
    taken: list[int] = []
    tokens = 0
    for i in order:
        if tokens >= budget:
            break
        taken.append(i)
        tokens += lengths[i]
    return taken


def c3po(
    groups: Groups,
    *,
    order: Sequence[int],
    budget: int,
    low: float,
    high: float,
    beta: float,
    entropy: float,
    epsilon: float,
) -> Tensor:
    """1.12: advantages of whole groups; -[min(rho A, clip A) - beta k3] - entropy H of selected tokens.

    All is divided by the constant budget. ``order`` numbers the responses of all groups.
    """
    pairs = []
    for group in groups:
        pairs += list(zip(group, standardized(group, epsilon=epsilon), strict=True))
    total = torch.zeros((), dtype=torch.float64)
    for i in c3po_selected([len(s.logprobs) for s, _ in pairs], order=order, budget=budget):
        sample, a = pairs[i]
        for t, logprob in enumerate(sample.logprobs):
            total = total - clipped(ratio(logprob, sample.old[t]), a, low=low, high=high) / budget
            if beta > 0:
                total = total + beta * k3(logprob, sample.reference[t]) / budget
            if entropy > 0:
                total = total - entropy * sample.entropies[t] / budget
    return total
