"""`bimetal generate` on the embedded model, untrained, and where its prompts come from."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from bimetal.cli.generate import as_prompts, typed
from bimetal.cli.main import main
from bimetal.core.errors import DataError

SHORT = ["--max-tokens", "4", "--device", "cpu"]


@pytest.mark.slow
def test_a_domains_problems_are_answered_with_verdicts(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["generate", "lab/nano", "--domain", "lab_arithmetic", "--problems", "2", *SHORT]
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) == 2
    # Four tokens of an untrained model hold no line "Answer: X".
    assert [row["answers"][0]["status"] for row in found] == ["unparseable", "unparseable"]
    assert main(command) == 0
    text = capsys.readouterr().out
    assert found[0]["messages"][0]["content"] in text
    assert f"[unparseable; reference: {found[0]['reference']}]" in text


@pytest.mark.slow
def test_lines_of_a_file_are_answered_without_verdicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "prompts.txt"
    lines.write_text("1+1=?\n\n2+2=?\n")
    asked = ["generate", "lab/nano", "--prompts", str(lines), "--samples", "2", "--temperature", "1", *SHORT]
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["messages"][0]["content"] for row in found] == ["1+1=?", "2+2=?"]
    assert all(len(row["answers"]) == 2 and "status" not in row["answers"][0] for row in found)


def test_blank_lines_are_no_prompts_and_equal_lines_are_two() -> None:
    assert [(p.id, p.messages[0].content) for p in as_prompts(["a\n", " \n", "a\r\n"])] == [
        ("line/1", "a"),
        ("line/3", "a"),
    ]


def test_standard_input_without_a_prompt_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n \n"))
    with pytest.raises(DataError, match="there are no prompts"):
        list(typed("-"))


def test_a_file_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe\x00")
    for name in ("a.txt", "absent.txt"):
        with pytest.raises(DataError, match="cannot be read"):
            list(typed(str(tmp_path / name)))


def test_lines_of_text_cannot_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("1+1=?\n")
    command = ["generate", "lab/nano", "--prompts", str(tmp_path / "a.txt"), "--domain", "lab_table"]
    assert main(command) == 2
    assert "no reference answers to judge by" in capsys.readouterr().err


def test_rows_without_a_reference_cannot_be_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.jsonl").write_text('{"prompt": "1+1=?"}\n')
    command = ["generate", "lab/nano", "--prompts", str(tmp_path / "a.jsonl"), "--domain", "exact_answer"]
    assert main(command) == 2
    assert "has no reference, which domain 'exact_answer' needs" in capsys.readouterr().err
