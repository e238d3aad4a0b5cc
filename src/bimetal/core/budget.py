"""Budgets: the currencies a run is counted in, how far it is, and what a forward pass costs (contract C6).

Progress is driven by one counted currency. Seconds are reported, and may cap a run, but never drive it:
a run must not depend on how busy its machine is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import cast

from bimetal.core.errors import CheckpointError, ConfigError
from bimetal.core.types import JsonValue


class Currency(StrEnum):
    """What a run spends. All are counted, as integers, but the two in seconds, which are measured."""

    GENERATED_TOKENS = "generated_tokens"
    TRAINED_TOKENS = "trained_tokens"
    FORWARD_TOKENS = "forward_tokens"
    TEACHER_TOKENS = "teacher_tokens"
    FLOPS = "flops"
    VERDICTS = "verdicts"
    OPTIMIZER_STEPS = "optimizer_steps"
    VERIFIER_SECONDS = "verifier_seconds"
    WALL_SECONDS = "wall_seconds"

    @property
    def is_counted(self) -> bool:
        """Whether the amount is a count, and so the same on every machine."""
        return self not in {Currency.VERIFIER_SECONDS, Currency.WALL_SECONDS}


class Budget:
    """What a run may spend in one currency, what it has spent in all, and how far its stages are.

    Stage ``k`` ends where the shares up to ``k`` are used up, so that a stage that overshoots takes from
    the next one, one that hands over early leaves the rest to it, and the run as a whole keeps its limit.

    >>> budget = Budget(1000, currency=Currency.GENERATED_TOKENS, shares=(1, 3))
    >>> budget.spend({Currency.GENERATED_TOKENS: 250}); budget.progress, budget.stage_progress
    (0.25, 1.0)
    >>> budget.begin_stage(1); budget.stage_progress
    0.0
    """

    def __init__(
        self,
        limit: int,
        *,
        currency: Currency = Currency.FLOPS,
        shares: Sequence[int | float] = (1,),
        wall_limit_seconds: int | float = math.inf,
    ) -> None:
        """Start unspent, in the first stage.

        Args:
            limit: What the run may spend.
            currency: In what; counted, never seconds.
            shares: The stages' parts of the limit, relative to their sum.
            wall_limit_seconds: Wall time after which a sitting ends unfinished, a resumed one's counted from
                its own start; it drives no schedule.

        Raises:
            ConfigError: One of them is out of range.
        """
        if not currency.is_counted:
            counted = ", ".join(c for c in Currency if c.is_counted)
            raise ConfigError(
                f"budget currency {currency.value!r} is measured, not counted, so no run could be repeated; "
                f"choose one of: {counted}; or set a wall-time cap to end a run after some hours"
            )
        if type(limit) is not int or limit < 1:
            raise ConfigError(
                f"budget limit must be a whole number of at least 1 {currency.value}; got {limit!r}"
            )
        if not shares or not all(math.isfinite(s) and s > 0 for s in shares):
            raise ConfigError(f"every stage's share of the budget must be above 0; got {tuple(shares)}")
        if not wall_limit_seconds > 0:
            raise ConfigError(f"the wall-time cap must be above 0 seconds; got {wall_limit_seconds}")
        self._limit = limit
        self._currency = currency
        self._wall_limit = wall_limit_seconds
        self._ends = _stage_ends(limit, shares)
        self._spent: dict[Currency, int | float] = {c: 0 if c.is_counted else 0.0 for c in Currency}
        self._stage = 0
        self._stage_start = 0
        self._sitting_start = 0.0

    @property
    def limit(self) -> int:
        """What the run may spend."""
        return self._limit

    @property
    def currency(self) -> Currency:
        """The currency that drives progress."""
        return self._currency

    @property
    def stage(self) -> int:
        """The number of the stage that runs."""
        return self._stage

    def spend(self, amounts: Mapping[Currency, int | float]) -> None:
        """Count what was used, in one currency or several.

        Raises:
            ValueError: An amount is negative, not finite, or not an integer where it is a count; nothing
                of the call is counted then.
        """
        for currency, amount in amounts.items():
            whole = isinstance(amount, int) and not isinstance(amount, bool)
            if currency.is_counted and not whole:
                raise ValueError(f"{currency.value} are counted in whole numbers; got {amount!r}")
            if not (math.isfinite(amount) and amount >= 0):
                raise ValueError(f"cannot spend {amount!r} {currency.value}")
        for currency, amount in amounts.items():
            self._spent[currency] += amount

    def spent(self, currency: Currency) -> int | float:
        """What was used of one currency since the run began."""
        return self._spent[currency]

    @property
    def progress(self) -> float:
        """Share of the whole limit that is spent, in [0, 1]."""
        return _share(self._driving, self._limit)

    @property
    def stage_progress(self) -> float:
        """Share of the stage's part that is spent, in [0, 1]; 1 where the stages before left nothing."""
        return _share(self._driving - self._stage_start, self._ends[self._stage] - self._stage_start)

    @property
    def is_stage_spent(self) -> bool:
        """Whether the stage has reached its end."""
        return self._driving >= self._ends[self._stage]

    @property
    def is_spent(self) -> bool:
        """Whether the whole limit is used up."""
        return self._driving >= self._limit

    @property
    def is_over_wall_limit(self) -> bool:
        """Whether this sitting has taken longer than the cap: a resumed run gets the whole of it again."""
        return self._spent[Currency.WALL_SECONDS] - self._sitting_start >= self._wall_limit

    def begin_stage(self, stage: int) -> None:
        """Start this stage here: its progress is 0 now.

        Raises:
            ValueError: There is no such stage, or it lies before the one that runs.
        """
        if not self._stage <= stage < len(self._ends):
            raise ValueError(f"cannot go from stage {self._stage} to stage {stage} of {len(self._ends)}")
        self._stage, self._stage_start = stage, self._driving

    def to_json(self) -> dict[str, JsonValue]:
        """Currency -> spent so far."""
        return {currency.value: amount for currency, amount in self._spent.items()}

    def state_dict(self) -> dict[str, JsonValue]:
        """What resume needs; the limit is the recipe's, so that a resumed run may be given more."""
        return {
            "currency": self._currency.value,
            "spent": self.to_json(),
            "stage": self._stage,
            "stage_start": self._stage_start,
        }

    def load_state_dict(self, state: Mapping[str, JsonValue]) -> None:
        """Continue from a saved state.

        Raises:
            CheckpointError: The state is of another currency, lacks a currency, or has a stage too many.
        """
        if state.get("currency") != self._currency.value:
            raise CheckpointError(
                f"the checkpoint's budget counts {state.get('currency')!r}, "
                f"this run's {self._currency.value!r}; resume with the recipe the run was started with"
            )
        spent = cast("Mapping[str, int | float]", state["spent"])
        stage = cast("int", state["stage"])
        missing = [c.value for c in Currency if c.value not in spent]
        if missing or not 0 <= stage < len(self._ends):
            raise CheckpointError(
                f"the checkpoint's budget does not fit this run: currencies missing: {missing}, "
                f"stage {stage} of {len(self._ends)}; resume with the recipe the run was started with"
            )
        self._spent = {c: int(spent[c]) if c.is_counted else float(spent[c]) for c in Currency}
        self._stage, self._stage_start = stage, cast("int", state["stage_start"])
        self._sitting_start = float(self._spent[Currency.WALL_SECONDS])

    @property
    def _driving(self) -> int:
        return int(self._spent[self._currency])


