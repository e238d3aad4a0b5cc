"""Stopped and resumed equals never stopped, bit for bit (design contract C4), for every kind of state."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tests.trainer.small import METHODS, Interrupt, Noted, lines_without_times, recipe, weights_hash

from bimetal.core.errors import CheckpointError, ConfigError
from bimetal.studies.runs import resume, start


def undisturbed(name: str, folder: Path, **changes: object) -> Path:
    outcome = start(recipe(folder, stage=METHODS[name], **changes))
    assert outcome.finished
    return folder


def interrupted(name: str, folder: Path, *, at: int, **changes: object) -> Path:
    outcome = start(recipe(folder, stage=METHODS[name], **changes), sinks=lambda _: [Interrupt(at=at)])
    assert not outcome.finished
    assert outcome.step >= at
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of plain SFT that nothing disturbed; to be copied, not changed."""
    return undisturbed("sft", tmp_path_factory.mktemp("finished") / "run")


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The same run, stopped at step 4, one step after a checkpoint."""
    return interrupted("sft", tmp_path / "stopped", at=4)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "at"), [
    ("sft", 4), ("grpo", 3), ("grpo_beta", 5), ("ppo", 3), ("chord", 5), ("luffy", 4), ("two_stages", 6),
])  # fmt: skip
def test_a_run_stopped_with_ctrl_c_and_resumed_equals_one_never_stopped(
    name: str, at: int, tmp_path: Path
) -> None:
    whole = undisturbed(name, tmp_path / "whole")
    parts = interrupted(name, tmp_path / "parts", at=at)
    assert not (parts / "model").exists()
    assert resume(parts).finished
    assert lines_without_times(parts) == lines_without_times(whole)
    assert weights_hash(parts) == weights_hash(whole)
    assert sorted(p.name for p in (parts / "traces").iterdir())[-1] == sorted(
        p.name for p in (whole / "traces").iterdir()
    )[-1]
