"""Literal transcriptions of the SFT family: plain loops over traces and tokens.

Written from ``methods.md``, part A (A2 to A5, A7, A8, A10 to A13), before any file of those methods was read,
and without ``bimetal.objectives``. Each function names its section. What the notes leave open is an argument,
never a choice made here.

Log-probabilities and the rows of log-distributions are float64 tensors of torch with their graph; everything
the formula detaches is turned into a Python float on the spot. Every function returns a loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from tests.methods.literal import Sample, averaged
from torch import Tensor


def dft(samples: Sequence[Sample], *, aggregate: str) -> Tensor:
    """A2: -(1/Z) sum_t sg[p_t] l_t."""
    return averaged(
        [[-math.exp(float(x.detach())) * x for x in sample.logprobs] for sample in samples], aggregate
    )


def dft_natural(samples: Sequence[Sample], *, aggregate: str) -> Tensor:
    """A2, equivalent natural form: -(1/Z) sum_t p_t without a stop; same gradient, another value."""
    return averaged([[-torch.exp(x) for x in sample.logprobs] for sample in samples], aggregate)


def asft(samples: Sequence[Sample], *, alpha: float, direction: str, aggregate: str) -> Tensor:
    """A2, relatives: DFT plus alpha times the full-vocabulary divergence between initial model and policy.

    ``direction`` is ``"initial_policy"`` for KL(pi_0 || pi_theta) or ``"policy_initial"``; the section names
    the two models and not the order.
    """
    rows = []
    for sample in samples:
        pairs = zip(sample.rows, sample.reference_rows, strict=True)
        rows.append([alpha * divergence(m, i, direction=direction) for m, i in pairs])
    return dft(samples, aggregate=aggregate) + averaged(rows, aggregate)


def divergence(mine: Tensor, initial: Tensor, *, direction: str) -> Tensor:
    """Kullback-Leibler divergence of two log-distributions, word by word, in nats."""
    total = torch.zeros((), dtype=torch.float64)
    for word in range(len(mine)):
        gap = mine[word] - initial[word]
        if direction == "initial_policy":
            total = total - torch.exp(initial[word]) * gap
        else:
            total = total + torch.exp(mine[word]) * gap
    return total


def eaft(
    samples: Sequence[Sample], *, divisor: float, top: int | None, exponent: float, aggregate: str
) -> Tensor:
    """A2, relatives: the token loss times sg[(H_t / divisor)^exponent].

    The section says "a normalised entropy" and no more: the normalizer, whether H is that of the ``top``
    likeliest words renormalized among themselves, and a power are arguments.
    """
    rows = []
    for sample in samples:
        row = []
        for logprob, distribution in zip(sample.logprobs, sample.rows, strict=True):
            chances = sorted((math.exp(float(x)) for x in distribution.detach()), reverse=True)[:top]
            whole = math.fsum(chances)
            spread = -math.fsum(c / whole * math.log(c / whole) for c in chances if c > 0.0)
            row.append(-((spread / divisor) ** exponent) * logprob)
        rows.append(row)
    return averaged(rows, aggregate)


def iw_sft(
    samples: Sequence[Sample], *, tau: float, low: float, high: float, aggregate: str = "sequence_sum"
) -> Tensor:
    """A3: w_i = sg[clamp(exp(tau mean_t(l_t - log pi_0)), low, high)]; sum_i w_i sum_t -l_t / N_items.

    "Items" may be sequences (``sequence_sum``) or, as trainers count them, tokens (``token_mean``).
    """
    rows = []
    for sample in samples:
        gaps = [float(x.detach()) - r for x, r in zip(sample.logprobs, sample.reference, strict=True)]
        weight = min(max(math.exp(tau * math.fsum(gaps) / len(gaps)), low), high)
        rows.append([-weight * x for x in sample.logprobs])
    return averaged(rows, aggregate)


def iw_sft_token(samples: Sequence[Sample], *, low: float, high: float, aggregate: str) -> Tensor:
    """A3, token variant: each token's sg[p / pi_0], clamped to [low, high], weighs its own loss."""
    rows = []
    for sample in samples:
        row = []
        for logprob, initial in zip(sample.logprobs, sample.reference, strict=True):
            row.append(-min(max(math.exp(float(logprob.detach()) - initial), low), high) * logprob)
        rows.append(row)
    return averaged(rows, aggregate)


