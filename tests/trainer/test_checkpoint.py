"""Tests of bimetal.trainer.checkpoint: whole or not at all, and nothing of a stranger's executes."""

from __future__ import annotations

import json
import logging
import os
import pickle
import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from bimetal.core.errors import CheckpointError
from bimetal.core.files import sha256_of
from bimetal.trainer.checkpoint import Checkpoints

WEIGHTS = {"policy": {"w": torch.arange(6.0).reshape(2, 3), "b": torch.tensor([1e-30, float("nan")])}}
STATE = {"position": {"step": 3}, "visits": {"\ud800\x00": 1}, "third": 1 / 3, "large": 2**80}


def saved(folder, *steps, keep=2):
    checkpoints = Checkpoints(folder, keep=keep)
    for step in steps:
        checkpoints.save(step, WEIGHTS, STATE | {"step": step})
    return checkpoints


def newest(folder):
    found = Checkpoints(folder).load_newest()
    assert found is not None
    return found


def test_what_is_loaded_is_what_was_saved_bit_for_bit(tmp_path):
    saved(tmp_path / "c", 3)
    step, tensors, state = newest(tmp_path / "c")
    assert step == 3
    assert state == STATE | {"step": 3}
    for name, value in WEIGHTS["policy"].items():
        assert torch.equal(tensors["policy"][name].view(torch.int32), value.view(torch.int32))


def test_a_folder_without_checkpoints_has_none(tmp_path):
    assert Checkpoints(tmp_path / "none").load_newest() is None
    assert Checkpoints(tmp_path).load_newest() is None


def test_the_newest_are_kept(tmp_path):
    assert saved(tmp_path, 1, 2, 10, keep=2).steps() == [2, 10]
    assert saved(tmp_path, 11, keep=1).steps() == [11]


def test_saving_a_step_again_replaces_it(tmp_path):
    checkpoints = saved(tmp_path, 1, 2)
    checkpoints.save(2, WEIGHTS, {"again": True})
    assert newest(tmp_path)[2] == {"again": True}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000001", "step-00000002"]


def test_a_kill_between_removing_and_replacing_loses_nothing(tmp_path):
    saved(tmp_path, 1, 2)
    (tmp_path / "step-00000002").rename(tmp_path / ".step-00000002.old")
    assert newest(tmp_path)[0] == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000001", "step-00000002"]


def test_an_unfinished_checkpoint_is_none(tmp_path):
    saved(tmp_path, 1)
    (tmp_path / "step-00000001").rename(tmp_path / ".step-00000002.part")
    assert Checkpoints(tmp_path).load_newest() is None
    saved(tmp_path, 2)
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000002"]


@pytest.mark.parametrize("name", ["policy.safetensors", "state.json", "files.json"])
@pytest.mark.parametrize("fault", ["flipped", "cut", "gone", "empty"])
def test_a_damaged_newest_falls_back_to_the_one_before_and_says_so(tmp_path, caplog, name, fault):
    saved(tmp_path, 1, 2)
    path = tmp_path / "step-00000002" / name
    data = path.read_bytes()
    if fault == "gone":
        path.unlink()
    else:
        middle = len(data) // 2
        flipped = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        path.write_bytes({"flipped": flipped, "cut": data[:-1], "empty": b""}[fault])
    if (name, fault) == ("files.json", "flipped"):
        # The list of checksums is not listed itself: whatever the bit does, nothing is mistaken for another.
        path.write_bytes(data.replace(b'"format": 1', b'"format": 0'))
    with caplog.at_level(logging.WARNING):
        assert newest(tmp_path)[0] == 1
    assert "checkpoint of step 2 is damaged and passed over" in caplog.text


