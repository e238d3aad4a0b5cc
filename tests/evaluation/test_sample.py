"""Answers of a scripted backend: which requests are asked, in which pieces, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bimetal.core.errors import ConfigError, DataError, RolloutError, VerifierError
from bimetal.core.streams import Streams
from bimetal.core.types import Finish, Item, Message, Prompt, PromptId, Status, Verdict
from bimetal.evaluation.sample import Plan, Subject, answer
from bimetal.rollout.backend import Health, Output, Request, Sampling
from bimetal.rollout.group import Rendering

GREEDY = Plan(sampling=Sampling(temperature=0.0, max_tokens=8))
STREAMS = Streams(seed=5)


def test_answers_come_by_problem_in_order_with_verdict_length_and_finish() -> None:
    backend = Recorder()
    found = answer(
        prompts("1+1", "2+2"), subject=subject(backend), judge=two_is_right, streams=STREAMS, plan=GREEDY
    )
    assert [[(a.text, a.verdict.status, a.tokens, a.finish) for a in some] for some in found] == [
        [("1+1", Status.WRONG, 3, Finish.STOP)],
        [("2+2", Status.CORRECT, 3, Finish.STOP)],
    ]


def test_noise_is_named_by_seed_prompt_and_answer_number_alone() -> None:
    plan = Plan(sampling=Sampling(max_tokens=8), samples=2)
    whole, pieces = Recorder(), Recorder()
    answer(prompts("1+1", "2+2"), subject=subject(whole), judge=two_is_right, streams=STREAMS, plan=plan)
    answer(prompts("2+2"), subject=subject(pieces), judge=two_is_right, streams=STREAMS, plan=plan)
    assert whole.keys[2:] == pieces.keys
    assert whole.keys[0] == STREAMS.key("evaluation", "math/1+1", 0, 0)
    assert whole.keys[3] == STREAMS.key("evaluation", "math/2+2", 0, 1)


def test_requests_are_asked_in_bounded_calls_of_whole_problems() -> None:
    plan = Plan(sampling=Sampling(max_tokens=8), samples=2, requests_per_call=5)
    backend, progress = Recorder(), []
    answer(
        prompts("1", "2", "3", "4", "5"),
        subject=subject(backend),
        judge=two_is_right,
        streams=STREAMS,
        plan=plan,
        observe=lambda done, planned: progress.append((done, planned)),
    )
    assert backend.calls == [4, 4, 2]
    assert progress == [(4, 10), (8, 10), (10, 10)]


def test_truncated_sampling_is_passed_on() -> None:
    backend = Recorder()
    sampling = Sampling(temperature=0.7, top_p=0.9, top_k=5, max_tokens=8)
    answer(
        prompts("1"),
        subject=subject(backend),
        judge=two_is_right,
        streams=STREAMS,
        plan=Plan(sampling=sampling),
    )
    assert backend.samplings == [sampling]


def test_a_prompt_that_fills_the_context_is_an_error_before_anything_is_written() -> None:
    backend = Recorder()
    with pytest.raises(DataError, match=r"math/123456: has 6 tokens and the model 6 positions"):
        answer(
            prompts("1", "123456"),
            subject=subject(backend, positions=6),
            judge=two_is_right,
            streams=STREAMS,
            plan=GREEDY,
        )
    assert backend.calls == []


def test_two_problems_of_one_id_are_an_error_before_anything_is_written() -> None:
    backend = Recorder()
    with pytest.raises(DataError, match=r"'math/1' of domain 'math': found 2 prompts"):
        answer(prompts("1", "1"), subject=subject(backend), judge=two_is_right, streams=STREAMS, plan=GREEDY)
    assert backend.calls == []


def test_an_answer_the_backend_gave_up_on_ends_the_evaluation() -> None:
    with pytest.raises(RolloutError, match="'cancelled'"):
        answer(
            prompts("1"),
            subject=subject(Recorder(finish=Finish.CANCELLED)),
            judge=two_is_right,
            streams=STREAMS,
            plan=GREEDY,
        )


def test_too_many_unjudged_answers_of_one_domain_end_the_evaluation() -> None:
    # Two of eight answers of one domain are 25 %: above the limit, though only 2 of 16 in all.
    some = prompts("1", "2", "3", "4", "5", "6", "?", "?!") + [
        prompt(str(n), domain="logic") for n in range(8)
    ]
    with pytest.raises(VerifierError, match=r"math: 2 of 8 answers could not be judged \(infra_error 2\)"):
        answer(some, subject=subject(Recorder()), judge=two_is_right, streams=STREAMS, plan=GREEDY)


def test_unjudged_answers_within_the_limit_are_kept_as_unknown() -> None:
    found = answer(
        prompts("1", "2", "3", "4", "?"),
        subject=subject(Recorder()),
        judge=two_is_right,
        streams=STREAMS,
        plan=GREEDY,
    )
    assert [some[0].verdict.status for some in found].count(Status.UNKNOWN) == 1


def test_several_greedy_answers_are_refused() -> None:
    with pytest.raises(ConfigError, match="3 greedy answers to one problem are all the same"):
        Plan(sampling=Sampling(temperature=0.0), samples=3)
    with pytest.raises(ConfigError, match="at least 1"):
        Plan(sampling=Sampling(), samples=0)


class Recorder:
    """A backend that repeats the context, and remembers what was asked."""

    def load_weights(self, handle: object, version: int) -> None: ...

    def cancel(self, request_ids: Sequence[str]) -> None: ...

    def health(self) -> Health:
        return Health(ok=True, version=0)

    def close(self) -> None: ...

    def __init__(self, finish: Finish = Finish.STOP) -> None:
        self.calls: list[int] = []
        self.keys: list[int] = []
        self.samplings: list[Sampling] = []
        self.finish = finish

    def generate(self, requests: Sequence[Request]) -> list[Output]:
        assert len({r.id for r in requests}) == len(requests)
        self.calls.append(len(requests))
        self.keys += [r.key for r in requests]
        self.samplings += [r.sampling for r in requests]
        return [
            Output(
                request_id=r.id,
                token_ids=r.context_ids,
                logprobs=(0.0,) * len(r.context_ids),
                finish=self.finish,
                version=0,
            )
            for r in requests
        ]


def subject(backend: Recorder, *, positions: int = 64) -> Subject:
    rendering = Rendering(
        prompt_ids=lambda messages: tuple(map(ord, messages[-1].content)),
        response_ids=lambda text: tuple(map(ord, text)),
        text_of=lambda ids: "".join(map(chr, ids)),
    )
    return Subject(name="echo", backend=backend, rendering=rendering, positions=positions)


def prompts(*texts: str) -> list[Prompt]:
    return [prompt(text) for text in texts]


def prompt(text: str, domain: str = "math") -> Prompt:
    messages = (Message(role="user", content=text),)
    return Prompt(id=PromptId(f"{domain}/{text}"), domain=domain, messages=messages)


def two_is_right(groups: Sequence[Sequence[Item]]) -> list[list[Verdict]]:
    return [[verdict(item.response) for item in group] for group in groups]


def verdict(text: str) -> Verdict:
    if "?" in text:
        return Verdict(status=Status.UNKNOWN, reward=None, reason="infra_error")
    right = "2" in text
    return Verdict(status=Status.CORRECT if right else Status.WRONG, reward=float(right), extracted=text)
