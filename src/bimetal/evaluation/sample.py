"""Answers of a model to prompts, several per prompt, judged.

The noise of an answer is named by the seed, the prompt and the answer's number alone, so two models
evaluated with one seed see the same noise, and their difference is a paired one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bimetal.core.errors import ConfigError, DataError, RolloutError, VerifierError
from bimetal.core.streams import Streams
from bimetal.core.types import Finish, Item, Prompt, Verdict
from bimetal.rollout.backend import Backend, Output, Request, Sampling
from bimetal.rollout.group import Judge, Rendering

REQUESTS_PER_CALL = 512
"""Sequences asked of the backend at a time, so that memory does not grow with the suite."""


Observe = Callable[[int, int], None]
"""Told how many answers are there, and how many there will be."""


def unobserved(done: int, planned: int) -> None:
    """Nobody watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model that answers: ``Subject(name="after", backend=..., rendering=..., positions=512)``.

    ``name`` is what reports call it. ``positions`` is the number of tokens a sequence may have,
    prompt and answer together.
    """

    name: str
    backend: Backend
    rendering: Rendering
    positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How each problem is answered: ``Plan(sampling=Sampling(temperature=0.0), samples=1)``.

    ``top_p`` and ``top_k`` are allowed here, unlike in training. ``unknown_share_limit`` is the share
    of answers that may stay unjudged before the evaluation stops.
    """

    sampling: Sampling
    samples: int = 1
    unknown_share_limit: float = 0.2
    requests_per_call: int = REQUESTS_PER_CALL

    def __post_init__(self) -> None:
        """Refuse numbers that cannot work.

        Raises:
            ConfigError: Fewer than one answer or request, or several greedy ones, which are all the same.
        """
        if self.samples < 1 or self.requests_per_call < 1:
            raise ConfigError(
                f"samples and requests_per_call must be at least 1; found {self.samples} and "
                f"{self.requests_per_call}"
            )
        if self.samples > 1 and self.sampling.temperature == 0:
            raise ConfigError(
                f"samples: {self.samples} greedy answers to one problem are all the same; "
                "set a temperature above 0, or samples to 1"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One judged answer; ``tokens`` counts what was written, a final stop token included."""

    text: str
    verdict: Verdict
    tokens: int
    finish: Finish


def answer(
    prompts: Sequence[Prompt],
    *,
    subject: Subject,
    judge: Judge,
    streams: Streams,
    plan: Plan,
    observe: Observe = unobserved,
) -> list[tuple[Answer, ...]]:
    """The judged answers, by problem, in order.

    All prompts are rendered and checked before the first token is written.

    Raises:
        DataError: A prompt leaves no room for an answer, or two have the same id.
        RolloutError: The backend failed or ended an answer early.
        VerifierError: More answers of a domain than allowed could not be judged.
    """
    contexts = [_context(prompt, subject) for prompt in prompts]
    _check_ids(prompts)
    found: list[tuple[Answer, ...]] = []
    unknown = _UnknownLimit(prompts, plan)
    for start, stop in _chunks(len(prompts), plan):
        some = prompts[start:stop]
        requests = [
            Request(
                id=f"{prompt.id}#0.{member}@{prompt.domain}",
                context_ids=contexts[start + row],
                key=streams.key("evaluation", prompt.id, 0, member),
                sampling=plan.sampling,
            )
            for row, prompt in enumerate(some)
            for member in range(plan.samples)
        ]
        outputs = subject.backend.generate(requests)
        judged = _judged(some, outputs, subject=subject, judge=judge, samples=plan.samples)
        unknown.check(some, judged)
        found += judged
        observe(len(found) * plan.samples, len(prompts) * plan.samples)
    return found


def _context(prompt: Prompt, subject: Subject) -> tuple[int, ...]:
    ids = subject.rendering.prompt_ids(prompt.messages)
    if len(ids) >= subject.positions:
        raise DataError(
            f"prompt {prompt.id}: has {len(ids)} tokens and the model {subject.positions} positions, which "
            "leaves no room for an answer; leave the problem out, or use a model with a longer context"
        )
    return ids


def _check_ids(prompts: Sequence[Prompt]) -> None:
    counts = Counter((prompt.domain, prompt.id) for prompt in prompts)
    twice = [key for key, count in counts.items() if count > 1]
    if twice:
        raise DataError(
            f"prompt id {twice[0][1]!r} of domain {twice[0][0]!r}: found {counts[twice[0]]} prompts with it; "
            "an evaluation counts each problem once, so ids must be unique"
        )


def _chunks(count: int, plan: Plan) -> Iterator[tuple[int, int]]:
    """Ranges of whole problems."""
    step = max(1, plan.requests_per_call // plan.samples)
    for start in range(0, count, step):
        yield start, min(start + step, count)


def _judged(
    prompts: Sequence[Prompt], outputs: Sequence[Output], *, subject: Subject, judge: Judge, samples: int
) -> list[tuple[Answer, ...]]:
    for output in outputs:
        if output.finish in {Finish.CANCELLED, Finish.ERROR}:
            raise RolloutError(
                f"the backend ended {output.request_id} with {output.finish.value!r}; an evaluation needs "
                "every answer, so nothing was counted; run it again"
            )
    texts = [subject.rendering.text_of(output.token_ids) for output in outputs]
    rows = [range(n * samples, (n + 1) * samples) for n in range(len(prompts))]
    groups = [
        [Item(prompt=prompt, response=texts[i], finish=outputs[i].finish) for i in row]
        for prompt, row in zip(prompts, rows, strict=True)
    ]
    verdicts = judge(groups)
    return [
        tuple(
            Answer(text=texts[i], verdict=verdict, tokens=len(outputs[i].token_ids), finish=outputs[i].finish)
            for i, verdict in zip(row, some, strict=True)
        )
        for row, some in zip(rows, verdicts, strict=True)
    ]


class _UnknownLimit:
    """Counts the unjudged answers of each domain and stops as soon as one is certain to exceed the limit."""

    def __init__(self, prompts: Sequence[Prompt], plan: Plan) -> None:
        self._plan = plan
        self._planned = Counter(prompt.domain for prompt in prompts)
        self._reasons: dict[str, Counter[str]] = {}
        self._detail: dict[str, str] = {}

    def check(self, prompts: Sequence[Prompt], answers: Sequence[Sequence[Answer]]) -> None:
        for prompt, some in zip(prompts, answers, strict=True):
            for verdict in (a.verdict for a in some if a.verdict.reward is None):
                self._reasons.setdefault(prompt.domain, Counter())[verdict.reason] += 1
                self._detail.setdefault(prompt.domain, verdict.detail or verdict.reason)
        for domain, reasons in self._reasons.items():
            planned = self._planned[domain] * self._plan.samples
            if reasons.total() > self._plan.unknown_share_limit * planned:
                listed = ", ".join(f"{reason} {count}" for reason, count in reasons.most_common())
                raise VerifierError(
                    f"{domain}: {reasons.total()} of {planned} answers could not be judged ({listed}), above "
                    f"the limit of {self._plan.unknown_share_limit:g}; first: {self._detail[domain]}; "
                    "repair the verifier or the references, then evaluate again"
                )
