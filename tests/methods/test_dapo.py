"""DAPO against its literal transcription, with the soft penalty for length, the filter, and neither."""

from __future__ import annotations

import dataclasses

import pytest
from tests.methods import literal, literal_rl
from tests.methods.compare import LONGEST, check_against_literal, forget_verdict, free_groups
from tests.methods.rollouts import cut_every_third
from tests.objectives.tables import a_group, a_trace

from bimetal.core.types import Finish, Signals
from bimetal.methods.dapo import Config, build, shaped
from bimetal.objectives.method import RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


def transcribed(*, cache=6, keep=True, high=0.28):
    return lambda samples: literal_rl.dapo(
        samples.groups,
        low=0.2,
        high=high,
        epsilon=1e-6,
        right=1.0,
        wrong=-1.0,
        longest=LONGEST,
        cache=cache,
        keep_truncated=keep,
        count_truncated=False,
    )


@pytest.mark.parametrize(("seed", "drift"), [(0, "none"), (1, "some"), (2, "some")])
def test_dapo_equals_its_literal_transcription(seed, drift):
    # L_c is half of 12 tokens, so that several responses are long.
    method = build(Config(overlong_share=0.5), RUN)
    metrics = check_against_literal(method, free_groups(seed), transcribed(), seed=seed, drift=drift)
    assert (metrics.value("gate/closed_share") > 0) == (drift == "some")


@pytest.mark.parametrize("seed", [0, 1])
def test_the_filter_takes_cut_responses_out_of_the_loss_and_not_out_of_their_group(seed):
    groups = cut_every_third(free_groups(seed))
    method = build(Config(overlong="filter"), RUN)
    check_against_literal(method, groups, transcribed(cache=0, keep=False), seed=seed, drift="some")


def test_an_unknown_trace_takes_no_part():
    groups = forget_verdict(free_groups(0), 1, 2)
    method = build(Config(overlong_share=0.5), RUN)
    check_against_literal(method, groups, transcribed(), seed=0, drift="some")


def test_without_a_penalty_and_with_an_even_clip_it_is_grpo_over_tokens():
    # Rewards of -1 and 1 instead of 0 and 1 double the deviation: so must epsilon, to change no number.
    def expected(samples):
        return literal.grpo(samples.groups, low=0.2, high=0.2, beta=0, epsilon=1e-6, aggregate="token_mean")

    method = build(Config(overlong="keep", clip_high=0.2, epsilon=2e-6), RUN)
    check_against_literal(method, free_groups(1), expected, seed=1, drift="some")


def test_the_penalty_is_zero_up_to_the_buffer_and_one_at_the_limit():
    # The paper's numbers: L_max 20480, L_c 4096.
    reward = shaped(20480, 4096.0)
    expected = {16384: 0.0, 17408: -0.25, 18432: -0.5, 20480: -1.0, 30000: -1.0}
    for length, penalty in expected.items():
        for right in (0.0, 1.0):
            trace = a_trace("a", reward=right, policy=length)
            assert reward(trace, Signals()) == pytest.approx(2 * right - 1 + penalty, rel=1e-12)
    assert shaped(20480, None)(a_trace("a", policy=20480), Signals()) == 1.0


def test_a_group_worked_by_hand():
    # Limit 12, L_c 2.4: penalties 0, (12 - 9.6) / 2.4 = 1 and 0. Shaped 1, 0, -1: mean 0, deviation 1.
    group = a_group(
        a_trace("a", reward=1.0, policy=9),
        a_trace("b", member=1, reward=1.0, policy=12),
        a_trace("c", member=2, reward=0.0, policy=3),
    )
    found = [c.advantage for c in build(Config(epsilon=1e-12), RUN).credit([group], Signals())]
    assert found == pytest.approx([1.0, 0.0, -1.0], abs=1e-9)


def test_a_filtered_trace_keeps_its_place_in_the_order_and_has_no_credit():
    cut = dataclasses.replace(a_trace("b", member=1, reward=0.0, policy=2), finish=Finish.LENGTH)
    group = a_group(a_trace("a", reward=1.0, policy=1), cut)
    first, second = build(Config(overlong="filter", epsilon=1e-12), RUN).credit([group], Signals())
    # 1 and -1 around 0, deviation sqrt(2).
    assert first.advantage == pytest.approx(0.5**0.5, rel=1e-9)
    assert (second.trace_id, second.weights) == ("b", ())
