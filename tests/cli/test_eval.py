"""`bimetal eval` on the embedded model, untrained: what it says, what it keeps, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bimetal.cli.main import main
from bimetal.evaluation.result import SuiteResult

SHORT = ["--max-tokens", "4", "--device", "cpu"]


@pytest.mark.slow
def test_a_model_is_measured_and_compared_on_the_same_problems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    sampled = ["--problems", "3", "--samples", "2", "--temperature", "1.0", "--seed", "4"]
    asked = ["eval", "lab/nano", "--domain", "lab_arithmetic", *SHORT, *sampled]
    assert main([*asked, "--output", str(first)]) == 0
    text = capsys.readouterr().out
    assert "pass@2" in text
    assert "do not cover the training seed" in text
    assert main([*asked, "--output", str(second), "--against", str(first), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # The same model, seed and problems: the same answers, so every difference is 0.
    assert SuiteResult.from_json(first.read_bytes()) == SuiteResult.from_json(second.read_bytes())
    assert found["difference"]["domains"]["lab_arithmetic"]["value"] == 0.0
    assert found["difference"]["unshared"] == 0
    assert found["summary"]["domains"]["lab_arithmetic"]["n"] == 3
    assert set(found["summary"]["domains"]["lab_arithmetic"]["pass_at"]) == {"1", "2"}
    assert found["files"] == [str(second)]


@pytest.mark.slow
def test_a_data_file_is_judged_by_the_named_domain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "mine.jsonl"
    data.write_text('{"prompt": "1+1=?", "reference": "2"}\n{"prompt": "2+2=?", "reference": "4"}\n')
    command = ["eval", "lab/nano", "--data", str(data), "--domain", "exact_answer", *SHORT, "--json"]
    assert main(command) == 0
    found = capsys.readouterr()
    assert json.loads(found.out)["summary"]["domains"]["exact_answer"]["n"] == 2
    assert "exact_answer has 2 problems, 200 were asked for" in found.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no domain is named"),
        (["--domain", "lab_arithmetik"], "did you mean 'lab_arithmetic'?"),
        (["--domain", "exact_answer"], "only judges and makes no problems"),
        (
            ["--domain", "lab_table", "--split", "train"],
            "unknown split 'train'; choose one of: selection, test",
        ),
        (["--domain", "lab_table", "--samples", "2"], "2 greedy answers to one problem are all the same"),
        (["--domain", "lab_table", "--against", "no.json"], "found no file no.json"),
        (["--data", "rows.jsonl"], "nothing would judge the answers"),
        (["--suite", "no.toml"], "no.toml: no such file"),
    ],
)
def test_a_mistake_ends_with_2_before_a_model_is_loaded(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "lab/there-is-no-such-model", *arguments]) == 2
    found = capsys.readouterr()
    assert (found.out, message in found.err) == ("", True), found.err


def test_a_run_without_a_finished_model_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "recipe.toml").write_text("[domain.lab_table]\n")
    assert main(["eval", str(tmp_path)]) == 2
    assert "the run has no finished model" in capsys.readouterr().err


def test_options_of_a_suite_file_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite = tmp_path / "suite.toml"
    suite.write_text("[domain.sums]\nname = 'lab_arithmetic'\nmost_digit = 2\n")
    assert main(["eval", "lab/nano", "--suite", str(suite)]) == 2
    assert "domain.sums.most_digit" in capsys.readouterr().err
