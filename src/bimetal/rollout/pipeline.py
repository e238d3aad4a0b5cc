"""The pipeline: draws go in, judged groups come out, in the order in which they were submitted.

Synchronous today: groups are made when they are taken, with the weights of that moment, so their
staleness is 0. The interface - submit, take with a maximum staleness - is that of an asynchronous one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from bimetal.core.errors import RolloutError
from bimetal.core.types import Group, Origin
from bimetal.rollout.group import Draw, GroupMaker, Order


@dataclass(slots=True)
class Pipeline:
    """Groups in the making; ``version`` is that of the weights now."""

    maker: GroupMaker
    waiting: deque[Draw] = field(default_factory=deque)

    def submit(self, draws: Sequence[Draw]) -> None:
        """Queue prompts."""
        self.waiting.extend(draws)

    def take(
        self, count: int, order: Order, *, batch: int, progress: float, version: int, max_staleness: int = 0
    ) -> tuple[Group, ...]:
        """The next ``count`` groups, made under the weights of ``version``; their order is in the journal.

        Groups whose mix drafted nothing are left out.

        Raises:
            RolloutError: A trace was written by weights older than ``max_staleness`` versions.
        """
        draws = [self.waiting.popleft() for _ in range(min(count, len(self.waiting)))]
        groups = self.maker.make(draws, order, batch=batch, progress=progress)
        found = tuple(group for group in groups if group.traces)
        self.maker.journal.record_order([trace.id for group in found for trace in group.traces])
        for group in found:
            for trace in group.traces:
                written = [
                    s.version for s in trace.segments if s.origin is Origin.POLICY and s.version is not None
                ]
                if any(version - v > max_staleness for v in written):
                    raise RolloutError(
                        f"{trace.id} was written by weights {written}, now {version}: staler than "
                        f"{max_staleness}"
                    )
        return found
