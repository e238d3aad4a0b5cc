"""RRHF against its literal transcription, its limits, and pairs worked by hand."""

from __future__ import annotations

import dataclasses
import math

import pytest
from tests.methods import literal, literal_sft
from tests.methods.compare import (
    LONGEST,
    SEEDS,
    Group,
    Status,
    Verdict,
    check_against_literal,
    forget_verdict,
    mixed_groups,
)
from tests.objectives.tables import INF, NAN, a_batch, log, said, slope

from bimetal.methods.rrhf import Config, build, out_of_order
from bimetal.objectives.loss import Coupled
from bimetal.objectives.method import RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


def graded(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """The same groups with rewards 0.9, 0.3, 0.6, 0.3 in member order: an order, and one tie."""

    def judged(trace, reward):
        return dataclasses.replace(trace, verdict=Verdict(status=Status.WRONG, reward=reward))

    rewards = (0.9, 0.3, 0.6, 0.3)
    return tuple(
        dataclasses.replace(g, traces=tuple(map(judged, g.traces, rewards[: len(g.traces)]))) for g in groups
    )


@pytest.mark.parametrize(("weight", "power"), [(1.0, 1.0), (100.0, 0.5), (0.25, 0.0)])
@pytest.mark.parametrize("change", [tuple, graded], ids=["right or wrong", "graded"])
@pytest.mark.parametrize("seed", SEEDS)
def test_rrhf_equals_its_literal_transcription(seed, change, weight, power):
    def transcribed(samples):
        return literal_sft.rrhf(samples.groups, alpha=power, weight=weight)

    method = build(Config(weight=weight, power=power), RUN)
    groups = forget_verdict(change(mixed_groups(seed)), 1, 0)
    check_against_literal(method, groups, transcribed, seed=seed, drift="none")


def test_a_single_candidate_is_imitated_as_in_sft():
    def sft(samples):
        return literal.sft(samples.demonstrations, aggregate="sequence_sum")

    groups = tuple(dataclasses.replace(g, traces=g.traces[-1:]) for g in mixed_groups(0))
    check_against_literal(build(Config(), RUN), groups, sft, seed=0, drift="none")


def test_pairs_worked_by_hand():
    members = {"ranking": [[1, 1, 0], [1, 0, 0], [1, 1, 1], [0, 0, 0], [1, 0, 0], [1, 0, 0]]}
    rewards = [
        [0.1, 0.1, NAN],
        [0.7, INF, NAN],
        [0.1, 0.1, 0.1],
        [NAN, NAN, NAN],
        [0.9, NAN, NAN],
        [0.9, NAN, NAN],
    ]
    batch = a_batch(members, advantages=rewards, group=[1, 1, 1, 1, 0, 2])
    half = [0.5, 0.5, NAN]
    policy = said(
        log(
            [
                half,
                [0.25, INF, NAN],
                [0.125, 0.125, 0.125],
                [0.9, 0.9, 0.9],
                [0.01, NAN, NAN],
                [0.01, NAN, NAN],
            ]
        )
    )
    loss = Coupled(out_of_order(1.0))(batch, policy, batch.members["ranking"])
    # Scores are log 1/2, log 1/4, log 1/8: of the pairs with unequal reward, (first, second) is out of order
    # and (third, second) is not; first and third are a tie; the fourth is unknown; the others are of
    # other prompts. The hinge is log 1/2 - log 1/4 = log 2.
    assert float(loss.sum().detach()) == pytest.approx(math.log(2), rel=1e-12)
    # +1/2 on each of the worse one's two tokens, -1 on the better one's only token.
    assert slope(loss, policy.logprobs) == [[0.5, 0.5, 0.0], [-1.0, 0.0, 0.0], *[[0.0] * 3] * 4]
