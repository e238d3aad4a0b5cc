"""Ratios: value and gradient by hand, with garbage outside the members."""

from __future__ import annotations

import math

import pytest
from tests.objectives.tables import INF, NAN, a_batch, log, said, slope

from bimetal.objectives.ratio import (
    MAX_LOG_RATIO,
    over_old,
    over_one,
    over_sampler,
    over_self,
    required,
    sequence_over_old,
    sequence_over_old_by_token,
    sequence_product_over_old,
)

MEMBERS = {"k": [[1, 1, 0, 0], [1, 0, 0, 0]]}


def near(rows):
    return [pytest.approx(row, rel=1e-12) for row in rows]


def test_over_old_is_p_over_p_old_and_its_slope_is_itself():
    batch = a_batch(MEMBERS, old_logprobs=log([[0.5, 0.25, NAN, INF], [0.1, -INF, NAN, NAN]]))
    policy = said(log([[0.25, 0.5, INF, NAN], [0.1, NAN, -INF, INF]]))
    ratio = over_old(batch, policy, batch.members["k"])
    # 0.25 / 0.5, 0.5 / 0.25, and 1 by convention where nobody looks
    assert ratio.tolist() == near([[0.5, 2.0, 1, 1], [1.0, 1, 1, 1]])
    # d (p / q) / d log p = p / q for members, exactly 0 elsewhere
    assert slope(ratio, policy.logprobs) == near([[0.5, 2.0, 0, 0], [1.0, 0, 0, 0]])


def test_over_old_stays_finite_and_stops_teaching_past_the_clamp():
    batch = a_batch({"k": [[1, 1]]}, old_logprobs=[[-1000.0, -1.0]])
    policy = said([[-1.0, -1000.0]])
    ratio = over_old(batch, policy, batch.members["k"])
    assert ratio.tolist() == near([[math.exp(MAX_LOG_RATIO), math.exp(-MAX_LOG_RATIO)]])
    assert slope(ratio, policy.logprobs) == [[0.0, 0.0]]


def test_over_sampler_divides_by_who_wrote_the_token():
    batch = a_batch({"k": [[1, 0]]}, sampler_logprobs=log([[0.2, NAN]]), old_logprobs=log([[0.9, 0.9]]))
    policy = said(log([[0.1, NAN]]))
    ratio = over_sampler(batch, policy, batch.members["k"])
    assert ratio.tolist() == near([[0.5, 1.0]])
    assert slope(ratio, policy.logprobs) == near([[0.5, 0.0]])


def test_over_one_is_the_probability():
    batch = a_batch({"k": [[1, 1, 0]]})
    policy = said(log([[0.3, 0.7, INF]]))
    ratio = over_one(batch, policy, batch.members["k"])
    assert ratio.tolist() == near([[0.3, 0.7, 1.0]])
    assert slope(ratio, policy.logprobs) == near([[0.3, 0.7, 0.0]])


def test_over_self_is_one_with_the_slope_of_the_log_probability():
    batch = a_batch({"k": [[1, 1, 0]]})
    policy = said(log([[0.3, 0.7, NAN]]))
    ratio = over_self(batch, policy, batch.members["k"])
    assert ratio.tolist() == [[1.0, 1.0, 1.0]]
    assert slope(ratio, policy.logprobs) == [[1.0, 1.0, 0.0]]


def test_sequence_ratio_is_the_geometric_mean_of_the_members():
    batch = a_batch({"k": [[1, 1, 0], [1, 0, 0]]}, old_logprobs=log([[0.5, 0.5, NAN], [0.2, NAN, NAN]]))
    policy = said(log([[0.25, 0.125, INF], [0.6, NAN, NAN]]))
    ratio = sequence_over_old(batch, policy, batch.members["k"])
    # sqrt(0.5 * 0.25) = 0.353553...; a sequence of one token has its token ratio, 3
    mean = math.sqrt(0.125)
    assert ratio.tolist() == near([[mean, mean, 1.0], [3.0, 1.0, 1.0]])
    # Each of 2 members appears in 2 ratios, with slope mean / 2 in each: mean in all.
    assert slope(ratio, policy.logprobs) == near([[mean, mean, 0.0], [3.0, 0.0, 0.0]])


def test_sequence_ratio_of_a_row_without_members_is_finite():
    batch = a_batch({"k": [[0, 0]]}, old_logprobs=[[NAN, INF]])
    policy = said([[NAN, INF]])
    ratio = sequence_over_old(batch, policy, batch.members["k"])
    assert ratio.tolist() == [[1.0, 1.0]]
    assert slope(ratio, policy.logprobs) == [[0.0, 0.0]]


def test_sequence_ratio_by_token_has_the_same_value_and_the_tokens_own_slope():
    batch = a_batch({"k": [[1, 1, 0], [1, 0, 0]]}, old_logprobs=log([[0.5, 0.5, NAN], [0.2, NAN, NAN]]))
    policy = said(log([[0.25, 0.125, INF], [0.6, NAN, NAN]]))
    ratio = sequence_over_old_by_token(batch, policy, batch.members["k"])
    mean = math.sqrt(0.125)
    assert ratio.tolist() == near([[mean, mean, 1.0], [3.0, 1.0, 1.0]])
    # sg[s] p / sg[p]: each member's slope on its own log p is s, and on nobody else's.
    assert slope(ratio[:, :1], policy.logprobs) == near([[mean, 0.0, 0.0], [3.0, 0.0, 0.0]])


def test_sequence_product_is_the_ratio_of_the_whole_response():
    batch = a_batch({"k": [[1, 1, 0], [1, 0, 0]]}, old_logprobs=log([[0.5, 0.5, NAN], [0.2, NAN, NAN]]))
    policy = said(log([[0.25, 0.125, INF], [0.6, NAN, NAN]]))
    ratio = sequence_product_over_old(batch, policy, batch.members["k"])
    # 0.5 * 0.25 = 0.125; a sequence of one token has its token ratio, 3
    assert ratio.tolist() == near([[0.125, 0.125, 1.0], [3.0, 1.0, 1.0]])
    # The product's slope on each log p is the product: from one position 0.125, from both 0.25.
    assert slope(ratio[:, :1], policy.logprobs) == near([[0.125, 0.125, 0.0], [3.0, 0.0, 0.0]])


def test_sequence_product_is_clamped_as_a_whole():
    batch = a_batch({"k": [[1, 1, 1]]}, old_logprobs=[[-9.0, -9.0, -9.0]])
    policy = said([[-1.0, -1.0, -1.0]])
    ratio = sequence_product_over_old(batch, policy, batch.members["k"])
    # 3 * 8 = 24 nats, held at 20
    assert ratio.tolist() == near([[math.exp(MAX_LOG_RATIO)] * 3])
    assert slope(ratio, policy.logprobs) == [[0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    "ratio",
    [
        over_old,
        over_sampler,
        sequence_over_old,
        sequence_over_old_by_token,
        sequence_product_over_old,
    ],
)
def test_a_missing_field_names_the_need(ratio):
    batch = a_batch({"k": [[1]]})
    with pytest.raises(ValueError, match="declare the need"):
        ratio(batch, said([[-1.0]]), batch.members["k"])


def test_required_gives_back_what_is_there():
    batch = a_batch({"k": [[1]]})
    assert required(batch.advantages, "advantages") is batch.advantages
