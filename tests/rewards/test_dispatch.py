"""The rules for groups and items that break their check, without any process."""

from __future__ import annotations

from bimetal.core.types import Status, Verdict
from bimetal.rewards.dispatch import Dispatch, Unit
from bimetal.rewards.wire import Document, verdict_document


def unit(number: int, *members: int) -> Unit:
    return Unit(task=number, verifier="v", name="v", members=members)


def answer(*rewards: float) -> Document:
    verdicts = [
        verdict_document(Verdict(status=Status.CORRECT if r == 1 else Status.WRONG, reward=r))
        for r in rewards
    ]
    return {"task": 0, "verdicts": verdicts, "seconds": 0.5}


def test_a_group_that_times_out_is_taken_one_by_one_before_the_rest() -> None:
    dispatch = Dispatch([unit(0, 0, 1), unit(1, 0)])
    (group,) = dispatch.take(1)
    dispatch.time_out(group, seconds=1.0, status=Status.WRONG)
    assert [(u.task, u.members) for u in dispatch.take(8)] == [(0, (0,))]
    assert [(u.task, u.members) for u in dispatch.take(8)] == [(0, (1,))]
    assert [(u.task, u.members) for u in dispatch.take(8)] == [(1, (0,))]


def test_an_item_pays_after_it_alone_times_out_again() -> None:
    dispatch = Dispatch([unit(0, 0, 1)])
    dispatch.time_out(dispatch.take(1)[0], seconds=1.0, status=Status.WRONG)
    dispatch.time_out(dispatch.take(1)[0], seconds=1.0, status=Status.WRONG)
    dispatch.succeed(dispatch.take(1)[0], answer(1.0))
    ((first, second),) = dispatch.results()
    # Half of the group's second, and its own.
    assert (first.status, first.reward, first.reason, first.seconds) == (Status.WRONG, 0.0, "timeout", 1.5)
    # Half of the group's second, and the half second of the answer.
    assert (second.reward, second.seconds) == (1.0, 1.0)
    assert dispatch.is_done


def test_strikes_of_different_kinds_do_not_add_up() -> None:
    dispatch = Dispatch([unit(0, 0)])
    dispatch.time_out(dispatch.take(1)[0], seconds=1.0, status=Status.WRONG)
    dispatch.die(dispatch.take(1)[0], seconds=1.0, ending="exit status 1")
    assert not dispatch.is_done
    dispatch.die(dispatch.take(1)[0], seconds=1.0, ending="exit status 1")
    ((verdict,),) = dispatch.results()
    assert (verdict.status, verdict.reason) == (Status.UNKNOWN, "infra_error")


def test_units_that_were_not_begun_keep_their_place() -> None:
    dispatch = Dispatch([unit(n, 0) for n in range(4)])
    taken = dispatch.take(3)
    dispatch.put_back(taken[1:])
    assert [u.task for u in dispatch.take(8)] == [1, 2, 3]


def test_an_answer_that_is_malformed_is_the_verifiers_fault() -> None:
    for message in ({"task": 0}, answer(1.0), {**answer(1.0, 1.0), "verdicts": [{}, {}]}):
        dispatch = Dispatch([unit(0, 0, 1)])
        dispatch.succeed(dispatch.take(1)[0], message)
        assert [v.reason for v in dispatch.results()[0]] == ["verifier_error"] * 2
