"""The records that flow through a run: plain, frozen, serializable, without tensors.

Prompt --mix--> Draft --backend--> Segments --verifier--> Trace --credit--> Credit
"""

# long: the records that flow, with an example each; their readers want one page
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, NewType

PromptId = NewType("PromptId", str)
TraceId = NewType("TraceId", str)

SCHEMA_VERSION = 1
"""Version of the stored form of a trace; raised when a field changes meaning."""

if TYPE_CHECKING:
    JsonValue = None | bool | int | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"]
else:  # the run-time checks of the tests cannot resolve a type that names itself
    JsonValue = object
"""What a reference or a row's extra column may hold: anything JSON can."""

EMPTY: Mapping[str, JsonValue] = MappingProxyType({})


class Origin(StrEnum):
    """Who wrote a segment."""

    PROMPT = "prompt"
    POLICY = "policy"
    DEMONSTRATION = "demonstration"
    ENVIRONMENT = "environment"


class Status(StrEnum):
    """How a verdict came out (design contract C5)."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNPARSEABLE = "unparseable"
    UNKNOWN = "unknown"


class Finish(StrEnum):
    """Why a sequence ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    ERROR = "error"


class Split(StrEnum):
    """What a prompt may be used for; the three are disjoint by problem."""

    TRAIN = "train"
    SELECTION = "selection"
    TEST = "test"


