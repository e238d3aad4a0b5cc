"""Which items are judged next and what becomes of those that broke their worker: rules without processes.

A group is judged together first. If its worker hangs or dies, its items are judged one by one, each alone
in its message, so that only the guilty one pays. An item that exceeds the limit twice is ``unparseable`` (or
``wrong``, as its domain says) with reason ``timeout``; one that kills its worker twice is ``unknown``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from bimetal.core.types import Status, Verdict
from bimetal.rewards.wire import Document, verdict_of

STRIKES = 2
"""How often an item may break its check in the same way before that is its verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """What one call of a verifier judges: some items of one task, and what they have done so far.

    ``Unit(task=3, verifier="...", members=(0, 1, 2, 3))`` is the whole group of task 3.
    """

    task: int
    verifier: str
    name: str
    members: tuple[int, ...]
    timeouts: int = 0
    deaths: int = 0
    seconds: float = 0.0

    @property
    def is_alone(self) -> bool:
        """Whether it has broken a check before and so gets a message of its own."""
        return self.timeouts + self.deaths > 0


class Dispatch:
    """The work of one call: units that wait, and verdicts that are known."""

    def __init__(self, units: Sequence[Unit]) -> None:
        """Start with one unit per task, in order of their numbers."""
        self._waiting = deque(units)
        self._results: dict[int, list[Verdict | None]] = {u.task: [None] * len(u.members) for u in units}
        self._open_units = len(units)
        self.load_failures: dict[str, str] = {}

    @property
    def is_done(self) -> bool:
        """Whether every item has its verdict."""
        return self._open_units == 0

    @property
    def waiting(self) -> int:
        """How many units wait for a worker."""
        return len(self._waiting)

    def take(self, count: int) -> list[Unit]:
        """Up to ``count`` units for one message; one that is alone never shares it."""
        taken: list[Unit] = []
        while self._waiting and len(taken) < count:
            if self._waiting[0].is_alone and taken:
                break
            taken.append(self._waiting.popleft())
            if taken[0].is_alone:
                break
        return taken

    def put_back(self, units: Sequence[Unit]) -> None:
        """Return units that no worker has begun."""
        self._waiting.extendleft(reversed(units))

    def succeed(self, unit: Unit, message: Document) -> None:
        """Take a worker's answer; one that is no list of as many verdicts is the verifier's fault.

        ``seconds`` of every verdict is its part of the time that the call took.
        """
        if "failed" in message:
            self.fail_to_load(unit, str(message["failed"]))
            return
        try:
            verdicts = [verdict_of(v) for v in cast("Sequence[Document]", message["verdicts"])]
            seconds = cast("float", message["seconds"])
        except (KeyError, TypeError, ValueError) as error:
            malformed = _unknown(unit, f"malformed answer of a worker: {error}")
            self._finish(unit, lambda _: malformed)
            return
        if len(verdicts) != len(unit.members):
            self._finish(unit, lambda _: _unknown(unit, "a worker answered with too few or many verdicts"))
            return
        each = (unit.seconds + seconds) / max(1, len(verdicts))
        self._finish(unit, lambda index: replace(verdicts[index], seconds=each))

    def fail_to_load(self, unit: Unit, message: str) -> None:
        """The verifier itself could not be loaded."""
        self.load_failures[unit.verifier] = message
        self._finish(unit, lambda _: _unknown(unit, message))

    def set_aside(self, unit: Unit, message: str) -> None:
        """The row cannot be sent to any verifier."""
        self._finish(unit, lambda _: _unknown(unit, message, reason="bad_row"))

    def time_out(self, unit: Unit, *, seconds: float, status: Status) -> None:
        """The unit exceeded its limit; ``status`` is what a hanging answer is in its domain."""
        spent = replace(unit, timeouts=unit.timeouts + 1, seconds=unit.seconds + seconds)
        if self._must_go_on(spent, strikes=spent.timeouts):
            return
        verdict = Verdict(
            status=status,
            reward=0.0,
            reason="timeout",
            verifier=unit.name,
            seconds=spent.seconds,
            detail=f"the check exceeded its limit {spent.timeouts} times",
        )
        self._finish(spent, lambda _: verdict)

    def die(self, unit: Unit, *, seconds: float, ending: str) -> None:
        """The unit's worker ended while it was judged."""
        spent = replace(unit, deaths=unit.deaths + 1, seconds=unit.seconds + seconds)
        if self._must_go_on(spent, strikes=spent.deaths):
            return
        message = f"the verification process ended {spent.deaths} times: {ending}"
        self._finish(spent, lambda _: _unknown(spent, message, reason="infra_error"))

    def results(self) -> list[list[Verdict]]:
        """The verdicts by task and item, once all are known."""
        return [[v for v in self._results[task] if v is not None] for task in sorted(self._results)]

    def _must_go_on(self, unit: Unit, *, strikes: int) -> bool:
        """Queue what has to be tried again, ahead of everything else; say whether there is such."""
        if len(unit.members) > 1:
            alone = [
                replace(unit, members=(m,), seconds=unit.seconds / len(unit.members)) for m in unit.members
            ]
            self._open_units += len(alone) - 1
            self.put_back(alone)
            return True
        if strikes < STRIKES:
            self.put_back([unit])
            return True
        return False

    def _finish(self, unit: Unit, verdict: Callable[[int], Verdict]) -> None:
        for index, member in enumerate(unit.members):
            self._results[unit.task][member] = verdict(index)
        self._open_units -= 1


def _unknown(unit: Unit, detail: str, *, reason: str = "verifier_error") -> Verdict:
    return Verdict(
        status=Status.UNKNOWN,
        reward=None,
        reason=reason,
        verifier=unit.name,
        seconds=unit.seconds,
        detail=detail[:500],
    )
