"""Tests of bimetal.rollout.pipeline."""

from __future__ import annotations

import pytest
from tests.rollout.scene import SAMPLING, answering, maker, prompt

from bimetal.core.errors import CheckpointError, RolloutError
from bimetal.objectives.mix import demonstration_only, free
from bimetal.rollout.group import Draw, Order
from bimetal.rollout.journal import Journal
from bimetal.rollout.pipeline import Pipeline


def order(mix=free):
    return Order(mix=mix, size=2, sampling=SAMPLING, judge=None)


def draws(names):
    return [Draw(prompt=prompt(name), visit=0) for name in names]


def taken(pipeline, count, *, mix=free, batch=0, version=0, **rules):
    return pipeline.take(count, order(mix), batch=batch, progress=0.0, version=version, **rules)


def test_groups_come_in_the_order_of_submission(tmp_path):
    pipeline = Pipeline(maker(tmp_path, answering()))
    pipeline.submit(draws("cab"))
    assert [g.prompt.id for g in taken(pipeline, 2)] == ["c", "a"]
    assert [g.prompt.id for g in taken(pipeline, 2, batch=1)] == ["b"]
    assert taken(pipeline, 2, batch=2) == ()


def test_groups_without_traces_are_left_out(tmp_path):
    pipeline = Pipeline(maker(tmp_path, answering(), shown={"b": ["x"]}))
    pipeline.submit(draws("abc"))
    assert [g.prompt.id for g in taken(pipeline, 3, mix=demonstration_only)] == ["b"]


def test_the_order_of_consumption_is_in_the_journal(tmp_path):
    pipeline = Pipeline(maker(tmp_path, answering()))
    pipeline.submit(draws("ab"))
    taken(pipeline, 2)
    journal = Journal(tmp_path)
    journal.open_batch(0)
    journal.record_order(["a#0.0", "a#0.1", "b#0.0", "b#0.1"])
    with pytest.raises(CheckpointError, match="another order"):
        journal.record_order(["b#0.0", "b#0.1", "a#0.0", "a#0.1"])


def test_traces_of_older_weights_are_refused_beyond_the_staleness(tmp_path):
    backend = answering()
    backend.load_weights(None, 3)
    pipeline = Pipeline(maker(tmp_path, backend))
    pipeline.submit(draws("a"))
    with pytest.raises(RolloutError, match="written by weights"):
        taken(pipeline, 1, version=5, max_staleness=1)
    pipeline.submit(draws("a"))
    assert len(taken(pipeline, 1, version=5, max_staleness=2)) == 1
