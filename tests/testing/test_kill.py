"""Runs that are killed and resumed are those that were left alone, for every kind of state."""

from __future__ import annotations

from pathlib import Path

import pytest

from bimetal.testing.kill import STAGES, audit_resume


@pytest.mark.soak
def test_every_kind_of_state_comes_back(tmp_path: Path) -> None:
    findings = list(audit_resume(tmp_path / "runs"))
    assert [one.check for one in findings] == list(STAGES)
    assert [one.detail for one in findings] == [""] * len(STAGES)


@pytest.mark.soak
def test_a_run_that_cannot_start_is_a_finding_with_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STAGES, "critic", '[[stage]]\nmethod = {name = "poo"}\n')
    (finding,) = (one for one in audit_resume(tmp_path / "runs") if one.check == "critic")
    assert "ended with code 2" in finding.detail
    assert "unknown method 'poo'" in finding.detail