def pear_weights(
    policy: Sequence[float],
    author: Sequence[float],
    *,
    variant: str,
    gamma: float,
    block: int,
    delta: tuple[float, float],
    log_weight: tuple[float, float],
) -> list[float]:
    """A4: G_t of every token from log pi_theta and log pi_beta; positions count from 1, as in the section."""
    length = len(policy)
    change = {t: min(max(policy[t - 1] - author[t - 1], delta[0]), delta[1]) for t in range(1, length + 1)}
    weights = []
    for t in range(1, length + 1):
        if variant == "sequence":
            exponent = math.fsum(change[j] for j in range(1, length + 1))
        elif variant == "token":
            exponent = (length - t) * math.log(gamma) + math.fsum(change[j] for j in range(t + 1, length + 1))
        else:
            # Blocks are 1..B, B+1..2B, ...; the last one may be short and ends at T.
            end = min(math.ceil(t / block) * block, length)
            later = math.fsum(change[j] for j in range(end + 1, length + 1))
            exponent = (length - end) * math.log(gamma) + later
        weights.append(math.exp(min(max(exponent, log_weight[0]), log_weight[1])))
    return weights


def pear(
    samples: Sequence[Sample],
    *,
    variant: str,
    gamma: float = 0.999,
    block: int = 4,
    delta: tuple[float, float] = (-0.08, 0.3),
    log_weight: tuple[float, float] = (-10.0, 5.0),
) -> Tensor:
    """A4: sum_t sg[G_t] (-l_t) / N_tok, ``variant`` is ``"sequence"``, ``"token"`` or ``"block"``."""
    rows = []
    for sample in samples:
        weights = pear_weights(
            [float(x.detach()) for x in sample.logprobs],
            sample.authored,
            variant=variant,
            gamma=gamma,
            block=block,
            delta=delta,
            log_weight=log_weight,
        )
        rows.append([-w * x for w, x in zip(weights, sample.logprobs, strict=True)])
    return averaged(rows, "token_mean")


def sed_sft(samples: Sequence[Sample], *, strength: float, top: int, threshold: float) -> Tensor:
    """A5: token mean of -l_t + lambda 1[Q_t < tau] (p_t (p_t - 1) + 1/4), Q_t the top-k mass, detached."""
    rows = []
    for sample in samples:
        row = []
        for logprob, distribution in zip(sample.logprobs, sample.rows, strict=True):
            mass = math.fsum(sorted((math.exp(float(x)) for x in distribution.detach()), reverse=True)[:top])
            loss = -logprob
            if mass < threshold:
                p = torch.exp(logprob)
                loss = loss + strength * (p * (p - 1.0) + 0.25)
            row.append(loss)
        rows.append(row)
    return averaged(rows, "token_mean")


def c_rlft(samples: Sequence[Sample], weights: Sequence[float], *, per_sequence: bool = False) -> Tensor:
    """A7: sum w_c (-l) / sum w_c over all tokens; ``per_sequence`` weighs a token w / (length + 1).

    ``weights`` is one class weight per sample. With one process the factor D is 1.
    """
    total, count = torch.zeros((), dtype=torch.float64), 0.0
    for sample, weight in zip(samples, weights, strict=True):
        for logprob in sample.logprobs:
            each = weight / (len(sample.logprobs) + 1) if per_sequence else weight
            total = total - each * logprob
            count += each
    return total / count if count > 0.0 else total


def on_policy_sft(samples: Sequence[Sample], *, aggregate: str = "token_mean") -> Tensor:
    """A8: the mean of -l over rollouts with reward > 0, a response cut at the limit having reward 0."""
    kept = [s for s in samples if s.reward is not None and s.reward > 0.0 and s.is_finished]
    return averaged([[-x for x in sample.logprobs] for sample in kept], aggregate)


