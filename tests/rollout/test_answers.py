"""Tests of bimetal.rollout.answers; the rest of it is seen through the local backend."""

from __future__ import annotations

import pytest
import torch

from bimetal.core.errors import RolloutError
from bimetal.core.types import Finish
from bimetal.rollout.answers import Answers
from bimetal.rollout.backend import Request, Sampling


def answers(*settings):
    requests = [Request(id=str(n), context_ids=(1,), key=0, sampling=s) for n, s in enumerate(settings)]
    return Answers(requests, decode=str, device=torch.device("cpu"), vocabulary=10)


def take(book, rows, tokens, step):
    logprobs = torch.tensor([-float(t) for t in tokens])
    running = book.take(torch.tensor(rows), tokens=torch.tensor(tokens), logprobs=logprobs, step=step)
    return running.tolist()


def test_each_row_has_its_own_stop_tokens_and_length():
    book = answers(
        Sampling(max_tokens=3, stop_token_ids=(7,)),
        Sampling(max_tokens=3, stop_token_ids=(8,)),
        Sampling(max_tokens=2),
    )
    assert take(book, [0, 1, 2], [7, 7, 7], 0) == [False, True, True]
    # Row 0 stays in the batch, finished: what it draws does not count.
    assert take(book, [0, 1, 2], [1, 2, 3], 1) == [False, True, False]
    # Row 2 has left. A stop token at the last place is a stop.
    assert take(book, [0, 1], [4, 8], 2) == [False, False]
    outputs = book.outputs(count=3, version=5)
    assert [o.token_ids for o in outputs] == [(7,), (7, 2, 8), (7, 3)]
    assert [o.logprobs for o in outputs] == [(-7.0,), (-7.0, -2.0, -8.0), (-7.0, -3.0)]
    assert [o.finish for o in outputs] == [Finish.STOP, Finish.STOP, Finish.LENGTH]
    assert {o.version for o in outputs} == {5}


def test_a_cancel_keeps_what_was_written_and_spares_the_finished():
    book = answers(Sampling(max_tokens=1), Sampling(max_tokens=3))
    take(book, [0, 1], [1, 2], 0)
    book.cancel({"0", "1", "stranger"})
    assert take(book, [1], [3], 1) == [False]
    outputs = book.outputs(count=2, version=0)
    assert [(o.token_ids, o.finish) for o in outputs] == [((1,), Finish.LENGTH), ((2,), Finish.CANCELLED)]


def test_values_that_are_not_finite_count_only_where_a_token_was_written():
    book = answers(Sampling(max_tokens=1), Sampling(max_tokens=2))
    take(book, [0, 1], [1, 2], 0)
    nan = torch.tensor([float("nan"), -1.0])
    book.take(torch.tensor([0, 1]), tokens=torch.tensor([1, 2]), logprobs=nan, step=1)
    assert [len(o.token_ids) for o in book.outputs(count=2, version=0)] == [1, 2]
    book = answers(Sampling(max_tokens=1), Sampling(max_tokens=1))
    book.take(torch.tensor([0, 1]), tokens=torch.tensor([1, 2]), logprobs=nan, step=0)
    with pytest.raises(RolloutError, match="1 requests, first 0"):
        book.outputs(count=2, version=0)
