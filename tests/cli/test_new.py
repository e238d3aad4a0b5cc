"""`bimetal new`: what it writes runs as it is, in a checkout and anywhere else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bimetal.cli.main import main
from bimetal.cli.new import KINDS, written
from bimetal.core.catalogue import LocalCode, find

ROOT = Path(__file__).parents[2]


def pretend_checkout(folder: Path) -> Path:
    marker = folder / "src" / "bimetal" / "core" / "catalogue.py"
    marker.parent.mkdir(parents=True)
    marker.write_text('"""Marks a checkout."""\n', encoding="utf-8")
    return folder


@pytest.mark.slow
def test_the_generated_tests_pass_without_an_edit(tmp_path: Path) -> None:
    for kind in KINDS:
        written(kind, f"my_{kind}", folder=tmp_path)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
    ]
    ran = subprocess.run(
        [*command, "--jaxtyping-packages=bimetal,beartype.beartype", "--rootdir", ".", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout
    assert " passed" in ran.stdout


def test_the_generated_files_keep_the_house_style_in_a_checkout(tmp_path: Path) -> None:
    checkout = pretend_checkout(tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        (ROOT / "pyproject.toml").read_text(encoding="utf-8"), encoding="utf-8"
    )
    for kind in KINDS:
        written(kind, f"my_{kind}", folder=checkout)
    for action in (["check"], ["format", "--check"]):
        ran = subprocess.run(
            [sys.executable, "-m", "ruff", *action, "--no-cache", "src", "tests"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_generated_entry_is_found_as_a_local_file(kind: str, tmp_path: Path) -> None:
    written(kind, "mine", folder=tmp_path)
    entry = find(KINDS[kind], "./mine.py", base=tmp_path, code=LocalCode.ALLOWED)
    assert entry.module.Config()


def test_in_a_checkout_the_file_goes_where_its_place_registers_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout = pretend_checkout(tmp_path)
    assert main(["new", "method", "mine", "--folder", str(checkout), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["file"] == str(checkout / "src" / "bimetal" / "methods" / "mine.py")
    test = checkout / "tests" / "methods" / "test_mine.py"
    assert told["test"] == str(test)
    assert "from bimetal.methods.mine import Config, build" in test.read_text(encoding="utf-8")


def test_elsewhere_the_answer_says_how_to_use_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "domain", "mine", "--folder", str(tmp_path)]) == 0
    assert 'name = "./mine.py", and allow it with --allow-code' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("metod", "mine", "unknown kind of entry 'metod'; did you mean 'method'?"),
        ("method", "Mine", "method 'Mine': must be lower-case letters"),
        ("method", "../mine", "method '../mine': must be lower-case letters"),
        ("method", "class", "method 'class': must be lower-case letters"),
        ("method", "grpo", "method 'grpo': exists already; choose another name"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused(
    kind: str, name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", kind, name, "--folder", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_mine.py").write_text("precious", encoding="utf-8")
    assert main(["new", "method", "mine", "--folder", str(tmp_path)]) == 2
    assert "exists; choose another name" in capsys.readouterr().err
    assert not (tmp_path / "mine.py").exists()
    assert (tmp_path / "test_mine.py").read_text(encoding="utf-8") == "precious"
