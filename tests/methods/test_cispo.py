"""CISPO against its literal transcription, and what a cap without a clip means."""

from __future__ import annotations

import pytest
from tests.methods import literal_rl
from tests.methods.compare import LONGEST, check_against_literal, forget_verdict, free_groups
from tests.objectives.tables import a_batch, log, said, slope

from bimetal.methods.cispo import Config, build
from bimetal.objectives.method import RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


def transcribed(*, floor=0.0, cap=5.0):
    return lambda samples: literal_rl.cispo(samples.groups, floor=floor, cap=cap, epsilon=1e-6)


@pytest.mark.parametrize(("seed", "drift"), [(0, "none"), (1, "some")])
def test_cispo_equals_its_literal_transcription(seed, drift):
    check_against_literal(build(Config(), RUN), free_groups(seed), transcribed(), seed=seed, drift=drift)


def test_cispo_equals_its_literal_transcription_where_both_bounds_hold():
    method = build(Config(floor=0.9, cap=1.1), RUN)
    expected = transcribed(floor=0.9, cap=1.1)
    metrics = check_against_literal(method, free_groups(2), expected, seed=2, drift="some")
    assert 0.9 < metrics.value("correction/mean") < 1.1


def test_an_unknown_trace_takes_no_part():
    groups = forget_verdict(free_groups(0), 1, 2)
    check_against_literal(build(Config(), RUN), groups, transcribed(), seed=0, drift="some")


def test_no_token_stops_teaching_and_none_teaches_more_than_the_cap():
    loss = build(Config(cap=2.0, floor=0.5), RUN).terms[0].loss
    batch = a_batch(
        {"rl": [[1, 1, 1, 1]]}, advantages=[[1.5, 1.5, -1.5, -1.5]], old_logprobs=log([[0.1, 0.8, 0.1, 0.4]])
    )
    policy = said(log([[0.9, 0.2, 0.9, 0.4]]))
    found = loss(batch, policy, batch.members["rl"])
    # Ratios 9, 0.25, 9, 1 are held at 2, 0.5, 2, 1, and the coefficients are A times that.
    assert slope(found, policy.logprobs) == [pytest.approx([-3.0, -0.75, 3.0, 1.5], rel=1e-12)]


def test_a_cap_above_every_ratio_changes_nothing():
    batch = a_batch({"rl": [[1, 1]]}, advantages=[[1.0, -1.0]], old_logprobs=log([[0.2, 0.5]]))
    policy = said(log([[0.6, 0.5]]))  # ratios 3 and 1
    slopes = [
        slope(build(Config(cap=cap), RUN).terms[0].loss(batch, policy, batch.members["rl"]), policy.logprobs)
        for cap in (3.5, 1000.0)
    ]
    assert slopes[0] == slopes[1] == [pytest.approx([-3.0, 1.0], rel=1e-12)]