class Stream(StrEnum):
    """Which of a recipe's two streams a prompt belongs to.

    ``MAIN`` prompts are rolled out; ``DEMONSTRATIONS`` prompts only lend their demonstrations
    (CHORD's setting, arXiv:2508.11408: expert data for other prompts).
    """

    MAIN = "main"
    DEMONSTRATIONS = "demonstrations"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a chat: ``Message(role="user", content="17 + 25 = ?")``."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A problem as the model sees it.

    ``Prompt(id="lab_arithmetic/17+25", domain="lab_arithmetic", messages=(Message(...),), reference="42")``

    ``id`` is stable across runs and unique in its domain. ``reference`` is ``None`` where no
    answer is known; only methods that need a reward demand one. ``problem`` is the canonical key
    by which train and test are disjoint; it is the id where a domain has no better one.
    """

    id: PromptId
    domain: str
    messages: tuple[Message, ...]
    reference: JsonValue = None
    difficulty: float | None = None
    problem: str = ""
    stream: Stream = Stream.MAIN
    source: str = ""
    meta: Mapping[str, JsonValue] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demonstration:
    """A response somebody else wrote to a prompt.

    ``Demonstration(prompt_id=..., text="7+5=12 ... Answer: 42", author="solver", quality=1.0)``

    ``quality`` is in [0, 1]; ``None`` where the data does not say. ``author_logprobs`` are nats per
    token of the author's own tokens ``token_ids``; both are given or neither is.
    """

    prompt_id: PromptId
    text: str
    author: str = ""
    quality: float | None = None
    token_ids: tuple[int, ...] | None = None
    author_logprobs: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """How one member of a group begins.

    ``prefix_fraction`` 0 is a free rollout, 1 the whole demonstration, between them a rollout that
    continues a prefix of demonstration number ``demonstration`` (counted in tokens, rounded down).
    ``guidance`` is text only the sampler sees: what is written under it is trained without it, so
    its sampler's log-probabilities are not those of the trained context.
    """

    prefix_fraction: float = 0.0
    demonstration: int = 0
    guidance: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A span of tokens with one author.

    ``Segment(origin=Origin.POLICY, token_ids=(52, 50, 2), logprobs=(-0.1, -0.7, 0.0), version=3)``

    ``logprobs`` are the author's, in nats, one per token, under ``temperature`` and untruncated;
    ``None`` where nobody recorded them. ``version`` is that of the weights that wrote the tokens.
    """

    origin: Origin
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None
    version: int | None = None
    temperature: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a verifier says of one response (design contract C5).

    ``Verdict(status=Status.CORRECT, reward=1.0, reason="ok", parts={"strict": 1.0, "lenient": 1.0})``

    ``reward`` is in [0, 1], and ``None`` exactly when the status is ``UNKNOWN``. ``reason`` is the
    finer status: ok, no_answer, unparseable, timeout, bad_row, verifier_error, infra_error.
    ``extracted`` is what was graded, as text. ``detail`` is a sentence for people: what broke.
    """

    status: Status
    reward: float | None
    reason: str = "ok"
    parts: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    extracted: str | None = None
    verifier: str = ""
    seconds: float = 0.0
    detail: str = ""

    def __post_init__(self) -> None:
        """Refuse a reward that contradicts the status."""
        if (self.reward is None) != (self.status is Status.UNKNOWN):
            raise ValueError(f"reward must be None exactly when the status is unknown; got {self}")
        if self.reward is not None and not 0.0 <= self.reward <= 1.0:
            raise ValueError(f"reward must be in [0, 1]; got {self.reward}")
        if self.status is Status.CORRECT and self.reward != 1.0:
            raise ValueError(f"correct means full reward; got {self.reward}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One finished, judged sequence of segments.

    ``contexts`` holds the sequences the policy saw; today always one. ``verdict`` is ``None`` where
    the method needs no reward and nobody judged. ``text`` is the response as text, for people.
    """

    id: TraceId
    prompt_id: PromptId
    domain: str
    visit: int
    member: int
    draft: Draft
    contexts: tuple[tuple[Segment, ...], ...]
    finish: Finish
    verdict: Verdict | None = None
    text: str = ""
    stream: Stream = Stream.MAIN
    schema_version: int = SCHEMA_VERSION

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments of the trace's only context."""
        (segments,) = self.contexts
        return segments

    @property
    def response_length(self) -> int:
        """Tokens after the prompt, whoever wrote them."""
        return sum(len(s.token_ids) for s in self.segments if s.origin is not Origin.PROMPT)

    @property
    def is_known(self) -> bool:
        """Whether a reward is known, so that the trace may take part in its group's statistics."""
        return self.verdict is not None and self.verdict.reward is not None

    @property
    def reward(self) -> float:
        """The reward, in [0, 1].

        Raises:
            ValueError: No verdict is known; ask ``is_known`` first.
        """
        if self.verdict is None or self.verdict.reward is None:
            raise ValueError(f"trace {self.id} has no known reward")
        return self.verdict.reward


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Traces of one prompt that are compared with each other, in member order."""

    prompt: Prompt
    visit: int
    traces: tuple[Trace, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """What a mix may look at when it drafts the next round of a group.

    ``visit`` counts how often the prompt was drawn before; ``size`` is the number of members the recipe asks
    for; ``progress`` is the share of the stage's budget that is spent; ``traces`` are those of the earlier
    rounds, judged where the method needs it.
    """

    prompt: Prompt
    visit: int
    size: int
    progress: float
    demonstrations: tuple[Demonstration, ...] = ()
    traces: tuple[Trace, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentWeight:
    """How much the tokens of one segment count in one term.

    ``weight`` is one number for the segment or one per token. Weight 0 keeps tokens in the term's
    denominator; a segment that is no member has no ``SegmentWeight``.
    """

    term: str
    segment: int
    weight: float | tuple[float, ...] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Credit:
    """What a trace teaches: an advantage, and membership and weight by term and segment.

    ``advantage`` is one number for all response tokens, or one per response token in order.
    ``returns`` are value targets, one per response token, where the method trains a critic.
    """

    trace_id: TraceId
    advantage: float | tuple[float, ...] = 0.0
    weights: tuple[SegmentWeight, ...] = ()
    returns: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """What passes before the update found out, per trace, one number per response token.

    Only what the method's needs declare is present.
    """

    values: Mapping[TraceId, tuple[float, ...]] = field(default_factory=dict)
    old_logprobs: Mapping[TraceId, tuple[float, ...]] = field(default_factory=dict)
    reference_logprobs: Mapping[TraceId, tuple[float, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One response to be judged: what a domain's ``verify`` receives."""

    prompt: Prompt
    response: str
    finish: Finish = Finish.STOP


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What a verifier may use beyond its items; empty until an issue adds judge, sandbox or cache."""
