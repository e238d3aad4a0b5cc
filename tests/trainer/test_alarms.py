"""Tests of bimetal.trainer.alarms: what rings, what does not, and that it survives a resume."""

from __future__ import annotations

import json

import pytest

from bimetal.trainer.alarms import Alarms


def rung(*steps, alarms=None):
    """The names of the alarms of the last of these steps."""
    alarms = alarms or Alarms()
    found = {}
    for metrics in steps:
        found = alarms.check(metrics)
    return set(found)


@pytest.mark.parametrize(("entropy", "rings"), [(0.19, True), (0.21, False), (5.0, False)])
def test_entropy_that_stays_below_a_tenth_of_its_highest_mean_is_a_collapse(entropy, rings):
    # The mean begins at 2.0 and is 0.19 + 1.81 * 0.9^80 = 0.1904 after 80 steps at 0.19.
    steps = ({"policy/entropy": entropy} for _ in range(80))
    assert ("entropy_collapse" in rung({"policy/entropy": 2.0}, *steps)) == rings


def test_one_step_of_low_entropy_is_noise():
    assert rung({"policy/entropy": 2.0}, {"policy/entropy": 0.0}) == set()


def test_low_entropy_of_a_solved_task_is_success():
    solved = ({"policy/entropy": 0.01, "reward/mean": 1.0} for _ in range(80))
    assert rung({"policy/entropy": 2.0, "reward/mean": 1.0}, *solved) == set()


@pytest.mark.parametrize(("share", "rings"), [(0.5, False), (0.51, True), (None, False)])
def test_more_than_half_of_the_rollouts_cut_is_an_alarm(share, rings):
    assert ("truncation" in rung({"rollout/truncated_share": share})) == rings


@pytest.mark.parametrize(("share", "rings"), [(0.02, False), (0.03, True)])
def test_unknown_verdicts_are_an_alarm(share, rings):
    assert ("unknown_share" in rung({"errors/share": share})) == rings


def drifting(trained, held_out):
    """An evaluation at reward 0.5 and 0.5, many steps at another reward, another evaluation."""
    alarms = Alarms()
    alarms.check({"reward/mean": 0.5})
    alarms.check({"reward/held_out_mean": 0.5})
    for _ in range(50):
        alarms.check({"reward/mean": trained})
    return rung({"reward/held_out_mean": held_out}, alarms=alarms)


@pytest.mark.parametrize(("trained", "held_out", "rings"), [
    (0.9, 0.4, True), (0.9, 0.5, False), (0.9, 0.6, False), (0.5, 0.4, False), (0.3, 0.4, False),
])  # fmt: skip
def test_training_reward_up_while_held_out_reward_falls_is_an_alarm(trained, held_out, rings):
    assert ("reward_drift" in drifting(trained, held_out)) == rings


def test_the_first_evaluation_has_nothing_to_compare_with():
    assert rung({"reward/held_out_mean": 0.1}) == set()
    assert rung({}) == set()


def test_restored_alarms_ring_as_if_nothing_had_happened():
    steps = [
        {"policy/entropy": 2.0, "reward/mean": 0.5}, {"reward/held_out_mean": 0.5},
        *({"reward/mean": 0.9, "policy/entropy": 1.0} for _ in range(30)),
        {"reward/held_out_mean": 0.3},
        *({"policy/entropy": 0.01, "rollout/truncated_share": 0.9} for _ in range(60)),
    ]  # fmt: skip
    whole = Alarms()
    expected = [whole.check(metrics) for metrics in steps]
    assert {"reward_drift"} == set(expected[-61])
    assert {"entropy_collapse", "truncation"} == set(expected[-1])
    for cut in range(len(steps)):
        first, second = Alarms(), Alarms()
        found = [first.check(metrics) for metrics in steps[:cut]]
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert found + [second.check(metrics) for metrics in steps[cut:]] == expected
