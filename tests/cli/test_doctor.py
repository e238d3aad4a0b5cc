"""`bimetal doctor` on this machine, and in places where something is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bimetal.cli.doctor import EXTRAS, Health, disk, worker, write_access
from bimetal.cli.main import main


def test_this_machine_can_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is True
    checks = {check["name"]: check for check in report["checks"]}
    assert {"python", "torch", "device", "threads", "bfloat16", "memory", "disk", "write access"} <= set(
        checks
    )
    assert {f"bimetal[{extra}]" for extra in EXTRAS} <= set(checks)


def test_what_is_not_well_has_an_advice(capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert [check["name"] for check in checks if check["health"] != "ok" and not check["advice"]] == []


def test_the_table_shows_every_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    assert "verifier worker" in capsys.readouterr().out


def test_a_folder_that_is_not_there_cannot_be_written(tmp_path: Path) -> None:
    found = write_access(tmp_path / "nowhere")
    assert found.health is Health.FAIL
    assert "set `output`" in found.advice
    assert write_access(tmp_path).health is Health.OK


def test_free_space_is_told_in_gigabytes(tmp_path: Path) -> None:
    assert "GB free in" in disk(tmp_path).found


def test_a_worker_starts_and_answers() -> None:
    assert worker().health is Health.OK
