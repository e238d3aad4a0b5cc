"""uniform: every pool in proportion to its weight, every prompt of a pool once per pass, in a fresh order.

Pools take turns so that at any time each has had its share to within one prompt; a pool's order is
shuffled anew for every pass by a named stream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from bimetal.config.options import Options
from bimetal.core.errors import CheckpointError, ConfigError
from bimetal.core.streams import Streams, permutation
from bimetal.core.types import Group, JsonValue, PromptId
from bimetal.rollout.curriculum import Candidate


class Config(Options):
    """This curriculum has no options."""


class Uniform:
    """See the module."""

    def __init__(self, candidates: Sequence[Candidate], streams: Streams) -> None:
        """Start at the first prompt of the first pass of every pool."""
        self._pools: dict[str, list[PromptId]] = {}
        self._weights: dict[str, float] = {}
        for candidate in candidates:
            self._pools.setdefault(candidate.pool, []).append(candidate.prompt_id)
            self._weights[candidate.pool] = candidate.weight
        total = sum(self._weights.values())
        self._weights = {pool: weight / total for pool, weight in self._weights.items()}
        self._streams = streams
        self._drawn = dict.fromkeys(self._pools, 0)
        self._orders: dict[str, tuple[int, Sequence[int]]] = {}

    def draw(self, count: int) -> list[PromptId]:
        """The next prompts."""
        return [self._next(self._neediest()) for _ in range(count)]

    def observe(self, groups: Sequence[Group]) -> None:
        """Learn nothing: the order does not depend on verdicts."""

    def state_dict(self) -> dict[str, JsonValue]:
        """How many prompts of each pool were drawn."""
        return {"drawn": dict(self._drawn)}

    def load_state_dict(self, state: Mapping[str, JsonValue]) -> None:
        """Continue after that many prompts of each pool.

        Raises:
            CheckpointError: The pools are not those of this run.
        """
        drawn = cast("Mapping[str, int]", state["drawn"])
        if set(drawn) != set(self._pools):
            raise CheckpointError(
                f"curriculum: the state is of pools {sorted(drawn)}; this run has {sorted(self._pools)}; "
                "resume with the data the run was started with"
            )
        self._drawn = {pool: int(drawn[pool]) for pool in self._pools}

    def metrics(self) -> Mapping[str, float]:
        """Passes over the most visited pool."""
        return {"passes": max(self._drawn[p] / len(ids) for p, ids in self._pools.items())}

    def _neediest(self) -> str:
        """The pool that is furthest behind its share; the first of them by name."""
        total = sum(self._drawn.values()) + 1
        return max(sorted(self._pools), key=lambda pool: self._weights[pool] * total - self._drawn[pool])

    def _next(self, pool: str) -> PromptId:
        ids = self._pools[pool]
        number, place = divmod(self._drawn[pool], len(ids))
        if self._orders.get(pool, (-1, ()))[0] != number:
            self._orders[pool] = (
                number,
                permutation(self._streams.generator("curriculum", pool, number), len(ids)),
            )
        self._drawn[pool] += 1
        return ids[self._orders[pool][1][place]]


def build(options: Config, candidates: Sequence[Candidate], streams: Streams) -> Uniform:
    """Assemble the curriculum.

    Raises:
        ConfigError: There are no candidates.
    """
    del options
    if not candidates:
        raise ConfigError(
            "curriculum: no prompts to draw; give a [domain.NAME] with problems or a data source"
        )
    return Uniform(candidates, streams)
