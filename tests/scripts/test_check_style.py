"""The style checks find what they are for."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_style.py"


@pytest.fixture
def checks(tmp_path: Path) -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("check_style", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ROOT = tmp_path
    yield module


def findings(checks: ModuleType, folder: Path, name: str, text: str) -> list[str]:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return list(checks.check(path))


def test_a_long_file_needs_a_reason(checks: ModuleType, tmp_path: Path) -> None:
    assert "301 lines" in findings(checks, tmp_path, "src/a.py", "x = 1\n" * 301)[0]
    assert findings(checks, tmp_path, "src/a.py", "x = 1\n" * 300) == []
    assert findings(checks, tmp_path, "src/a.py", "# long: one table\n" + "x = 1\n" * 301) == []


@pytest.mark.parametrize("number", ["0.01", "1e-2", "1e6", "0.5"])
def test_a_loose_tolerance_is_found_in_every_spelling(
    checks: ModuleType, tmp_path: Path, number: str
) -> None:
    for name in ("rtol", "rel", "rel_tol"):
        line = "assert close(a, b, " + name + "=" + number + ")\n"
        assert findings(checks, tmp_path, "tests/test_a.py", line) != []
        assert findings(checks, tmp_path, "src/a.py", line) == []


def test_a_tight_tolerance_is_allowed(checks: ModuleType, tmp_path: Path) -> None:
    line = "assert close(a, b, " + "rtol=9.9e-3)\n"
    assert findings(checks, tmp_path, "tests/test_a.py", line) == []


def test_code_is_ascii_and_prose_need_not_be(checks: ModuleType, tmp_path: Path) -> None:
    assert "not ASCII" in findings(checks, tmp_path, "src/a.py", 'x = "\u00e9"\n')[0]
    assert findings(checks, tmp_path, "docs/a.md", "caf\u00e9\n") == []


def test_a_path_of_one_machine_is_found_anywhere(checks: ModuleType, tmp_path: Path) -> None:
    place = "/" + "home/someone/data"
    for name in ("src/a.py", "docs/a.md", "recipes/a.toml"):
        assert "a path of one machine" in findings(checks, tmp_path, name, f"see {place}\n")[0]
