"""Answers from a script: a deterministic backend for tests, yours included.

    [backend]
    name = "scripted"
    [[backend.replies]]
    request = "lab_arithmetic/*"
    text = "Answer: 42"

The first reply that matches a request is its answer; one that names a context also continues a
prefix of itself. Stop tokens, stop strings and ``max_tokens`` are honored as a model would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase

from pydantic import Field, model_validator

from bimetal.config.options import Options
from bimetal.core.errors import ConfigError, RolloutError
from bimetal.core.types import Finish
from bimetal.rollout.backend import Health, Output, Request
from bimetal.rollout.stopping import Decode, StopStrings

Encode = Callable[[str], Sequence[int]]
"""A response as text to its ids, the end-of-turn token included."""


class Reply(Options):
    """One answer, and the requests it is for."""

    request: str = "*"
    """Pattern of the request's id in the manner of a shell: ``*``, ``?`` and ``[abc]``."""

    context_ids: tuple[int, ...] = ()
    """Ids the context consists of, beginnings of the answer aside; empty matches every context."""

    text: str = ""
    """The answer as text; closed by the end-of-turn token. Not used where ``token_ids`` are given."""

    token_ids: tuple[int, ...] = ()
    """The answer as ids, taken as they are."""

    finish: Finish = Finish.STOP
    """Why the answer ends, unless ``max_tokens`` cuts it short."""

    logprob: float = Field(default=0.0, le=0.0)
    """Log-probability of each token, in nats."""

    @model_validator(mode="after")
    def _one_answer(self) -> Reply:
        if self.text and self.token_ids:
            raise ValueError("a reply has text or token_ids, not both")
        return self


class Config(Options):
    """Options of this backend."""

    replies: tuple[Reply, ...] = ()
    """The script, tried in order."""

    default: Reply = Reply()
    """The answer where no reply matches."""


def connect(
    options: Config, *, encode: Encode | None = None, decode: Decode | None = None
) -> ScriptedBackend:
    """A backend that answers from the script.

    Args:
        options: The script.
        encode: Turns the replies' texts into ids, as ``Renderer.response_ids``; needed if one has text.
        decode: Turns ids into text, as ``Renderer.text_of``; needed for stop strings.

    ``load_weights`` of the backend takes ``None`` or another ``Config``: the script of those weights.
    """
    return ScriptedBackend(options, encode=encode, decode=decode)


class ScriptedBackend:
    """See ``connect``."""

    def __init__(self, options: Config, *, encode: Encode | None, decode: Decode | None) -> None:
        self._encode = encode
        self._decode = decode
        self._version = 0
        self._is_open = True
        self._script = self._compiled(options)

    def generate(self, requests: Sequence[Request]) -> list[Output]:
        """Answer every request from the script, in order.

        Raises:
            RolloutError: The backend is closed, or stop strings are asked for without ``decode``.
        """
        if not self._is_open:
            raise RolloutError("the scripted backend is closed; connect a new one")
        return [self._answered(request) for request in requests]

    def load_weights(self, handle: object, version: int) -> None:
        """Serve this version from now on, and its script if one is given.

        Raises:
            RolloutError: The handle is neither ``None`` nor a ``Config``.
        """
        if isinstance(handle, Config):
            self._script = self._compiled(handle)
        elif handle is not None:
            raise RolloutError(f"weights must be None or a scripted Config; found {type(handle).__name__}")
        self._version = version

    def cancel(self, request_ids: Sequence[str]) -> None:
        """Do nothing: no call is ever running."""

    def health(self) -> Health:
        """Say whether the script is open; never raises."""
        return Health(
            ok=self._is_open, version=self._version, detail="scripted" if self._is_open else "closed"
        )

    def close(self) -> None:
        """Answer no more; calling it twice is allowed."""
        self._is_open = False

    def _compiled(self, options: Config) -> list[tuple[Reply, tuple[int, ...]]]:
        return [(reply, self._ids_of(reply)) for reply in (*options.replies, options.default)]

    def _ids_of(self, reply: Reply) -> tuple[int, ...]:
        if not reply.text:
            return reply.token_ids
        if self._encode is None:
            raise ConfigError(
                "a scripted reply has text; found no encode; pass Renderer.response_ids to connect"
            )
        return tuple(self._encode(reply.text))

    def _answered(self, request: Request) -> Output:
        reply, rest = self._matching(request)
        ids, finish = self._ended(request, rest, reply.finish)
        return Output(
            request_id=request.id,
            token_ids=ids,
            logprobs=(reply.logprob,) * len(ids),
            finish=finish,
            version=self._version,
        )

    def _matching(self, request: Request) -> tuple[Reply, tuple[int, ...]]:
        """The first reply for this request, and what of it is still to be written."""
        for reply, ids in self._script:
            if not fnmatchcase(request.id, reply.request):
                continue
            if not reply.context_ids:
                return reply, ids
            size = len(reply.context_ids)
            written = request.context_ids[size:]
            if request.context_ids[:size] == reply.context_ids and ids[: len(written)] == written:
                return reply, ids[len(written) :]
        # The default has its own patterns; where they do not match either, its answer stands.
        return self._script[-1]

    def _ended(
        self, request: Request, ids: tuple[int, ...], finish: Finish
    ) -> tuple[tuple[int, ...], Finish]:
        """The ids up to the first reason to stop, and the reason."""
        sampling = request.sampling
        if sampling.stop_strings and self._decode is None:
            raise RolloutError(
                f"request {request.id} has stop strings; pass Renderer.text_of to connect as decode"
            )
        watcher = StopStrings(sampling.stop_strings, decode=self._decode or (lambda _: ""))
        for count, token in enumerate(ids, start=1):
            if token in sampling.stop_token_ids or watcher.completed_by(token):
                return ids[:count], Finish.STOP
            if count == sampling.max_tokens:
                return ids[:count], Finish.LENGTH
        return ids, finish
