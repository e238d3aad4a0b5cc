"""The conformance suite of generation backends: what every engine must keep, as importable checks.

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_my_backend(check):
        check(Subject(connect=..., contexts=..., vocabulary=...))

Each check connects a fresh backend, closes it, and raises ``AssertionError`` with what it found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from bimetal.core.errors import RolloutError
from bimetal.core.streams import Streams
from bimetal.core.types import Finish
from bimetal.rollout.backend import Backend, Output, Request, Sampling
from bimetal.rollout.stopping import Decode

Score = Callable[[tuple[int, ...], tuple[int, ...], float], Sequence[float]]
"""(context, answer, temperature) -> the trainer's log-probabilities of the answer's tokens, in nats."""

LOGPROB_TOLERANCE = 1e-4
"""Largest difference between the sampler's and the trainer's log-probabilities in float32, in nats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A backend to be examined.

    ``connect`` gives a fresh backend of one and the same model. ``contexts`` are at least two that it
    answers with at least 8 tokens where nothing stops it. ``score`` and ``other_weights`` (a handle
    for ``load_weights``) are left out where the engine has none.
    """

    connect: Callable[[], Backend]
    contexts: tuple[tuple[int, ...], ...]
    vocabulary: int
    decode: Decode
    score: Score | None = None
    other_weights: object | None = None


def answers_every_request_in_order(subject: Subject) -> None:
    """One output per request, under its id, in the order of the requests; none for none."""
    with _connected(subject) as backend:
        requests = _requests(subject, Sampling(max_tokens=5), copies=3)
        asked = list(requests)
        outputs = backend.generate(requests)
        _require([o.request_id for o in outputs], [r.id for r in asked], "order of the outputs")
        _require(requests, asked, "requests after the call")
        _require(backend.generate([]), [], "outputs of an empty call")


def stays_within_length_and_vocabulary(subject: Subject) -> None:
    """Without a stop, exactly ``max_tokens`` known tokens, each with a finite log-probability."""
    with _connected(subject) as backend:
        for size in (1, 8):
            for output in backend.generate(_requests(subject, Sampling(max_tokens=size))):
                _require(len(output.token_ids), size, "number of tokens")
                _require(len(output.logprobs), size, "number of log-probabilities")
                _require(output.finish, Finish.LENGTH, "finish")
                _require_all(0 <= i < subject.vocabulary for i in output.token_ids)
                _require_all(math.isfinite(x) and x <= 0.0 for x in output.logprobs)


def stops_at_a_stop_token_and_keeps_it(subject: Subject) -> None:
    """The answer ends with the first stop token; the tokens before it are those of the whole run."""
    with _connected(subject) as backend:
        for whole in backend.generate(_requests(subject, _greedy(8))):
            stop = whole.token_ids[4]
            end = whole.token_ids.index(stop) + 1
            again = _again(backend, subject, whole, replace(_greedy(8), stop_token_ids=(stop,)))
            _require(again.token_ids, whole.token_ids[:end], "tokens up to the stop token")
            _require(again.finish, Finish.STOP, "finish")


def stops_at_a_stop_string_across_tokens(subject: Subject) -> None:
    """The answer ends with the token that completes the stop string, wherever tokens begin."""
    with _connected(subject) as backend:
        for whole in backend.generate(_requests(subject, _greedy(8))):
            text = subject.decode(whole.token_ids[:6])
            stop = text[-3:]
            end = next(n for n in range(1, 9) if stop in subject.decode(whole.token_ids[:n]))
            again = _again(backend, subject, whole, replace(_greedy(8), stop_strings=(stop,)))
            _require(again.token_ids, whole.token_ids[:end], f"tokens up to the stop string {stop!r}")
            _require(again.finish, Finish.STOP, "finish")


def greedy_is_deterministic(subject: Subject) -> None:
    """Temperature 0 gives the same tokens again, whatever the stream."""
    with _connected(subject) as backend:
        first = backend.generate(_requests(subject, _greedy(8)))
        other = [replace(request, key=request.key + 1) for request in _requests(subject, _greedy(8))]
        second = backend.generate(other)
        _require([o.token_ids for o in second], [o.token_ids for o in first], "greedy tokens")


def the_same_call_gives_the_same_outputs(subject: Subject) -> None:
    """Noise comes from the requests' streams, so a repeated call repeats its outputs."""
    with _connected(subject) as backend:
        requests = _requests(subject, Sampling(max_tokens=8), copies=2)
        _require(backend.generate(requests), backend.generate(requests), "outputs")


def a_continuation_equals_the_whole_run(subject: Subject) -> None:
    """An answer cut after 3 tokens and continued from there is the answer, log-probabilities too."""
    with _connected(subject) as backend:
        whole = backend.generate(_requests(subject, _greedy(8)))
        rests = backend.generate(
            [
                replace(request, context_ids=request.context_ids + output.token_ids[:3])
                for request, output in zip(_requests(subject, _greedy(5)), whole, strict=True)
            ]
        )
        for output, rest in zip(whole, rests, strict=True):
            _require(rest.token_ids, output.token_ids[3:], "continued tokens")
            _require_close(rest.logprobs, output.logprobs[3:], "continued log-probabilities")


