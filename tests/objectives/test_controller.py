"""Controllers: schedules at their corners, and a controller with state."""

from __future__ import annotations

import pytest

from bimetal.objectives.controller import Complement, Linear, RiseAndDecay, value_of


def test_linear_goes_from_start_to_end():
    assert [Linear(1.0, 0.0)(p) for p in (0.0, 0.25, 1.0)] == [1.0, 0.75, 0.0]


def test_rise_and_decay_at_its_corners():
    schedule = RiseAndDecay(peak=0.8, valley=0.2, rise=0.25, decay=0.5)
    # rise: 0.8 * (0.125 / 0.25); middle of the decay: 0.2 + 0.3 (1 + cos(pi / 2)) = 0.5
    points = {0.0: 0.0, 0.125: 0.4, 0.25: 0.8, 0.5: 0.5, 0.75: 0.2, 1.0: 0.2}
    for progress, value in points.items():
        assert schedule(progress) == pytest.approx(value, abs=1e-15)


def test_without_rise_and_decay_it_is_the_valley():
    schedule = RiseAndDecay(peak=0.8, valley=0.2, rise=0.0, decay=0.0)
    assert [schedule(p) for p in (0.0, 0.5, 1.0)] == [0.2] * 3


def test_the_complement_adds_up_to_one():
    assert Complement(Linear(0.25, 0.75))(0.5) == 0.5
    assert Complement(Linear(0.25, 0.75))(0.0) == 0.75


class Counting:
    """A controller that counts what it observed."""

    def __init__(self) -> None:
        self.seen = 0.0

    def value(self, progress: float) -> float:
        return self.seen + progress

    def observe(self, metrics) -> None:
        self.seen += metrics["reward/mean"]

    def state_dict(self) -> dict[str, float]:
        return {"seen": self.seen}

    def load_state_dict(self, state) -> None:
        self.seen = state["seen"]


def test_value_of_a_number_a_schedule_and_a_controller():
    controller = Counting()
    controller.observe({"reward/mean": 2.0})
    assert value_of(0.3, 0.9) == 0.3
    assert value_of(Linear(0.0, 1.0), 0.9) == 0.9
    assert value_of(controller, 0.5) == 2.5