def ift(samples: Sequence[Sample], *, gamma: float, detached: bool) -> Tensor:
    """A10: w_t proportional to sum_{j >= t} gamma^(j-t) n_j with mean 1; the sample mean of w n.

    ``logprobs`` are those of pass 2, under mixed inputs. gamma = 0 means weights 1. The section says that the
    published code does not detach the weights: ``detached`` is the switch it asks for.
    """
    rows = []
    for sample in samples:
        losses = [-x for x in sample.logprobs]
        length = len(losses)
        sums: list[Tensor] = []
        for t in range(length):
            suffix = torch.zeros((), dtype=torch.float64)
            for j in range(t, length):
                suffix = suffix + gamma ** (j - t) * losses[j]
            sums.append(suffix.detach() if detached else suffix)
        whole = torch.stack(sums).sum()
        weights = [length * s / whole if gamma > 0.0 else torch.ones_like(s) for s in sums]
        rows.append([w * n for w, n in zip(weights, losses, strict=True)])
    return averaged(rows, "sequence_mean")


def ift_inputs(
    table: Tensor, prompt: Sequence[int], response: Sequence[int], greedy: Sequence[int], *, share: float
) -> Tensor:
    """A10: input embeddings of pass 2, [prompt and response, width].

    Prompt positions keep their own; response position t gets (1 - share) e(gold_t) + share e(pred_t), where
    ``greedy[t]`` is the argmax of pass 1 at the position before it.
    """
    rows = [table[token] for token in prompt]
    for gold, predicted in zip(response, greedy, strict=True):
        rows.append((1.0 - share) * table[gold] + share * table[predicted])
    return torch.stack(rows)


def superhf(
    groups: Sequence[Sequence[Sample]],
    *,
    beta: float,
    aggregate: str = "sequence_sum",
    divergence_aggregate: str = "sequence_sum",
) -> Tensor:
    """A11: per group the member of highest reward (the first of equals): -log pi(y) + beta KL(pi_0 || pi).

    The divergence is over the vocabulary, at the kept member's tokens. The code sums it over a sample; what
    each part is averaged over is an argument.
    """
    likelihood, anchor = [], []
    for group in groups:
        best = best_of(group)
        if best is None:
            continue
        likelihood.append([-x for x in best.logprobs])
        if beta > 0.0:
            pairs = zip(best.rows, best.reference_rows, strict=True)
            anchor.append([beta * divergence(m, i, direction="initial_policy") for m, i in pairs])
    return averaged(likelihood, aggregate) + averaged(anchor, divergence_aggregate)


def rrhf(
    groups: Sequence[Sequence[Sample]], *, alpha: float, weight: float, best_divisor: str = "one"
) -> Tensor:
    """A12: s_i = sum_t l / T_i^alpha; w sum_{r_i < r_j} max(0, s_i - s_j) - sum_t l_best; mean over groups.

    The source has one prompt per batch: the mean over groups is this file's. ``best_divisor`` is ``"one"`` as
    in the formula or ``"length"`` for the mean over the best response's own tokens.
    """
    total, count = torch.zeros((), dtype=torch.float64), 0
    for group in groups:
        best = best_of(group)
        if best is None:
            continue
        count += 1
        known = [s for s in group if s.reward is not None]
        scores = [torch.stack(list(s.logprobs)).sum() / len(s.logprobs) ** alpha for s in known]
        for i, worse in enumerate(known):
            for j, better in enumerate(known):
                assert worse.reward is not None and better.reward is not None
                if worse.reward < better.reward and float((scores[i] - scores[j]).detach()) > 0.0:
                    total = total + weight * (scores[i] - scores[j])
        for logprob in best.logprobs:
            total = total - logprob / (len(best.logprobs) if best_divisor == "length" else 1)
    return total / max(count, 1)


def best_of(group: Sequence[Sample]) -> Sample | None:
    """The known member of highest reward, the first of equals."""
    best = None
    for sample in group:
        if sample.reward is not None and (best is None or sample.reward > (best.reward or 0.0)):
            best = sample
    return best


def stm(samples: Sequence[Sample], *, threshold: float, aggregate: str = "token_mean") -> Tensor:
    """A13: the mean of -l over the tokens with exp(-log pi_0) <= tau; the others leave the denominator too.

    A threshold of 0 or less turns the mask off, as the section says of the code.
    """
    rows = []
    for sample in samples:
        row = []
        for logprob, initial in zip(sample.logprobs, sample.reference, strict=True):
            if threshold <= 0.0 or math.exp(-initial) <= threshold:
                row.append(-logprob)
        rows.append(row)
    return averaged(rows, aggregate)
