"""A run killed with SIGKILL at any instant and resumed ends as the one never killed (contract C4)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.real.killing import Phase, kill_at, planned, run_to_the_end, write_inputs
from tests.trainer.small import lines_without_times, weights_hash


def check_kills(tmp_path: Path, *, steps: int, kills: Mapping[Phase | None, int]) -> Counter[Phase]:
    """Two runs of one recipe, one of them killed again and again; what the kills hit."""
    noise = random.Random(0)
    recipe = write_inputs(tmp_path / "inputs", steps=steps)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run_to_the_end(recipe, whole)
    hit = Counter(kill_at(recipe, killed, wanted=wanted, noise=noise) for wanted in planned(kills, noise))
    run_to_the_end(recipe, killed)
    assert lines_without_times(killed) == lines_without_times(whole)
    assert weights_hash(killed) == weights_hash(whole)
    return hit


@pytest.mark.slow
def test_three_kills_change_nothing(tmp_path: Path) -> None:
    kills: dict[Phase | None, int] = {Phase.VERIFICATION: 1, Phase.UPDATE: 1, Phase.CHECKPOINT: 1}
    hit = check_kills(tmp_path, steps=11, kills=kills)
    assert hit.total() == 3


@pytest.mark.soak
def test_twenty_kills_in_every_phase_change_nothing(tmp_path: Path) -> None:
    kills: dict[Phase | None, int] = {None: 4, **dict.fromkeys(Phase, 4)}
    hit = check_kills(tmp_path, steps=46, kills=kills)
    assert hit.total() == 20
    assert set(hit) == set(Phase)
