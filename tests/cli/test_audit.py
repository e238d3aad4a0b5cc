"""`bimetal audit` as a user runs it."""

from __future__ import annotations

import json

import pytest

from bimetal.cli.main import main


@pytest.mark.slow
def test_an_injected_fault_ends_with_1_and_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "--method", "sft", "--inject", "mean-of-means", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["fault"]) == (False, "mean-of-means")
    (failed,) = [one for one in found["findings"] if not one["ok"]]
    assert (failed["subject"], failed["check"]) == ("sft", "accumulation (C1)")
    assert "'mean-of-means'" in failed["detail"]


@pytest.mark.slow
def test_without_a_fault_it_ends_with_0_and_says_how_many_checks_passed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["audit", "--method", "sft", "--skip-resume"]) == 0
    out = capsys.readouterr().out
    assert "14 of 14 checks passed" in out
    assert "FAIL" not in out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--inject", "list"], 0, "drop-microbatches"),
        (["--inject", "drop-microbatch"], 2, "did you mean 'drop-microbatches'"),
        (["--method", "grpoo"], 2, "did you mean 'grpo'"),
        (["no-such.toml", "--method", "sft"], 2, "no-such.toml"),
    ],
)
def test_names_are_listed_and_mistakes_explained(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", *arguments]) == code
    found = capsys.readouterr()
    assert message in found.out + found.err
