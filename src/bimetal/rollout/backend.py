"""The generation protocol: serializable requests in, tokens with their log-probabilities out.

A backend is anything with the five methods of ``Backend``; its file in ``backends/`` exports
``Config`` and ``connect(options, ...)``. Requests and outputs hold only numbers and strings, so the
engine may live in another process or on another machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from bimetal.core.types import Finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are drawn.

    ``temperature`` 0 means greedy. ``top_p`` and ``top_k`` truncate the distribution and are refused
    in training, where ``logprobs`` must be those of the distribution that was sampled from;
    ``top_p`` 1 and ``top_k`` 0 mean no truncation. ``stop_strings`` end a sequence as soon as the
    decoded response contains one; the tokens up to and including the one that completed it are kept.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 64
    stop_token_ids: tuple[int, ...] = ()
    stop_strings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One sequence to be written.

    ``context_ids`` is everything that stands before the first new token: the rendered prompt and,
    for a continuation, the prefix. ``key`` names the random stream: token number n of the answer is
    drawn with uniform number n of that stream (``core.streams.uniforms``), whatever else is in the
    batch.
    """

    id: str
    context_ids: tuple[int, ...]
    key: int
    sampling: Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What was written: ids, and for each its log-probability in nats.

    ``logprobs`` are of the temperature-scaled, untruncated distribution (temperature 1 for greedy).
    A stop token that ended the sequence is part of ``token_ids``. ``version`` is that of the weights.
    """

    request_id: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: Finish
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether a backend can serve, which weights it holds, and a sentence for people."""

    ok: bool
    version: int
    detail: str = ""


@runtime_checkable
class Backend(Protocol):
    """A generation engine."""

    def generate(self, requests: Sequence[Request]) -> list[Output]:
        """Write an answer to every request; one output per request, in order.

        Raises:
            RolloutError: The engine failed; nothing of the call counts.
        """
        ...

    def load_weights(self, handle: object, version: int) -> None:
        """Serve these weights from now on; ``handle`` is what the backend's ``connect`` documents."""
        ...

    def cancel(self, request_ids: Sequence[str]) -> None:
        """End these requests of the running call as soon as possible, with ``Finish.CANCELLED``.

        Requests that are unknown or already finished are ignored. Safe to call from another thread.
        """
        ...

    def health(self) -> Health:
        """Say whether the engine can serve; never raises."""
        ...

    def close(self) -> None:
        """Release everything; calling it twice is allowed."""
        ...
