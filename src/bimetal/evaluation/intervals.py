"""Intervals over problems: how far a mean could move if other problems of the same kind had been drawn.

    wilson           0/1 scores, one answer per problem: the score interval of a proportion
    bounded_t        any scores in a known range: Student's t over the scores and one invented score
                     at each end of the range, cut to the range
    sum_of_parts     a mean over independent domains, out of the domains' own intervals

The two invented scores keep an interval honest where a plain t interval or a bootstrap has none of
its promise: 40 problems of which none was solved have a variance of 0, and accuracy near 0 or 1 is
where models start and end. For a difference of two 0/1 scores they are the interval of Bonett and
Price (2012, adjusted Wald for paired proportions); for a proportion, nearly that of Agresti and
Coull (1998). Measured coverage is in the tests.

An interval of one run covers problems only. It says nothing of what another training seed would give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

COVERS = "problems"
"""What every interval of one run covers: the draw of problems, not the training seed."""

LEVEL = 0.95
"""Share of such intervals that hold the true value."""

LEAST = 2
"""Fewest problems that have an interval."""

MAX_NEWTON_STEPS = 100
"""Far more than a quantile needs; about ten."""

SMALLEST_STEP = 1e-14
"""Relative step at which a quantile is as exact as its sum."""

MethodName = Literal["wilson", "bounded_t", "sum_of_parts", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean with its interval over problems.

    ``Estimate(value=0.5, low=0.31, high=0.69, n=24, method="wilson")``

    ``value`` is ``None`` where there are no problems; ``low`` and ``high`` are ``None`` where there is
    no interval, and then ``reason`` says why. ``n`` counts problems, never answers. The parts of a
    sum add their problems up.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    method: MethodName
    reason: str = ""
    covers: str = COVERS

    @property
    def is_above_zero(self) -> bool:
        """Whether the whole interval is above 0; never where there is none."""
        return self.low is not None and self.low > 0


def mean_estimate(scores: Sequence[float], *, level: float = LEVEL) -> Estimate:
    """The mean of per-problem scores in [0, 1]: ``wilson`` if all are 0 or 1, else ``bounded_t``.

    >>> mean_estimate([1.0, 0.0, 0.0, 0.0]).value
    0.25
    """
    if all(score in {0.0, 1.0} for score in scores):
        return proportion(sum(score == 1.0 for score in scores), len(scores), level=level)
    return bounded_mean(scores, low=0.0, high=1.0, level=level)


def proportion(successes: int, n: int, *, level: float = LEVEL) -> Estimate:
    """The share of problems solved, one 0/1 score each, with Wilson's interval (1927).

    >>> [round(x, 4) for x in (proportion(5, 10).low, proportion(5, 10).high)]
    [0.2366, 0.7634]

    Raises:
        ValueError: ``successes`` is not in 0..n.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"successes must be in 0..n; got {successes} of {n}")
    if n < LEAST:
        return _without(successes / n if n else None, n)
    z = NormalDist().inv_cdf(0.5 + level / 2)
    share = successes / n
    # (p + z^2/2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2/n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = ((share + z * z / (2 * n) + sign * half) / (1 + z * z / n) for sign in (-1, 1))
    # At 0 and n one bound equals the share, but for rounding.
    bounds = (0.0 if successes == 0 else low, 1.0 if successes == n else high)
    return Estimate(value=share, low=bounds[0], high=bounds[1], n=n, method="wilson")


def bounded_mean(scores: Sequence[float], *, low: float, high: float, level: float = LEVEL) -> Estimate:
    """The mean of scores in [low, high], with Student's t over them and one score at each end.

    The degrees of freedom are those of the real scores. All equal scores, 0 variance included, have
    an interval like any others.

    Raises:
        ValueError: A score is outside the range, or not finite.
    """
    if not all(low <= score <= high for score in scores):
        raise ValueError(f"scores must be in [{low}, {high}]; got {min(scores)} to {max(scores)}")
    n = len(scores)
    if n < LEAST:
        return _without(scores[0] if n else None, n)
    value = math.fsum(scores) / n
    widened = [*scores, low, high]
    center = math.fsum(widened) / (n + 2)
    variance = math.fsum((score - center) ** 2 for score in widened) / (n + 1)
    half = t_quantile(0.5 + level / 2, n - 1) * math.sqrt(variance / (n + 2))
    return Estimate(
        value=value,
        low=min(value, max(low, center - half)),
        high=max(value, min(high, center + half)),
        n=n,
        method="bounded_t",
    )


