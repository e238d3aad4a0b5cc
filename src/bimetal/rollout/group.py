"""Drafts -> requests -> judged groups, in as many rounds as the mix asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from bimetal.core.errors import CheckpointError, RolloutError
from bimetal.core.streams import Streams
from bimetal.core.types import (
    Demonstration,
    Draft,
    Finish,
    Group,
    GroupState,
    Item,
    Message,
    Origin,
    Prompt,
    PromptId,
    Segment,
    Stream,
    Trace,
    TraceId,
    Verdict,
)
from bimetal.data.library import prefix_length
from bimetal.rollout.backend import Backend, Output, Request, Sampling
from bimetal.rollout.journal import Journal

MAX_ROUNDS = 64
"""A mix that asks for more rounds than this does not end."""

Judge = Callable[[Sequence[Sequence[Item]]], list[list[Verdict]]]
"""Items by group -> verdicts by group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """A prompt that comes next, and how often it came before."""

    prompt: Prompt
    visit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendering:
    """Text to ids and back, as the model's chat template has it."""

    prompt_ids: Callable[[Sequence[Message]], tuple[int, ...]]
    response_ids: Callable[[str], tuple[int, ...]]
    text_of: Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one stage asks of a roll-out batch.

    ``judge`` is ``None`` where the method needs no reward. ``chunk`` groups are judged, and their verdicts
    kept, at a time.
    """

    mix: Callable[[GroupState], tuple[Draft, ...]]
    size: int
    sampling: Sampling
    judge: Judge | None
    chunk: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMaker:
    """Makes the groups of a roll-out batch; everything finished is in the journal before it is used."""

    backend: Backend
    rendering: Rendering
    demonstrations: Callable[[PromptId], tuple[Demonstration, ...]]
    journal: Journal
    streams: Streams
    rendered: dict[PromptId, tuple[int, ...]]
    prompt_limit: int

    def make(self, draws: Sequence[Draw], order: Order, *, batch: int, progress: float) -> tuple[Group, ...]:
        """One group per draw, in order; a mix that drafts nothing gives a group without traces.

        Raises:
            RolloutError: The backend failed, or the mix asked for too many rounds.
        """
        self.journal.open_batch(batch)
        states = [
            GroupState(
                prompt=d.prompt,
                visit=d.visit,
                size=order.size,
                progress=progress,
                demonstrations=self.demonstrations(d.prompt.id),
            )
            for d in draws
        ]
        for number in range(MAX_ROUNDS):
            drafts = [order.mix(state) for state in states]
            if not any(drafts):
                return tuple(Group(prompt=s.prompt, visit=s.visit, traces=s.traces) for s in states)
            fresh = self._round(states, drafts, order, call=f"round-{number}")
            fresh = self._judged(states, fresh, order)
            states = [replace(s, traces=s.traces + new) for s, new in zip(states, fresh, strict=True)]
        raise RolloutError(
            f"the mix still drafts after {MAX_ROUNDS} rounds; it must return no drafts in the end"
        )

    def _round(
        self, states: Sequence[GroupState], drafts: Sequence[tuple[Draft, ...]], order: Order, *, call: str
    ) -> list[tuple[Trace, ...]]:
        """The traces of one round, unjudged: recalled from the journal, or written in one generation call."""
        begun = [
            self._begin(state, draft, len(state.traces) + n)
            for state, some in zip(states, drafts, strict=True)
            for n, draft in enumerate(some)
        ]
        kept = self.journal.recall(call)
        if kept is None:
            kept = self._generated(begun, order.sampling)
            self.journal.record_call(call, kept)
        elif [(t.id, t.draft) for t in kept] != [(t.id, t.draft) for t in begun]:
            raise CheckpointError(
                f"the journal's {call} holds other traces than this run drafts; found "
                f"{kept[0].id if kept else 'none'} "
                "first; recipe, data or code differ from the run that was interrupted; restore them"
            )
        rest = iter(kept)
        return [tuple(next(rest) for _ in some) for some in drafts]

    def _generated(self, begun: Sequence[Trace], sampling: Sampling) -> tuple[Trace, ...]:
        """The traces with what the policy wrote, from one generation call."""
        requests = [self._request(t, sampling) for t in begun if t.draft.prefix_fraction < 1]
        found = self.backend.generate(requests) if requests else []
        if [o.request_id for o in found] != [r.id for r in requests]:
            raise RolloutError(
                f"the backend must answer every request in order; found {len(found)} outputs for "
                f"{len(requests)} requests, or other names; mend the backend"
            )
        outputs = {o.request_id: o for o in found}
        return tuple(self._finished(t, outputs.get(t.id), temperature=sampling.temperature) for t in begun)

    def _judged(
        self, states: Sequence[GroupState], fresh: list[tuple[Trace, ...]], order: Order
    ) -> list[tuple[Trace, ...]]:
        """The same traces with verdicts; the second stream and rounds without a judge have none."""
        if order.judge is None:
            return fresh
        known = self.journal.verdicts()
        open_groups = [
            (state.prompt, [t for t in traces if t.id not in known])
            for state, traces in zip(states, fresh, strict=True)
            if state.prompt.stream is Stream.MAIN
        ]
        todo = [(prompt, traces) for prompt, traces in open_groups if traces]
        for start in range(0, len(todo), order.chunk):
            some = todo[start : start + order.chunk]
            verdicts = order.judge([[_item(prompt, t) for t in traces] for prompt, traces in some])
            self.journal.record_verdicts(
                {
                    t.id: v
                    for (_, traces), row in zip(some, verdicts, strict=True)
                    for t, v in zip(traces, row, strict=True)
                }
            )
        known = self.journal.verdicts()
        return [tuple(replace(t, verdict=known.get(t.id)) for t in traces) for traces in fresh]

    def _begin(self, state: GroupState, draft: Draft, member: int) -> Trace:
        """A trace that holds its prompt and what is taken from the demonstration."""
        prompt = state.prompt
        if prompt.id not in self.rendered:
            ids = self.rendering.prompt_ids(prompt.messages)
            if len(ids) > self.prompt_limit:
                raise RolloutError(
                    f"prompt {prompt.id} has {len(ids)} tokens, above the limit of {self.prompt_limit}; "
                    "raise trainer.max_prompt_tokens or remove the row"
                )
            self.rendered[prompt.id] = ids
        head = Segment(origin=Origin.PROMPT, token_ids=self.rendered[prompt.id])
        shown = self._shown(state, draft)
        return Trace(
            id=trace_id(prompt, state.visit, member),
            prompt_id=prompt.id,
            domain=prompt.domain,
            visit=state.visit,
            member=member,
            draft=draft,
            contexts=((head, *shown),),
            finish=Finish.STOP,
            stream=prompt.stream,
            text=self.rendering.text_of([i for s in shown for i in s.token_ids]),
        )

    def _shown(self, state: GroupState, draft: Draft) -> tuple[Segment, ...]:
        if draft.prefix_fraction == 0:
            return ()
        if not (0 < draft.prefix_fraction <= 1 and 0 <= draft.demonstration < len(state.demonstrations)):
            raise RolloutError(
                f"the mix drafts {draft.prefix_fraction:g} of demonstration {draft.demonstration} of prompt "
                f"{state.prompt.id}; found {len(state.demonstrations)} demonstrations; a mix may ask for a "
                "part in [0, 1] of those its state holds"
            )
        demonstration = state.demonstrations[draft.demonstration]
        ids = demonstration.token_ids or self.rendering.response_ids(demonstration.text)
        count = prefix_length(len(ids), draft.prefix_fraction)
        if draft.prefix_fraction < 1:
            # A prefix leaves something to be written.
            count = min(count, len(ids) - 1)
        logprobs = demonstration.author_logprobs
        if count == 0:
            return ()
        return (
            Segment(
                origin=Origin.DEMONSTRATION,
                token_ids=ids[:count],
                logprobs=None if logprobs is None else logprobs[:count],
            ),
        )

    def _request(self, begun: Trace, sampling: Sampling) -> Request:
        return Request(
            id=begun.id,
            context_ids=tuple(i for s in begun.segments for i in s.token_ids),
            key=self.streams.key("rollout", begun.prompt_id, begun.visit, begun.member),
            sampling=replace(sampling, max_tokens=sampling.max_tokens - begun.response_length),
        )

    def _finished(self, begun: Trace, output: Output | None, *, temperature: float) -> Trace:
        if output is None:
            return begun
        if output.finish in {Finish.CANCELLED, Finish.ERROR}:
            raise RolloutError(
                f"the backend ended {begun.id} with {output.finish.value!r}; the whole call is run again on "
                "resume"
            )
        if len(output.logprobs) != len(output.token_ids) or not all(map(isfinite, output.logprobs)):
            raise RolloutError(
                f"the backend's log-probabilities of {begun.id} are not one finite number per token; found "
                f"{len(output.logprobs)} for {len(output.token_ids)} tokens; mend the backend"
            )
        written = Segment(
            origin=Origin.POLICY,
            token_ids=output.token_ids,
            logprobs=output.logprobs,
            version=output.version,
            temperature=temperature,
        )
        segments = (*begun.segments, written)
        response = [i for s in segments if s.origin is not Origin.PROMPT for i in s.token_ids]
        return replace(
            begun, contexts=(segments,), finish=output.finish, text=self.rendering.text_of(response)
        )


def trace_id(prompt: Prompt, visit: int, member: int) -> TraceId:
    """The name of a trace, unique in a run; ``~`` marks prompts of the second stream."""
    mark = "~" if prompt.stream is Stream.DEMONSTRATIONS else "#"
    return TraceId(f"{prompt.id}{mark}{visit}.{member}")


def _item(prompt: Prompt, trace: Trace) -> Item:
    return Item(prompt=prompt, response=trace.text, finish=trace.finish)
