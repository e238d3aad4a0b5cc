"""Metrics as (sum, count) until the moment they are displayed, so that they merge exactly.

Sums are kept as exact fractions: every float is one, so merging is associative and free of order, over
micro-batches, ranks and resumed runs alike. Extremes and totals are kinds of their own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, cast

from bimetal.core.errors import ConfigError
from bimetal.core.types import JsonValue

Number = int | float | Fraction
"""A sum: an integer or a fraction where it is finite, a float only where it is not."""

_NAME = re.compile(r"[a-z][a-z0-9_]*(?:/[A-Za-z0-9_][A-Za-z0-9_.\-]*)+")


def exact(value: Number) -> Number:
    """The same number in the form in which sums are kept.

    >>> exact(3), exact(2.0), exact(0.5), exact(float("inf"))
    (3, 2, Fraction(1, 2), inf)
    """
    if isinstance(value, float):
        if not math.isfinite(value):
            return value
        value = Fraction(value)
    return value.numerator if value.denominator == 1 else value


def _plus(a: Number, b: Number) -> Number:
    if isinstance(a, float) or isinstance(b, float):
        return _as_float(a) + _as_float(b)
    return a + b


def _as_float(value: Number) -> float:
    """The nearest float; an exact sum beyond the range of floats becomes an infinity."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@dataclass(frozen=True, slots=True)
class Metric:
    """A mean, kept as the sum of its observations and their number (or their total weight).

    >>> (Metric(1, 2) + Metric(2, 4)).value
    0.5
    """

    sum: Number
    count: Number

    def __post_init__(self) -> None:
        """Keep both in exact form.

        Raises:
            ValueError: The count is negative or not finite.
        """
        object.__setattr__(self, "sum", exact(self.sum))
        object.__setattr__(self, "count", exact(self.count))
        if isinstance(self.count, float) or self.count < 0:
            raise ValueError(f"the count of a metric must be finite and not negative; got {self.count}")

    def __add__(self, other: Metric) -> Metric:
        """The metric of both sets of observations together."""
        return Metric(_plus(self.sum, other.sum), _plus(self.count, other.count))

    @property
    def value(self) -> float | None:
        """The mean; ``None`` where nothing was observed."""
        if not self.count:
            return None
        if isinstance(self.sum, float):
            return self.sum
        return _as_float(Fraction(self.sum) / Fraction(self.count))


@dataclass(frozen=True, slots=True)
class Total:
    """A quantity that adds up, such as a number of tokens.

    >>> (Total(3) + Total(4)).value
    7
    """

    sum: Number

    def __post_init__(self) -> None:
        """Keep the sum in exact form."""
        object.__setattr__(self, "sum", exact(self.sum))

    def __add__(self, other: Total) -> Total:
        """The total of both."""
        return Total(_plus(self.sum, other.sum))

    @property
    def value(self) -> int | float:
        """The total, an ``int`` where it is whole; infinite beyond the range of floats."""
        shown = _as_float(self.sum)
        return self.sum if isinstance(self.sum, int) and math.isfinite(shown) else shown


@dataclass(frozen=True, slots=True)
class Extreme:
    """The smallest or the largest observation; not a number if one of them is not.

    >>> (Extreme(3.0, "max") + Extreme(5.0, "max")).value
    5.0
    """

    value: int | float
    kind: Literal["min", "max"]

    def __add__(self, other: Extreme) -> Extreme:
        """The extreme of both sets of observations.

        Raises:
            ValueError: One is a minimum and the other a maximum.
        """
        if self.kind != other.kind:
            raise ValueError(f"cannot merge a {self.kind} with a {other.kind}")
        if math.isnan(self.value) or math.isnan(other.value):
            return Extreme(math.nan, self.kind)
        pick = min if self.kind == "min" else max
        return Extreme(pick(self.value, other.value), self.kind)


Observation = Metric | Total | Extreme
"""One metric of any kind."""


