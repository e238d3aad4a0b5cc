"""Tests of bimetal.trainer.parts: how a roll-out batch is cut into optimizer steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rollout.scene import prompt, trace

from bimetal.config.schema import MethodOptions, StageOptions
from bimetal.core.streams import Streams
from bimetal.core.types import Credit, Group, SegmentWeight, Stream
from bimetal.trainer.parts import optimizer_parts


def group(number, *, size=2, stream=Stream.MAIN):
    one = prompt(f"{stream.value}{number}", stream=stream)
    traces = tuple(replace(trace(f"{one.id}#{n}"), prompt_id=one.id, stream=stream) for n in range(size))
    return Group(prompt=one, visit=0, traces=traces)


def credit_of(groups, members=lambda trace: True):
    weights = (SegmentWeight(term="t", segment=1),)
    return {
        t.id: Credit(trace_id=t.id, weights=weights if members(t) else ()) for g in groups for t in g.traces
    }


def stage(**options):
    return StageOptions(name="s", method=MethodOptions(name="sft"), **options)


def parts(groups, *, batch=0, seed=1, members=lambda trace: True, **options):
    found = optimizer_parts(
        groups, credit_of(groups, members), stage(**options), streams=Streams(seed), batch=batch
    )
    return [[row.trace.id for row in part] for part in found]


def test_one_part_keeps_the_order_of_the_batch():
    groups = [group(n) for n in range(3)]
    assert parts(groups) == [["main0#0", "main0#1", "main1#0", "main1#1", "main2#0", "main2#1"]]
    assert parts(groups, epochs=2) == parts(groups) * 2


def test_rows_know_the_number_of_their_group():
    groups = [group(0), group(1)]
    (part,) = optimizer_parts(groups, credit_of(groups), stage(), streams=Streams(1), batch=0)
    assert [row.group for row in part] == [0, 0, 1, 1]


@given(st.integers(1, 9), st.integers(0, 5), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3))
def test_every_epoch_sees_every_group_once_whole_and_both_streams_are_spread_evenly(
    main, second, updates, epochs, size
):
    groups = [group(n, size=size) for n in range(main)]
    groups += [group(n, size=1, stream=Stream.DEMONSTRATIONS) for n in range(second)]
    found = parts(groups, updates_per_rollout=updates, epochs=epochs)
    everything = sorted(t.id for g in groups for t in g.traces)
    assert sorted(name for part in found for name in part) == sorted(everything * epochs)
    if min(main, second or main) >= updates:
        assert len(found) == updates * epochs
        for start, count in (("main", main * size), ("demonstrations", second)):
            sizes = [sum(name.startswith(start) for name in part) for part in found]
            step = size if start == "main" else 1
            assert max(sizes) - min(sizes) <= step, (sizes, count)
    for one in groups:
        names = {t.id for t in one.traces}
        assert sum(names <= set(part) for part in found) == epochs


def test_the_shuffle_depends_on_seed_batch_and_epoch_alone():
    groups = [group(n, size=1) for n in range(12)]
    rules = {"updates_per_rollout": 3, "epochs": 2}
    once = parts(groups, **rules)
    assert parts(groups, **rules) == once
    assert once[:3] != once[3:]
    assert parts(groups, batch=1, **rules) != once
    assert parts(groups, seed=2, **rules) != once


def test_traces_that_are_member_of_nothing_are_left_out_and_an_empty_part_is_no_step():
    groups = [group(0), group(1)]
    found = parts(groups, updates_per_rollout=2, members=lambda t: t.id == "main0#1")
    assert found == [["main0#1"]]
    assert parts(groups, members=lambda t: False) == []
    assert parts([], updates_per_rollout=2) == []


def test_more_parts_than_groups_leave_no_empty_step():
    assert sorted(parts([group(0, size=1), group(1, size=1)], updates_per_rollout=4)) == [
        ["main0#0"], ["main1#0"],
    ]  # fmt: skip


def test_the_number_of_updates_is_at_least_one():
    with pytest.raises(ValueError, match="updates_per_rollout"):
        stage(updates_per_rollout=0)
