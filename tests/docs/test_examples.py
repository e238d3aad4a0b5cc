"""Examples in docstrings, in the documentation and in the README are run."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
from pytest_examples import EvalExample, find_examples

import bimetal

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    found.name
    for found in pkgutil.walk_packages(bimetal.__path__, "bimetal.")
    # Entries that open an optional library's door have tests that skip where it is missing.
    if found.name not in {"bimetal.backends.vllm", "bimetal.rollout.actors"}
)
PAGES = [path for path in (ROOT / "README.md", ROOT / "docs") if path.exists()]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_give_what_they_say(name: str) -> None:
    found = doctest.testmod(importlib.import_module(name))
    assert found.failed == 0


def test_the_python_blocks_of_the_documentation_run(eval_example: EvalExample) -> None:
    for example in find_examples(*PAGES):
        eval_example.run(example)


def test_the_commands_of_the_readme_are_targets_of_the_makefile() -> None:
    named = re.findall(r"^make ([a-z-]+)", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert named == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE)
    assert set(named) <= set(targets)