class Metrics(Mapping[str, Observation]):
    """Metrics by name; adding one under a name that is there merges the two.

    >>> metrics = Metrics()
    >>> metrics.mean("reward/mean", 3.0, count=4)
    >>> metrics.mean("reward/mean", 1.0, count=4)
    >>> metrics.to_json()
    {'reward/mean': 0.5}
    """

    __slots__ = ("_found",)

    def __init__(self, found: Mapping[str, Observation] | None = None) -> None:
        """Start with these metrics, or with none."""
        self._found: dict[str, Observation] = {}
        for name, observation in (found or {}).items():
            self.add(name, observation)

    def __getitem__(self, name: str) -> Observation:
        """The metric of this name."""
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        """The names, sorted."""
        return iter(sorted(self._found))

    def __len__(self) -> int:
        """The number of names."""
        return len(self._found)

    def add(self, name: str, observation: Observation) -> None:
        """Merge one observation into the metric of this name.

        Raises:
            ConfigError: The name is not of the form ``area/quantity``, or is in use for another kind.
        """
        old = self._found.get(name)
        if old is None:
            self._found[check_name(name)] = observation
            return
        both = _together(old, observation)
        if both is None:
            raise ConfigError(
                f"metric {name!r} is {_label(old)} and cannot take {_label(observation)}; use two names"
            )
        self._found[name] = both

    def mean(self, name: str, total: Number, *, count: Number = 1) -> None:
        """Merge ``count`` observations that add up to ``total`` into a mean."""
        self.add(name, Metric(total, count))

    def total(self, name: str, amount: Number) -> None:
        """Add an amount to a total."""
        self.add(name, Total(amount))

    def smallest(self, name: str, value: int | float) -> None:
        """Merge an observation into a minimum."""
        self.add(name, Extreme(value, "min"))

    def largest(self, name: str, value: int | float) -> None:
        """Merge an observation into a maximum."""
        self.add(name, Extreme(value, "max"))

    def merged(self, other: Mapping[str, Observation]) -> Metrics:
        """Both collections together; neither changes."""
        return merge((self, other))

    def value(self, name: str) -> int | float | None:
        """The number to display; ``None`` where nothing was observed or the name is absent."""
        observation = self._found.get(name)
        return None if observation is None else observation.value

    def to_json(self) -> dict[str, JsonValue]:
        """Name -> number to display, sorted; ``None`` where nothing was observed or it is not finite."""
        shown: dict[str, JsonValue] = {}
        for name in self:
            value = self.value(name)
            shown[name] = value if value is not None and math.isfinite(value) else None
        return shown

    def to_state(self) -> dict[str, JsonValue]:
        """The exact state as JSON: what ranks send each other; ``from_state`` reads it."""
        return {name: _to_state(self._found[name]) for name in self}

    @classmethod
    def from_state(cls, state: Mapping[str, JsonValue]) -> Metrics:
        """The collection that ``to_state`` described."""
        return cls({name: _from_state(cast("Sequence[str]", parts)) for name, parts in state.items()})


def merge(collections: Iterable[Mapping[str, Observation]]) -> Metrics:
    """All collections together: micro-batches of a step, or its ranks."""
    whole = Metrics()
    for collection in collections:
        for name, observation in collection.items():
            whole.add(name, observation)
    return whole


def check_name(name: str) -> str:
    """The name itself, if it has the form ``area/quantity``.

    Raises:
        ConfigError: It has another form.
    """
    if _NAME.fullmatch(name) is None:
        raise ConfigError(
            f"metric name {name!r} is not of the form area/quantity; use lower case letters, digits and _ "
            "for the area, then a slash, as in 'term/imitation/loss'"
        )
    return name


def _together(a: Observation, b: Observation) -> Observation | None:
    """Both merged; ``None`` where they are of different kinds."""
    match a, b:
        case Metric(), Metric():
            return a + b
        case Total(), Total():
            return a + b
        case Extreme(), Extreme() if a.kind == b.kind:
            return a + b
        case _:
            return None


def _label(observation: Observation) -> str:
    return f"a {observation.kind}" if isinstance(observation, Extreme) else f"a {type(observation).__name__}"


def _number(text: str) -> Number:
    if text in {"nan", "inf", "-inf"}:
        return float(text)
    return Fraction(text) if "/" in text else int(text)


def _to_state(observation: Observation) -> list[JsonValue]:
    match observation:
        case Metric():
            return ["mean", str(observation.sum), str(observation.count)]
        case Total():
            return ["total", str(observation.sum)]
        case Extreme():
            return [observation.kind, float(observation.value).hex()]


def _from_state(parts: Sequence[str]) -> Observation:
    match parts:
        case ["mean", total, count]:
            return Metric(_number(total), _number(count))
        case ["total", total]:
            return Total(_number(total))
        case ["min", value]:
            return Extreme(float.fromhex(value), "min")
        case ["max", value]:
            return Extreme(float.fromhex(value), "max")
        case _:
            raise ValueError(f"not the state of a metric: {parts!r}")
