"""Tests of bimetal.rollout.group: drafts become requests, requests become judged groups."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.rollout.scene import (
    CORRECT,
    END,
    SAMPLING,
    WRONG,
    Asked,
    Judging,
    answering,
    encode,
    maker,
    prompt,
)

from bimetal.backends.scripted import Reply
from bimetal.core.errors import CheckpointError, RolloutError
from bimetal.core.streams import Streams
from bimetal.core.types import Demonstration, Draft, Finish, Origin, Stream
from bimetal.objectives.mix import by_stream, demonstration_only, free, one_demonstration
from bimetal.rollout.group import MAX_ROUNDS, Draw, Order


def order(mix, *, size=2, judge=None, chunk=16):
    return Order(mix=mix, size=size, sampling=SAMPLING, judge=judge, chunk=chunk)


def made(groups, mix, draws, *, batch=0, **rules):
    return groups.make(draws, order(mix, **rules), batch=batch, progress=0.25)


def origins(trace):
    return [segment.origin for segment in trace.segments]


def test_free_rollouts_are_asked_for_in_one_call_and_judged(tmp_path):
    backend, judge = answering(Reply(request="a#*", text="2")), Judging()
    draws = [Draw(prompt=prompt("a"), visit=3), Draw(prompt=prompt("b"), visit=0)]
    one, other = made(maker(tmp_path, backend), free, draws, judge=judge)
    assert [[r.id for r in call] for call in backend.calls] == [["a#3.0", "a#3.1", "b#0.0", "b#0.1"]]
    assert [t.verdict for t in one.traces + other.traces] == [WRONG, WRONG, CORRECT, CORRECT]
    assert judge.asked == [["2", "2"], ["1", "1"]]
    assert (one.prompt.id, one.visit, [t.member for t in one.traces]) == ("a", 3, [0, 1])
    (trace, _) = other.traces
    assert origins(trace) == [Origin.PROMPT, Origin.POLICY]
    written = trace.segments[1]
    assert (written.token_ids, written.logprobs, written.version) == (encode("1"), (-0.5, -0.5), 0)
    assert (trace.text, trace.finish, trace.response_length) == ("1", Finish.STOP, 2)


def test_the_noise_of_a_member_has_the_name_of_its_prompt_visit_and_number(tmp_path):
    backend = answering()
    made(maker(tmp_path, backend), free, [Draw(prompt=prompt("a"), visit=7)])
    assert [r.key for r in backend.calls[0]] == [Streams(1).key("rollout", "a", 7, n) for n in range(2)]


def test_a_whole_demonstration_asks_the_backend_nothing(tmp_path):
    backend, judge = answering(), Judging()
    groups = maker(tmp_path, backend, shown={"a": ["x", "y"]})
    (group,) = made(groups, demonstration_only, [Draw(prompt=prompt("a"), visit=1)], judge=judge)
    (trace,) = group.traces
    assert backend.calls == []
    assert origins(trace) == [Origin.PROMPT, Origin.DEMONSTRATION]
    # Visit 1 sees the second demonstration.
    assert (trace.text, trace.segments[1].token_ids) == ("y", encode("y"))
    assert trace.verdict == WRONG


def test_a_prompt_for_which_nothing_is_drafted_gives_a_group_without_traces(tmp_path):
    (group,) = made(maker(tmp_path, answering()), demonstration_only, [Draw(prompt=prompt("a"), visit=0)])
    assert group.traces == ()


def test_a_prefix_is_continued_within_the_limit_and_judged_as_a_whole(tmp_path):
    backend, judge = answering(Reply(text="cdefghijkl", logprob=-1.0)), Judging()
    groups = maker(tmp_path, backend, shown={"a": ["abcd"]})
    half = lambda state: () if state.traces else (Draft(prefix_fraction=0.5),)  # noqa: E731
    (group,) = made(groups, half, [Draw(prompt=prompt("a"), visit=0)], judge=judge)
    (request,) = backend.calls[0]
    # "abcd" and its end are 5 tokens; half of them, rounded down, is 2; 8 - 2 are left.
    assert request.context_ids == tuple(map(ord, "a?ab"))
    assert request.sampling.max_tokens == 6
    (trace,) = group.traces
    assert origins(trace) == [Origin.PROMPT, Origin.DEMONSTRATION, Origin.POLICY]
    assert (trace.text, trace.finish, trace.response_length) == ("abcdefgh", Finish.LENGTH, 8)
    assert judge.asked == [["abcdefgh"]]


@pytest.mark.parametrize(("fraction", "count"), [(0.1, 0), (0.2, 1), (0.6, 3), (0.999999999999, 4)])
def test_a_prefix_is_counted_in_tokens_and_leaves_something_to_write(tmp_path, fraction, count):
    backend = answering()
    groups = maker(tmp_path, backend, shown={"a": ["abcd"]})
    mix = lambda state: () if state.traces else (Draft(prefix_fraction=fraction),)  # noqa: E731
    made(groups, mix, [Draw(prompt=prompt("a"), visit=0)])
    assert backend.calls[0][0].context_ids == tuple(map(ord, "a?" + "abcd"[:count]))


def test_the_authors_own_tokens_and_logprobs_are_used_where_the_data_has_them(tmp_path):
    one = Demonstration(prompt_id="a", text="xyz", token_ids=(9, 8, END), author_logprobs=(-0.1, -0.2, -0.3))
    groups = maker(tmp_path, answering(), shown=lambda name: (one,))
    (group,) = made(groups, demonstration_only, [Draw(prompt=prompt("a"), visit=0)])
    shown = group.traces[0].segments[1]
    assert (shown.token_ids, shown.logprobs) == ((9, 8, END), (-0.1, -0.2, -0.3))


@pytest.mark.parametrize("draft", [
    Draft(prefix_fraction=1.0, demonstration=1), Draft(prefix_fraction=0.5, demonstration=-1),
    Draft(prefix_fraction=1.5), Draft(prefix_fraction=-0.5), Draft(prefix_fraction=float("nan")),
])  # fmt: skip
def test_a_draft_of_what_is_not_there_is_an_error(tmp_path, draft):
    groups = maker(tmp_path, answering(), shown={"a": ["x"]})
    with pytest.raises(RolloutError, match="found 1 demonstrations"):
        made(groups, lambda state: (draft,), [Draw(prompt=prompt("a"), visit=0)])


def test_a_mix_sees_judged_traces_and_drafts_more_where_it_must(tmp_path):
    """One more member for the group that failed: the second round has a call of its own."""
    backend, judge = answering(Reply(request="a#0.0", text="2")), Judging()

    def until_solved(state):
        assert (state.progress, state.size) == (0.25, 4)
        solved = any(t.reward == 1.0 for t in state.traces)
        return () if solved else (Draft(),)

    draws = [Draw(prompt=prompt("a"), visit=0), Draw(prompt=prompt("b"), visit=0)]
    one, other = made(maker(tmp_path, backend), until_solved, draws, size=4, judge=judge)
    assert [[r.id for r in call] for call in backend.calls] == [["a#0.0", "b#0.0"], ["a#0.1"]]
    assert [t.reward for t in one.traces] == [0.0, 1.0]
    assert [t.reward for t in other.traces] == [1.0]


def test_a_mix_without_end_is_an_error(tmp_path):
    with pytest.raises(RolloutError, match=f"still drafts after {MAX_ROUNDS} rounds"):
        made(maker(tmp_path, answering()), lambda state: (Draft(),), [Draw(prompt=prompt("a"), visit=0)])


def test_prompts_of_the_second_stream_are_not_judged_and_have_names_of_their_own(tmp_path):
    backend, judge = answering(), Judging()
    groups = maker(tmp_path, backend, shown={"a": ["x"]})
    draws = [
        Draw(prompt=prompt("a"), visit=0), Draw(prompt=prompt("a", stream=Stream.DEMONSTRATIONS), visit=0)
    ]  # fmt: skip
    main, second = made(groups, by_stream(free, demonstration_only), draws, size=1, judge=judge)
    assert [t.id for t in main.traces + second.traces] == ["a#0.0", "a~0.0"]
    assert main.traces[0].verdict == CORRECT
    assert second.traces[0].verdict is None
    assert (second.traces[0].text, second.traces[0].stream) == ("x", Stream.DEMONSTRATIONS)


def test_without_a_judge_nothing_is_judged(tmp_path):
    (group,) = made(maker(tmp_path, answering()), free, [Draw(prompt=prompt("a"), visit=0)])
    assert [t.verdict for t in group.traces] == [None, None]


def test_what_the_journal_holds_is_neither_generated_nor_judged_again(tmp_path):
    draws = [Draw(prompt=prompt(name), visit=0) for name in "abc"]
    first = made(maker(tmp_path, answering(), shown={"b": ["1"]}), one_demonstration, draws, judge=Judging())
    backend, judge = answering(default="9"), Judging()
    again = made(maker(tmp_path, backend, shown={"b": ["1"]}), one_demonstration, draws, judge=judge)
    assert again == first
    assert (backend.calls, judge.asked) == ([], [])


def test_verdicts_are_kept_by_the_chunk_and_only_the_missing_ones_are_asked_for(tmp_path):
    draws = [Draw(prompt=prompt(name), visit=0) for name in "abc"]

    class Broken(Judging):
        def __call__(self, groups):
            if len(self.asked) >= 2:
                raise RolloutError("killed in the middle of verification")
            return super().__call__(groups)

    with pytest.raises(RolloutError, match="in the middle"):
        made(maker(tmp_path, answering()), free, draws, judge=Broken(), chunk=2)
    judge = Judging()
    groups = made(maker(tmp_path, answering(default="9")), free, draws, judge=judge, chunk=2)
    # Two groups of the first chunk were kept; the third is judged now, with the texts of the first call.
    assert judge.asked == [["1", "1"]]
    assert [t.reward for g in groups for t in g.traces] == [1.0] * 6


def test_traces_of_other_prompts_in_the_journal_are_refused(tmp_path):
    made(maker(tmp_path, answering()), free, [Draw(prompt=prompt("a"), visit=0)])
    with pytest.raises(CheckpointError, match=r"holds other traces than this run drafts; found a#0\.0 first"):
        made(maker(tmp_path, answering()), free, [Draw(prompt=prompt("b"), visit=0)])


def test_a_journal_with_too_few_traces_is_refused(tmp_path):
    made(maker(tmp_path, answering()), free, [Draw(prompt=prompt("a"), visit=0)], size=2)
    with pytest.raises(CheckpointError, match="holds other traces"):
        made(maker(tmp_path, answering()), free, [Draw(prompt=prompt("a"), visit=0)], size=3)


def test_a_prompt_beyond_the_limit_is_an_error(tmp_path):
    with pytest.raises(RolloutError, match="prompt aaaaa has 6 tokens, above the limit of 5"):
        made(maker(tmp_path, answering(), prompt_limit=5), free, [Draw(prompt=prompt("aaaaa"), visit=0)])


class Changing(Asked):
    """A backend that changes the outputs of another."""

    def __init__(self, change):
        super().__init__(answering())
        self.change = change

    def generate(self, requests):
        return self.change(super().generate(requests))


@pytest.mark.parametrize(("change", "message"), [
    (lambda outputs: outputs[:1], "found 1 outputs for 2"),
    (lambda outputs: outputs[::-1], "must answer every request in order"),
    (lambda outputs: [replace(o, finish=Finish.ERROR) for o in outputs], "ended a#0.0 with 'error'"),
    (lambda outputs: [replace(o, finish=Finish.CANCELLED) for o in outputs], "ended a#0.0 with 'cancelled'"),
    (lambda outputs: [replace(o, logprobs=(-0.5,)) for o in outputs], "found 1 for 2 tokens"),
    (lambda outputs: [replace(o, logprobs=(-0.5, float("-inf"))) for o in outputs], "not one finite number"),
])  # fmt: skip
def test_a_backend_that_breaks_its_promise_is_an_error_and_nothing_is_kept(tmp_path, change, message):
    with pytest.raises(RolloutError, match=message):
        made(maker(tmp_path, Changing(change)), free, [Draw(prompt=prompt("a"), visit=0)])
    backend = answering()
    made(maker(tmp_path, backend), free, [Draw(prompt=prompt("a"), visit=0)])
    assert len(backend.calls) == 1
