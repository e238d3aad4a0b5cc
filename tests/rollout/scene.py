"""Traces, prompts and a group maker over a scripted backend, for tests of the rollout layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from bimetal.backends import scripted
from bimetal.core.streams import Streams
from bimetal.core.types import (
    Demonstration,
    Draft,
    Finish,
    Item,
    Message,
    Origin,
    Prompt,
    PromptId,
    Segment,
    Status,
    Stream,
    Trace,
    TraceId,
    Verdict,
)
from bimetal.rollout.backend import Backend, Output, Request, Sampling
from bimetal.rollout.group import GroupMaker, Rendering
from bimetal.rollout.journal import Journal

END = 0


def encode(text: str) -> tuple[int, ...]:
    """One id per character, and the end of the turn."""
    return (*(ord(c) for c in text), END)


def decode(ids: Sequence[int]) -> str:
    return "".join(chr(i) for i in ids if i != END)


RENDERING = Rendering(
    prompt_ids=lambda messages: tuple(ord(c) for m in messages for c in m.content),
    response_ids=encode,
    text_of=decode,
)


def prompt(name: str, *, stream: Stream = Stream.MAIN) -> Prompt:
    messages = (Message(role="user", content=f"{name}?"),)
    return Prompt(id=PromptId(name), domain="d", messages=messages, reference="1", stream=stream)


def trace(name: str, *, text: str = "1", verdict: Verdict | None = None) -> Trace:
    """One finished rollout."""
    segments = (
        Segment(origin=Origin.PROMPT, token_ids=(5, 6)),
        Segment(
            origin=Origin.POLICY, token_ids=(7, END), logprobs=(-0.1, -1 / 3), version=2, temperature=0.7
        ),
    )
    return Trace(
        id=TraceId(name), prompt_id=PromptId("p"), domain="d", visit=0, member=0, draft=Draft(),
        contexts=(segments,), finish=Finish.STOP, text=text, verdict=verdict,
    )  # fmt: skip


CORRECT = Verdict(status=Status.CORRECT, reward=1.0, seconds=0.25, parts={"strict": 1.0})
WRONG = Verdict(status=Status.WRONG, reward=0.0)
SAMPLING = Sampling(max_tokens=8, stop_token_ids=(END,))


class Judging:
    """A judge that compares with the reference and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, groups: Sequence[Sequence[Item]]) -> list[list[Verdict]]:
        self.asked += [[item.response for item in items] for items in groups]
        return [[CORRECT if i.response == i.prompt.reference else WRONG for i in items] for items in groups]


class Asked:
    """A backend that answers from a script and remembers its calls."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.calls: list[list[Request]] = []

    def generate(self, requests: Sequence[Request]) -> list[Output]:
        self.calls.append(list(requests))
        return self.inner.generate(requests)

    def load_weights(self, handle: object, version: int) -> None:
        self.inner.load_weights(handle, version)

    def cancel(self, request_ids: Sequence[str]) -> None:
        self.inner.cancel(request_ids)

    def health(self):
        return self.inner.health()

    def close(self) -> None:
        self.inner.close()


def answering(*replies: scripted.Reply, default: str = "1") -> Asked:
    options = scripted.Config(replies=replies, default=scripted.Reply(text=default, logprob=-0.5))
    return Asked(scripted.connect(options, encode=encode, decode=decode))


def maker(
    folder: Path,
    backend: Backend,
    *,
    shown: Mapping[str, Sequence[str]] | Callable[[PromptId], tuple[Demonstration, ...]] | None = None,
    prompt_limit: int = 16,
) -> GroupMaker:
    """A group maker whose prompts have these demonstrations."""
    texts = shown if isinstance(shown, Mapping) else {}

    def of(name: PromptId) -> tuple[Demonstration, ...]:
        return tuple(Demonstration(prompt_id=name, text=text) for text in texts.get(name, ()))

    return GroupMaker(
        backend=backend,
        rendering=RENDERING,
        demonstrations=shown if callable(shown) else of,
        journal=Journal(folder),
        streams=Streams(1),
        rendered={},
        prompt_limit=prompt_limit,
    )