def test_where_all_are_damaged_there_is_an_error_with_every_reason(tmp_path):
    saved(tmp_path, 1, 2)
    for step in (1, 2):
        (tmp_path / f"step-{step:08d}" / "state.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"no intact checkpoint: .*step-00000002.*; .*step-00000001"):
        Checkpoints(tmp_path).load_newest()


class Pickled:
    """Unpickling this makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def listed(step: Path, **changes: str) -> None:
    """Put files into the list with checksums that fit, as a stranger would."""
    document = json.loads((step / "files.json").read_text("ascii"))
    document["files"] |= changes
    (step / "files.json").write_text(json.dumps(document), "ascii")


def outside(step: Path, name: str) -> None:
    secret = step.parent.parent / "secret.json"
    secret.write_text('{"secret": 1}')
    listed(step, **{name: sha256_of(secret)})


def absolute(step: Path) -> None:
    outside(step, str(step.parent.parent / "secret.json"))


def parent(step: Path) -> None:
    outside(step, "../../secret.json")


def hidden_parent(step: Path) -> None:
    outside(step, "a..json")


def pickle_name(step: Path) -> None:
    (step / "optimizer.pt").write_bytes(pickle.dumps(Pickled(step.parent.parent / "ran")))
    listed(step, **{"optimizer.pt": sha256_of(step / "optimizer.pt")})


def pickle_content(step: Path) -> None:
    path = step / "policy.safetensors"
    path.write_bytes(pickle.dumps(Pickled(step.parent.parent / "ran")))
    listed(step, **{path.name: sha256_of(path)})


def torch_pickle(step: Path) -> None:
    path = step / "policy.safetensors"
    torch.save(WEIGHTS, path)
    listed(step, **{path.name: sha256_of(path)})


def linked_file(step: Path) -> None:
    elsewhere = step.parent.parent / "elsewhere.safetensors"
    (step / "policy.safetensors").rename(elsewhere)
    (step / "policy.safetensors").symlink_to(elsewhere)


def linked_folder(step: Path) -> None:
    step.rename(step.parent.parent / "elsewhere")
    step.symlink_to(step.parent.parent / "elsewhere")


def extra_file(step: Path) -> None:
    (step / "more.json").write_text("{}")


def extra_folder(step: Path) -> None:
    (step / "more").mkdir()


def pipe(step: Path) -> None:
    (step / "state.json").unlink()
    os.mkfifo(step / "state.json")


def state_text(step: Path, text: str) -> None:
    (step / "state.json").write_text(text, "ascii")
    listed(step, **{"state.json": sha256_of(step / "state.json")})


def deep_state(step: Path) -> None:
    state_text(step, "[" * 300_000 + "]" * 300_000)


def huge_number(step: Path) -> None:
    state_text(step, "9" * 100_000)


def other_state(step: Path) -> None:
    state_text(step, "[1]")


def deep_list(step: Path) -> None:
    (step / "files.json").write_text("[" * 300_000, "ascii")


def list_without_state(step: Path) -> None:
    (step / "files.json").write_text('{"format": 1, "files": {}}', "ascii")


def list_of_no_files(step: Path) -> None:
    (step / "files.json").write_text('{"format": 1, "files": [["state.json"]]}', "ascii")


def header_too_long(step: Path) -> None:
    path = step / "policy.safetensors"
    path.write_bytes((2**63 - 1).to_bytes(8, "little") + b"{}")
    listed(step, **{path.name: sha256_of(path)})


CRAFTED = (
    absolute, parent, hidden_parent, pickle_name, pickle_content, torch_pickle, linked_file, linked_folder,
    extra_file, extra_folder, pipe, deep_state, huge_number, other_state, deep_list, list_without_state,
    list_of_no_files, header_too_long,
)  # fmt: skip


@pytest.mark.parametrize("craft", CRAFTED, ids=lambda craft: craft.__name__)
def test_a_crafted_checkpoint_is_refused_and_runs_nothing(tmp_path, craft):
    saved(tmp_path / "c", 1)
    craft(tmp_path / "c" / "step-00000001")
    with pytest.raises(CheckpointError, match="no intact checkpoint"):
        Checkpoints(tmp_path / "c").load_newest()
    assert not (tmp_path / "ran").exists()


def test_a_stranger_may_give_weights_that_fit_their_checksum(tmp_path):
    """The refusals above are of what is wrong, not of everything that was changed."""
    saved(tmp_path, 1)
    path = tmp_path / "step-00000001" / "policy.safetensors"
    save_file({"w": torch.zeros(1)}, path)
    listed(path.parent, **{path.name: sha256_of(path)})
    assert torch.equal(newest(tmp_path)[1]["policy"]["w"], torch.zeros(1))


def test_numbers_json_cannot_hold_are_refused_and_leave_nothing_behind(tmp_path):
    checkpoints = saved(tmp_path, 1)
    with pytest.raises(ValueError, match="not JSON compliant"):
        checkpoints.save(2, WEIGHTS, {"x": float("nan")})
    assert [p.name for p in tmp_path.iterdir()] == ["step-00000001"]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte; skipped where this user may not mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(
            "a full disk needs the right to mount one; tests/cli/test_errors.py limits file sizes instead"
        )
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("filler", ["weights", "state"])
def test_on_a_full_disk_the_earlier_checkpoint_is_intact_and_space_is_given_back(small_disk, filler):
    checkpoints = saved(small_disk / "c", 1)
    weights = {"policy": {"w": torch.zeros(500_000 if filler == "weights" else 1)}}  # 2 MB
    state = {"text": "x" * (2_000_000 if filler == "state" else 1)}
    with pytest.raises(CheckpointError, match=r"cannot write .*intact; free space"):
        checkpoints.save(2, weights, state)
    assert [p.name for p in (small_disk / "c").iterdir()] == ["step-00000001"]
    assert newest(small_disk / "c")[0] == 1
    checkpoints.save(2, WEIGHTS, STATE)
    assert newest(small_disk / "c")[0] == 2