def _share(part: int, whole: int) -> float:
    return min(1.0, part / whole) if whole > 0 else 1.0


def _stage_ends(limit: int, shares: Sequence[int | float]) -> tuple[int, ...]:
    """Where each stage ends; exact arithmetic, so that the last one ends at the limit."""
    parts = [Fraction(s) for s in shares]
    whole = sum(parts)
    return tuple(round(limit * sum(parts[: k + 1]) / whole) for k in range(len(parts)))


class Recomputation(StrEnum):
    """What the backward pass computes a second time to save memory."""

    NOTHING = "nothing"
    LOGITS = "logits"
    EVERYTHING = "everything"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlopModel:
    """Floating-point operations of a decoder, from token counts; a multiply-add is two.

    A token costs 2 per parameter in the layers' matrices and, in every layer, ``4 * attention_width`` per
    position it attends to, itself included: 2 for its score and 2 for its part of the mixture. A token whose
    logits are wanted costs ``2 * hidden * vocabulary`` more. Norms, activations, softmax, rotary positions
    and the look-up of embeddings are left out: together they are under 2 % in models of ordinary shape.

    ``matrix_parameters`` are those of the layers, without embeddings and head. ``attention_width`` is the
    number of query heads times the head's size; sharing keys among heads saves memory, not operations.
    """

    matrix_parameters: int
    layers: int
    attention_width: int
    hidden: int
    vocabulary: int

    def layers_forward(self, tokens: int, *, attended: int) -> int:
        """The layers' part of a forward pass; ``attended`` is the sum of the tokens' context lengths."""
        return 2 * self.matrix_parameters * tokens + 4 * self.layers * self.attention_width * attended

    def head_forward(self, tokens: int) -> int:
        """The logits of this many tokens."""
        return 2 * self.hidden * self.vocabulary * tokens

    def forward(self, length: int, *, logits: int) -> int:
        """A forward pass over one sequence, with the logits of ``logits`` of its tokens."""
        return self.layers_forward(length, attended=attended(length)) + self.head_forward(logits)

    def training(
        self, length: int, *, logits: int, recomputation: Recomputation = Recomputation.NOTHING
    ) -> int:
        """Forward and backward over one sequence; backward is twice forward, recomputation comes on top."""
        again = {
            Recomputation.NOTHING: 0,
            Recomputation.LOGITS: self.head_forward(logits),
            Recomputation.EVERYTHING: self.forward(length, logits=logits),
        }
        return 3 * self.forward(length, logits=logits) + again[recomputation]

    def generation(self, prompt: int, *, new_tokens: Sequence[int]) -> int:
        """Writing answers of these lengths to one prompt, which is read once for all of them.

        The last token of an answer is never fed back. Where a backend reads the prompt once per answer,
        call this once per answer.
        """
        written = [n for n in new_tokens if n > 0]
        if not written:
            return 0
        answers = sum(self.continuation(prompt, count=n - 1) + self.head_forward(n) for n in written)
        return self.layers_forward(prompt, attended=attended(prompt)) + answers

    def continuation(self, start: int, *, count: int) -> int:
        """The layers' part of feeding ``count`` tokens that follow ``start`` cached ones."""
        return self.layers_forward(count, attended=attended(start + count) - attended(start))


def attended(length: int) -> int:
    """The sum of the context lengths of a sequence's tokens under causal attention.

    >>> attended(4)  # 1 + 2 + 3 + 4
    10
    """
    return length * (length + 1) // 2
