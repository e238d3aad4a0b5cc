"""Stopped and resumed equals never stopped, bit for bit (design contract C4), for every kind of state."""

from __future__ import annotations

import fcntl
import json
import shutil
from pathlib import Path

import pytest
from tests.trainer.small import (
    METHODS,
    Interrupt,
    Noted,
    lines_without_times,
    recipe,
    save_tiny_model,
    weights_hash,
)

from bimetal.core.errors import CheckpointError, ConfigError
from bimetal.studies.runs import resume, start


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


def undisturbed(name: str, folder: Path, model: Path, **changes: object) -> Path:
    assert start(recipe(folder, model=model, stage=METHODS[name], **changes)).finished
    return folder


def interrupted(name: str, folder: Path, model: Path, *, at: int) -> Path:
    outcome = start(recipe(folder, model=model, stage=METHODS[name]), sinks=lambda _: [Interrupt(at=at)])
    assert not outcome.finished
    assert outcome.step >= at
    return folder


def check_equal(one: Path, other: Path) -> None:
    assert lines_without_times(one) == lines_without_times(other)
    assert weights_hash(one) == weights_hash(other)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A run of plain SFT that nothing disturbed; to be copied, not changed."""
    return undisturbed("sft", tmp_path_factory.mktemp("whole") / "run", model)


@pytest.fixture
def finished(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "finished"))


@pytest.fixture
def stopped(tmp_path: Path, model: Path) -> Path:
    """The same run, stopped at step 4, one step after a checkpoint."""
    return interrupted("sft", tmp_path / "stopped", model, at=4)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "at"), [
    ("sft", 4), ("grpo", 3), ("grpo_beta", 5), ("ppo", 3), ("chord", 5), ("luffy", 4), ("two_stages", 6),
])  # fmt: skip
def test_a_run_stopped_with_ctrl_c_and_resumed_equals_one_never_stopped(
    name: str, at: int, tmp_path: Path, model: Path
) -> None:
    whole = undisturbed(name, tmp_path / "whole", model)
    parts = interrupted(name, tmp_path / "parts", model, at=at)
    assert not (parts / "model").exists()
    assert resume(parts).finished
    check_equal(parts, whole)


@pytest.mark.slow
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before_and_ends_the_same(
    stopped: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newest = stopped / "checkpoints" / "step-00000004"
    weights = newest / "policy.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    notes = Noted()
    assert resume(stopped, sinks=lambda _: [notes]).finished
    assert "checkpoint of step 4 is damaged and passed over" in caplog.text
    assert "continues at step 3" in notes.notes
    check_equal(stopped, whole)


@pytest.mark.slow
def test_resuming_a_finished_run_changes_nothing(finished: Path, whole: Path) -> None:
    before = (finished / "metrics.jsonl").read_bytes()
    outcome = resume(finished)
    assert (outcome.finished, outcome.step, outcome.progress) == (True, 8, 1.0)
    assert (finished / "metrics.jsonl").read_bytes() == before
    check_equal(finished, whole)


@pytest.mark.slow
def test_a_larger_budget_goes_on_with_the_same_weights_and_is_kept(
    finished: Path, tmp_path: Path, model: Path
) -> None:
    """With constant rates only the progress knows of the limit, so the weights are those of a longer run."""
    longer = undisturbed(
        "sft", tmp_path / "longer", model, budget={"currency": "optimizer_steps", "amount": 11}
    )
    outcome = resume(finished, budget=11, sinks=lambda _: [Interrupt(at=9)])
    assert (outcome.finished, outcome.step) == (False, 9)
    # The second call does not repeat the budget.
    outcome = resume(finished)
    assert (outcome.finished, outcome.step) == (True, 11)
    assert weights_hash(finished) == weights_hash(longer)


def test_a_budget_that_is_smaller_is_refused(finished: Path) -> None:
    with pytest.raises(ConfigError, match=r"budget 7 optimizer_steps: is smaller than the run's 8"):
        resume(finished, budget=7)


def changed_recipe(folder: Path, before: str, after: str) -> None:
    path = folder / "recipe.toml"
    text = path.read_text("utf-8")
    assert text.count(before) == 1
    path.write_text(text.replace(before, after), "utf-8")


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("threads = 1", "threads = 2", "threads was 1, is 2"),
        ("train = 24", "train = 23", "data fingerprint was"),
        (
            "prompts_per_batch = 6", "prompts_per_batch = 5",
            r"recipe \(output, budget and kept checkpoints aside\)",
        ),
    ],
)  # fmt: skip
def test_another_machine_data_or_recipe_is_refused_and_says_how_to_go_on(
    before: str, after: str, message: str, finished: Path
) -> None:
    changed_recipe(finished, before, after)
    with pytest.raises(CheckpointError, match=rf"would not continue exactly: .*{message}.*Pass --inexact"):
        resume(finished)


@pytest.mark.slow
def test_inexact_goes_on_with_the_changed_recipe(stopped: Path) -> None:
    changed_recipe(stopped, "prompts_per_batch = 6", "prompts_per_batch = 5")
    assert resume(stopped, inexact=True).finished
    demonstrated = [json.loads(line)["metrics"].get("group/count") for line in lines_without_times(stopped)]
    assert [n for n in demonstrated if n is not None] == [6.0] * 4 + [5.0] * 4


@pytest.mark.slow
def test_inexact_does_not_reuse_what_the_journal_holds_of_the_old_run(stopped: Path, tmp_path: Path) -> None:
    """A batch that was begun after the last checkpoint is begun anew, not taken for another prompt's."""
    shutil.rmtree(stopped / "checkpoints" / "step-00000004")
    changed_recipe(stopped, "seed = 3", "seed = 4")
    with pytest.raises(CheckpointError, match="would not continue exactly"):
        resume(stopped)
    assert resume(stopped, inexact=True).finished


