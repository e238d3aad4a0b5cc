"""Noticing a stop string while tokens arrive, without decoding the whole answer at each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]
"""Token ids to text."""

_INCOMPLETE = "\ufffd"


class StopStrings:
    """Watches one answer.

    Text is decoded from the last position where it was known to be whole, because a character may
    span tokens and a tokenizer may join them with spaces.

    Args:
        strings: What ends the answer; empty strings are ignored.
        decode: The tokenizer's decoding.
    """

    def __init__(self, strings: Sequence[str], *, decode: Decode) -> None:
        self._strings = tuple(s for s in strings if s)
        self._decode = decode
        self._reach = max((len(s) for s in self._strings), default=1) - 1
        self._ids: list[int] = []
        self._start = 0
        self._read = 0
        self._tail = ""

    def completed_by(self, token_id: int) -> bool:
        """Take the next token and say whether the text up to it contains a stop string."""
        self._ids.append(token_id)
        known = self._decode(self._ids[self._start : self._read])
        text = self._decode(self._ids[self._start :])
        window = self._tail + text[len(known) :]
        found = any(s in window for s in self._strings)
        if len(text) > len(known) and not text.endswith(_INCOMPLETE):
            self._tail = window[-self._reach :] if self._reach else ""
            self._start, self._read = self._read, len(self._ids)
        return found
