"""The curriculum protocol: which prompts come next, and learning from verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from bimetal.core.types import Group, JsonValue, PromptId


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A prompt that may be drawn: ``Candidate(prompt_id="lab_table/1", pool="lab_table", weight=1.0)``.

    Pools are drawn in proportion to their weights, whatever their sizes; all candidates of a pool have
    its weight.
    """

    prompt_id: PromptId
    pool: str
    weight: float = 1.0
    difficulty: float | None = None


@runtime_checkable
class Curriculum(Protocol):
    """Chooses prompts; its entry exports ``Config`` and ``build(options, candidates, streams)``."""

    def draw(self, count: int) -> list[PromptId]:
        """The next prompts; one may come twice when there are fewer candidates than ``count``."""
        ...

    def observe(self, groups: Sequence[Group]) -> None:
        """Learn from judged groups."""
        ...

    def state_dict(self) -> dict[str, JsonValue]:
        """Everything that must be restored on resume."""
        ...

    def load_state_dict(self, state: Mapping[str, JsonValue]) -> None:
        """Restore what ``state_dict`` gave."""
        ...

    def metrics(self) -> Mapping[str, float]:
        """Numbers worth plotting; reported as ``curriculum/NAME``."""
        ...