def paired_difference(
    before: Mapping[str, float], after: Mapping[str, float], *, level: float = LEVEL
) -> Estimate:
    """The mean of ``after`` minus ``before`` over the problems both have, scores in [0, 1].

    >>> paired_difference({"a": 0.0, "b": 1.0, "c": 0.0}, {"a": 1.0, "b": 1.0, "d": 1.0}).value
    0.5
    """
    shared = sorted(before.keys() & after.keys())
    found = bounded_mean([after[key] - before[key] for key in shared], low=-1.0, high=1.0, level=level)
    return found if shared else replace(found, reason="the two have no problem in common")


def average(parts: Sequence[Estimate]) -> Estimate:
    """The mean over domains, each weighing the same, whatever its number of problems.

    Problems of different domains are drawn independently, so the distances from the value to the
    bounds add up as squares (Zou and Donner 2008, doi:10.1002/sim.3095).
    """
    n = sum(part.n for part in parts)
    values = [part.value for part in parts if part.value is not None]
    if not parts or len(values) < len(parts):
        return replace(_without(None, n), reason="a domain has no known score" if parts else "no domains")
    value = math.fsum(values) / len(parts)
    below = [p.value - p.low for p in parts if p.value is not None and p.low is not None]
    above = [p.high - p.value for p in parts if p.value is not None and p.high is not None]
    if len(below) < len(parts) or len(above) < len(parts):
        return replace(_without(value, n), reason="a domain has too few problems for an interval")
    return Estimate(
        value=value,
        low=value - math.hypot(*below) / len(parts),
        high=value + math.hypot(*above) / len(parts),
        n=n,
        method="sum_of_parts",
    )


def t_quantile(share: float, freedom: int) -> float:
    """The value that Student's t with so many degrees of freedom stays below with this probability.

    >>> round(t_quantile(0.975, 1), 4), round(t_quantile(0.975, 9), 4)
    (12.7062, 2.2622)

    Raises:
        ValueError: The probability is not between 0 and 1, or there is no degree of freedom.
    """
    if not 0 < share < 1 or freedom < 1:
        raise ValueError(f"needs a probability in (0, 1) and a degree of freedom; got {share}, {freedom}")
    if share < 0.5:
        return -t_quantile(1 - share, freedom)
    # With t = sqrt(freedom) tan(angle), P(|t| < ...) is a finite sum in the angle, rising and concave,
    # with slope  scale cos^(freedom - 1);  so Newton's steps from 0 approach the angle from below.
    scale = 2 * math.exp(math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2)) / math.sqrt(math.pi)
    angle = 0.0
    for _ in range(MAX_NEWTON_STEPS):
        step = (2 * share - 1 - _inside(angle, freedom)) / (scale * math.cos(angle) ** (freedom - 1))
        angle += step
        if abs(step) <= SMALLEST_STEP * angle:
            break
    return math.sqrt(freedom) * math.tan(angle)


def _inside(angle: float, freedom: int) -> float:
    """P(|t| < sqrt(freedom) tan(angle)): Abramowitz and Stegun (1964), 26.7.3 and 26.7.4."""
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2 == 1
    # odd:   2/pi (angle + sin (cos + 2/3 cos^3 + 2*4/(3*5) cos^5 + ...))
    # even:  sin (1 + 1/2 cos^2 + 1*3/(2*4) cos^4 + ...)
    terms: list[float] = []
    factor = cosine if odd else 1.0
    for step in range(1, freedom // 2 + 1):
        terms.append(factor)
        top, bottom = (2 * step, 2 * step + 1) if odd else (2 * step - 1, 2 * step)
        factor *= cosine * cosine * top / bottom
    series = sine * math.fsum(terms)
    return 2 / math.pi * (angle + series) if odd else series


def _without(value: float | None, n: int) -> Estimate:
    reason = "no problem has a known score" if n == 0 else f"{n} problem; an interval needs {LEAST}"
    return Estimate(value=value, low=None, high=None, n=n, method="none", reason=reason)
