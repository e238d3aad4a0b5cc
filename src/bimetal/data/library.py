"""Demonstrations by prompt: which one a visit sees, and where a prefix of it is cut."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from bimetal.core.types import Demonstration, PromptId

Step = Literal["line", "sentence"]
"""What a step of a demonstration is."""

_STEP_ENDS: dict[Step, re.Pattern[str]] = {
    "line": re.compile(r"\n\s*"),
    "sentence": re.compile(r"[.!?][\"')\]]*(?=\s)\s*|\n\s*"),
}
_ROUNDING = 1e-9
"""Binary fractions fall short: 0.29 * 100 is 28.999999999999996, and 29 tokens are meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """Demonstrations by prompt: ``Library(demonstrations={"math/3": (Demonstration(...), ...)})``."""

    demonstrations: Mapping[PromptId, tuple[Demonstration, ...]]

    def of(self, prompt_id: PromptId) -> tuple[Demonstration, ...]:
        """All demonstrations of a prompt, in the order of the data; empty where it has none."""
        return self.demonstrations.get(prompt_id, ())

    def covered(self, prompt_ids: Iterable[PromptId]) -> tuple[PromptId, ...]:
        """Those of the prompts that have a demonstration, in the order given."""
        return tuple(prompt_id for prompt_id in prompt_ids if self.of(prompt_id))

    def pick(self, prompt_id: PromptId, *, visit: int, offset: int = 0) -> Demonstration | None:
        """The demonstration of one visit: visits take them in turn, ``offset`` counts on from there."""
        choices = self.of(prompt_id)
        return choices[(visit + offset) % len(choices)] if choices else None


def prefix_length(count: int, fraction: float) -> int:
    """How many of ``count`` tokens a fraction is, rounded down.

    Raises:
        ValueError: The fraction is not in [0, 1].

    >>> prefix_length(100, 0.29), prefix_length(3, 0.5), prefix_length(7, 1.0)
    (29, 1, 7)
    """
    if not 0.0 <= fraction <= 1.0:
        raise ValueError(f"a prefix fraction is in [0, 1]; got {fraction}")
    return min(count, int(fraction * count + _ROUNDING))


def token_prefix(token_ids: Sequence[int], fraction: float) -> tuple[int, ...]:
    """The first tokens of a demonstration, as many as the fraction says, rounded down."""
    return tuple(token_ids[: prefix_length(len(token_ids), fraction)])


def step_prefix(
    token_ids: Sequence[int], fraction: float, *, token_texts: Sequence[str], step: Step
) -> tuple[int, ...]:
    """The longest prefix of whole steps that is no longer than `token_prefix`; empty where no step fits.

    Args:
        token_ids: The demonstration's tokens.
        fraction: The share of tokens that the prefix may have at most.
        token_texts: The text of each token; their concatenation is the text.
        step: What ends a step: a line break, or the end of a sentence as well.

    Raises:
        ValueError: There is not one text per token.
    """
    if len(token_texts) != len(token_ids):
        raise ValueError(f"one text per token is needed; got {len(token_texts)} for {len(token_ids)} tokens")
    limit = prefix_length(len(token_ids), fraction)
    ends = step_ends(token_texts, step)
    return tuple(token_ids[: max((end for end in ends if end <= limit), default=0)])


def step_ends(token_texts: Sequence[str], step: Step) -> tuple[int, ...]:
    """The token counts after which a step is over; the whole demonstration is the last.

    Tokenizers put the blank after a sentence into either token, so any cut inside the blanks is one.

    >>> step_ends(["3", ".", "5", ".", " Then", " 7", "!", " x"], "sentence")
    (4, 7, 8)
    """
    text = "".join(token_texts)
    inside: set[int] = set()
    for match in _STEP_ENDS[step].finditer(text):
        # A sentence is over behind its full stop; a line is over behind its line break, one character.
        ended = len(match.group().rstrip()) or 1
        inside.update(range(match.start() + ended, match.end() + 1))
    inside.add(len(text))
    offsets = accumulate(map(len, token_texts))
    return tuple(count for count, offset in enumerate(offsets, start=1) if offset in inside)
