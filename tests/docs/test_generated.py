"""The committed reference pages are what the code says, and the documentation's examples work."""

from __future__ import annotations

import importlib.util
import inspect
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from bimetal.config.load import overridden, resolve
from bimetal.core import errors
from bimetal.core.errors import ConfigError

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "docs" / "guide" / "recipes.md"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "scripts" / "generate_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_committed_pages_are_those_the_code_gives(generator: ModuleType) -> None:
    differing = [
        name
        for name, text in generator.pages().items()
        if (ROOT / "docs" / name).read_text(encoding="utf-8") != generator.NOTE + text
    ]
    assert differing == [], f"run `{generator.COMMAND}`"


def test_the_tree_drawn_above_the_errors_is_the_tree_of_the_classes(generator: ModuleType) -> None:
    drawn = re.findall(r"^ *(\w+)(?: \((\w+)\))?", generator._tree(), re.MULTILINE)
    classes = list(generator.error_classes())
    assert [name for name, _ in drawn] == [kind.__name__ for kind in classes]
    for name, builtin in drawn:
        if builtin:
            assert builtin in {base.__name__ for base in getattr(errors, name).__mro__}


def test_every_error_page_heading_has_its_sentence(generator: ModuleType) -> None:
    page = generator.pages()["reference/errors.md"]
    for kind in generator.error_classes():
        assert f"## {kind.__name__}\n\n{inspect.getdoc(kind)}" in page


def example(kind: str) -> str:
    found = re.search(rf"```{kind}\n(.*?)```", RECIPES.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_guides_recipe_is_a_recipe() -> None:
    recipe = resolve(tomllib.loads(example("toml")))
    assert [stage.name for stage in recipe.stage] == ["sft", "grpo"]


def test_the_guides_error_message_is_the_real_one() -> None:
    table = overridden(tomllib.loads(example("toml")), ["sead=1", "stage.1.group_size=0"])
    with pytest.raises(ConfigError) as caught:
        resolve(table, source="first.toml")
    assert sorted(str(caught.value).splitlines()) == sorted(example("text").splitlines())
