"""What a method is: a few parts that know nothing of each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bimetal.config.options import Options
from bimetal.objectives.compose import Term
from bimetal.objectives.credit import CreditRule
from bimetal.objectives.logprobs import Statistic
from bimetal.objectives.mix import Mix
from bimetal.objectives.update import Update, plain

__all__ = ["Evidence", "Method", "Need", "Options", "RunShape", "Term"]


class Need(StrEnum):
    """What a run must provide for a method; checked before anything starts."""

    DEMONSTRATIONS = "demonstrations"
    """Every main prompt, or the second stream, has demonstrations."""
    REWARD = "reward"
    """Traces are judged."""
    REFERENCE = "reference"
    """A frozen copy of the initial policy, and its log-probabilities."""
    AUTHOR = "author"
    """Demonstrations with the author's own log-probabilities."""
    SAMPLER = "sampler"
    """The sampling engine's log-probabilities."""
    CRITIC = "critic"
    """A trained value model; its values before the update are a signal."""
    WHOLE_GROUPS = "whole_groups"
    """Groups are never split over micro-batches."""
    PROBE_BATCH = "probe_batch"
    """A second batch for the update rule."""


class Evidence(StrEnum):
    """Where a formula was read."""

    CODE = "code"
    PAPER = "paper"
    TEXT = "text"
    DERIVED = "derived"
    SECONDARY = "secondary"
    UNVERIFIED = "unverified"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunShape:
    """What a method may know of the run: lengths in tokens, members per group."""

    max_response_tokens: int
    group_size: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """A mix, a credit rule, terms, an update rule, and what the run must provide.

    ``statistics`` are per-token chunk functions the terms read from ``PolicyOutput.statistic``.
    """

    mix: Mix
    credit: CreditRule
    terms: tuple[Term, ...]
    update: Update = field(default_factory=plain)
    needs: frozenset[Need] = frozenset()
    statistics: Mapping[str, Statistic] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse two terms of one name."""
        names = [term.name for term in self.terms]
        if len(set(names)) != len(names):
            raise ValueError(f"terms of a method need distinct names; got {names}")