@pytest.mark.slow
def test_a_run_killed_before_its_first_checkpoint_begins_again_from_its_journal(
    stopped: Path, whole: Path
) -> None:
    shutil.rmtree(stopped / "checkpoints")
    notes = Noted()
    # Batches before the older checkpoint are no longer in the journal; they are made again, equal.
    assert resume(stopped, sinks=lambda _: [notes]).finished
    assert "no checkpoint yet; begins again" in notes.notes
    check_equal(stopped, whole)


def test_two_processes_cannot_train_in_one_folder(finished: Path) -> None:
    with (finished / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(ConfigError, match="another process is training in"):
            resume(finished)
    assert resume(finished).finished


def test_ctrl_c_is_told_apart_from_a_wall_time_cap(tmp_path: Path, model: Path) -> None:
    outcome = start(recipe(tmp_path, model=model, stage=METHODS["sft"]), sinks=lambda _: [Interrupt(at=4)])
    assert (outcome.finished, outcome.interrupted) == (False, True)
    capped = {"currency": "optimizer_steps", "amount": 8, "wall_seconds": 1e-9}
    outcome = start(recipe(tmp_path / "b", model=model, stage=METHODS["sft"], budget=capped))
    assert (outcome.finished, outcome.interrupted) == (False, False)


def test_a_stage_that_is_left_nothing_is_said_to_be_left_out(tmp_path: Path, model: Path) -> None:
    view = Noted()
    stages = [
        {"method": {"name": "sft"}, "prompts_per_batch": 6, "updates_per_rollout": 4, "share": 0.5},
        {"method": {"name": "grpo"}, "prompts_per_batch": 3, "group_size": 2, "share": 0.5},
    ]
    few = {"currency": "optimizer_steps", "amount": 4}
    assert start(recipe(tmp_path, model=model, stage=stages, budget=few), sinks=lambda _: [view]).finished
    assert any("stage grpo is left out" in note for note in view.notes)
