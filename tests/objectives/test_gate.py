"""Gates: surrogate, slope and the closed mark, on both sides of every border."""

from __future__ import annotations

import pytest
import torch
from tests.objectives.tables import numbers, slope

from bimetal.objectives.gate import clip, dual_clip, no_gate, reshape

# ratio:       inside   above   below   above   below  far above
RATIOS = [[1.0, 1.5, 0.5, 1.5, 0.5, 5.0]]
SIGNS = [[2.0, 2.0, 2.0, -2.0, -2.0, -2.0]]


def asked(gate, ratios=RATIOS, signs=SIGNS):
    ratio, advantages = numbers(ratios).requires_grad_(), numbers(signs)
    value = gate.surrogate(ratio, advantages)
    return value[0].tolist(), slope(value, ratio)[0], gate.closed(ratio, advantages)[0].tolist()


def test_no_gate_is_the_product():
    value, gradient, closed = asked(no_gate())
    assert value == [2.0, 3.0, 1.0, -3.0, -1.0, -10.0]
    assert gradient == SIGNS[0]
    assert closed == [False] * 6


def test_clip_takes_the_smaller_of_both_products():
    value, gradient, closed = asked(clip(0.2, 0.25))
    # A = 2: min(2, 2), min(3, 1.25 * 2), min(1, 0.8 * 2)
    # A = -2: min(-3, -2.5), min(-1, -1.6), min(-10, -2.5)
    assert value == pytest.approx([2.0, 2.5, 1.0, -3.0, -1.6, -10.0], rel=1e-15)
    assert gradient == [2.0, 0.0, 2.0, -2.0, 0.0, -2.0]
    assert closed == [False, True, False, False, True, False]


def test_dual_clip_also_holds_a_negative_advantage_far_above():
    value, gradient, closed = asked(dual_clip(0.2, 0.25, floor=3.0))
    # max(-10, 3 * -2) = -6, and no slope there; positive advantages as with clip
    assert value == pytest.approx([2.0, 2.5, 1.0, -3.0, -1.6, -6.0], rel=1e-15)
    assert gradient == [2.0, 0.0, 2.0, -2.0, 0.0, 0.0]
    assert closed == [False, True, False, False, True, True]


def test_dual_clip_never_changes_a_positive_advantage():
    ratios, signs = [[0.1, 1.0, 2.0, 50.0]], [[1.0, 1.0, 1.0, 1.0]]
    assert asked(dual_clip(0.2, 0.2, floor=1.5), ratios, signs) == asked(clip(0.2, 0.2), ratios, signs)


def test_a_closed_mark_means_no_slope_and_an_open_one_a_slope():
    ratios = [[0.5, 0.79, 0.81, 1.0, 1.19, 1.21, 1.49, 1.51, 9.0] * 2]
    signs = [[1.0] * 9 + [-1.0] * 9]
    for gate in (clip(0.2, 0.2), dual_clip(0.2, 0.2, floor=1.5), no_gate(), reshape(0.1)):
        _, gradient, closed = asked(gate, ratios, signs)
        assert [g == 0 for g in gradient] == closed


def test_a_ratio_of_one_teaches_with_the_whole_advantage():
    # Both products tie at ratio 1, and their slopes must not be halved.
    for gate in (clip(0.2, 0.2), dual_clip(0.2, 0.2, floor=3.0), clip(0.0, 0.0)):
        _, gradient, closed = asked(gate, [[1.0, 1.0]], [[0.7, -0.7]])
        assert gradient == pytest.approx([0.7, -0.7], rel=1e-15)
        assert closed == [False, False]


def test_an_advantage_of_zero_teaches_nothing_and_is_not_closed():
    for gate in (clip(0.2, 0.2), dual_clip(0.2, 0.2, floor=3.0), no_gate(), reshape(0.1)):
        value, gradient, closed = asked(gate, [[0.1, 1.0, 9.0]], [[0.0, 0.0, 0.0]])
        assert (value, gradient, closed) == ([0.0] * 3, [0.0] * 3, [False] * 3)


def test_reshape_peaks_on_the_log_probability_at_gamma():
    p = numbers([[0.05, 0.1, 0.5, 1.0]]).requires_grad_()
    value = reshape(0.1).surrogate(p, numbers([[1.0] * 4]))
    # p / (p + 0.1): 0.05 / 0.15, 1 / 2, 0.5 / 0.6, 1 / 1.1
    assert value[0].tolist() == pytest.approx([1 / 3, 0.5, 5 / 6, 1 / 1.1], rel=1e-12)
    # On log p: 0.1 p / (p + 0.1)^2 = 0.005 / 0.0225, 0.01 / 0.04, 0.05 / 0.36, 0.1 / 1.21
    on_log = [g * x for g, x in zip(slope(value, p)[0], p[0].tolist(), strict=True)]
    assert on_log == pytest.approx([2 / 9, 0.25, 5 / 36, 0.1 / 1.21], rel=1e-12)
    assert max(on_log) == on_log[1]


def test_reshape_with_a_huge_gamma_times_gamma_is_the_identity():
    p = numbers([[0.2, 0.9]])
    value = 1e9 * reshape(1e9).surrogate(p, torch.ones_like(p))
    assert value[0].tolist() == pytest.approx([0.2, 0.9], rel=1e-8)