def logprobs_agree_with_the_trainer(subject: Subject) -> None:
    """Log-probabilities are temperature-scaled and untruncated, as the trainer computes them."""
    if subject.score is None:
        return
    settings = (
        Sampling(max_tokens=8),
        Sampling(max_tokens=8, temperature=0.7),
        _greedy(8),
        Sampling(max_tokens=8, top_k=3, top_p=0.9),
    )
    with _connected(subject) as backend:
        for sampling in settings:
            requests = _requests(subject, sampling)
            for request, output in zip(requests, backend.generate(requests), strict=True):
                expected = subject.score(request.context_ids, output.token_ids, sampling.temperature or 1.0)
                _require_close(output.logprobs, expected, f"log-probabilities under {sampling}")


def new_weights_take_effect(subject: Subject) -> None:
    """Outputs carry the version that was loaded last, and its weights write them."""
    with _connected(subject) as backend:
        requests = _requests(subject, _greedy(8))
        before = backend.generate(requests)
        backend.load_weights(None, 7)
        same = backend.generate(requests)
        _require([o.version for o in same], [7] * len(requests), "version")
        _require([o.token_ids for o in same], [o.token_ids for o in before], "tokens of unchanged weights")
        if subject.other_weights is not None:
            backend.load_weights(subject.other_weights, 8)
            after = backend.generate(requests)
            _require(backend.health().version, 8, "version in health")
            written = [[(o.token_ids, o.logprobs) for o in outputs] for outputs in (before, after)]
            _require(written[0] != written[1], expected=True, what="whether other weights write otherwise")


def cancelling_the_unknown_is_harmless(subject: Subject) -> None:
    """A cancel of finished or unknown requests changes no later call."""
    with _connected(subject) as backend:
        requests = _requests(subject, _greedy(8))
        before = backend.generate(requests)
        backend.cancel([requests[0].id, "no such request"])
        _require(backend.generate(requests), before, "outputs after the cancel")


def closes_twice_and_serves_no_more(subject: Subject) -> None:
    """After ``close``, health says so and a call is an error of ours."""
    backend = subject.connect()
    _require(backend.health().ok, expected=True, what="health when open")
    backend.close()
    backend.close()
    _require(backend.health().ok, expected=False, what="health when closed")
    try:
        backend.generate(_requests(subject, _greedy(1)))
    except RolloutError:
        return
    raise AssertionError("a closed backend answered; expected RolloutError")


CHECKS: tuple[Callable[[Subject], None], ...] = (
    answers_every_request_in_order,
    stays_within_length_and_vocabulary,
    stops_at_a_stop_token_and_keeps_it,
    stops_at_a_stop_string_across_tokens,
    greedy_is_deterministic,
    the_same_call_gives_the_same_outputs,
    a_continuation_equals_the_whole_run,
    logprobs_agree_with_the_trainer,
    new_weights_take_effect,
    cancelling_the_unknown_is_harmless,
    closes_twice_and_serves_no_more,
)
"""Every check; each takes a subject."""


def _greedy(size: int) -> Sampling:
    return Sampling(temperature=0.0, max_tokens=size)


def _requests(subject: Subject, sampling: Sampling, copies: int = 1) -> list[Request]:
    streams = Streams(seed=20)
    return [
        Request(
            id=f"{prompt}/{copy}",
            context_ids=context,
            key=streams.key("conformance", prompt, copy),
            sampling=sampling,
        )
        for prompt, context in enumerate(subject.contexts)
        for copy in range(copies)
    ]


def _again(backend: Backend, subject: Subject, output: Output, sampling: Sampling) -> Output:
    """The same request's answer under another setting, alone."""
    (request,) = [r for r in _requests(subject, sampling) if r.id == output.request_id]
    (answer,) = backend.generate([request])
    return answer


@contextmanager
def _connected(subject: Subject) -> Iterator[Backend]:
    backend = subject.connect()
    try:
        yield backend
    finally:
        backend.close()


def _require(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise AssertionError(f"{what}: expected {expected}; found {found}")


def _require_all(facts: Iterator[bool]) -> None:
    if not all(facts):
        raise AssertionError(
            "a token is outside the vocabulary, or its log-probability is not a finite number <= 0"
        )


def _require_close(found: Sequence[float], expected: Sequence[float], what: str) -> None:
    worst = max((abs(a - b) for a, b in zip(found, expected, strict=True)), default=0.0)
    if not worst <= LOGPROB_TOLERANCE:
        raise AssertionError(f"{what}: differ by {worst} nats; at most {LOGPROB_TOLERANCE} is allowed")
