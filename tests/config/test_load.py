"""Reading recipes: overrides, derived names, and what every mistake is told."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from bimetal.config.load import load_recipe, overridden, read_toml, resolve, validate_entry
from bimetal.config.options import Options
from bimetal.config.schema import Recipe
from bimetal.config.toml import options_as_toml
from bimetal.core.errors import ConfigError, UnknownNameError

ONE_STAGE = """
name = "first"
[model]
name = "lab/nano"
[domain.lab_arithmetic]
most_digits = 3
[budget]
amount = 2e9
[[stage]]
method = {name = "luffy", gamma = 0.1}
"""

TWO_STAGES = """
name = "second"
[model]
name = "lab/nano"
[domain.sums]
name = "lab_arithmetic"
weight = 2
[budget]
amount = 1000
currency = "generated_tokens"
[[stage]]
share = 0.25
method.name = "sft"
[[stage]]
share = 0.75
method.name = "grpo"
"""


class Shape(Options):
    """Options of an entry."""

    gamma: float = Field(default=0.5, gt=0, lt=1)
    """The constant in p / (p + gamma)."""

    side: int = 2
    """A length."""


def recipe_file(folder: Path, text: str = ONE_STAGE) -> Path:
    path = folder / "first.toml"
    path.write_text(text, encoding="utf-8")
    return path


def message(table: dict[str, object], *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve(overridden(table, overrides))
    return str(caught.value)


def two_stages() -> dict[str, object]:
    return tomllib.loads(TWO_STAGES)


def test_a_recipe_is_read_and_its_defaults_are_filled_in(tmp_path: Path) -> None:
    recipe = load_recipe(recipe_file(tmp_path))
    assert recipe.output == "runs/first"
    assert recipe.domain["lab_arithmetic"].name == "lab_arithmetic"
    assert recipe.domain["lab_arithmetic"].own == {"most_digits": 3}
    assert recipe.stage[0].name == "luffy"
    assert recipe.stage[0].method.own == {"gamma": 0.1}
    assert recipe.stage[0].optimizer.betas == (0.9, 0.999)


def test_an_entry_may_be_used_under_another_key() -> None:
    sums = resolve(two_stages()).domain["sums"]
    assert (sums.name, sums.weight, sums.own) == ("lab_arithmetic", 2.0, {})


def test_a_stage_named_after_a_local_file_gets_a_name_without_slashes() -> None:
    recipe = resolve(overridden(tomllib.loads(ONE_STAGE), ["method.name=./my_method.py"]))
    assert recipe.stage[0].name == "my_method-py"


def test_an_override_sets_a_value_deep_inside() -> None:
    table = overridden(two_stages(), ["stage.1.method.clip_high=0.28", "seed=3", "model.name=lab/other"])
    recipe = resolve(table)
    assert recipe.stage[1].method.own == {"clip_high": 0.28}
    assert (recipe.seed, recipe.model.name) == (3, "lab/other")


def test_overriding_leaves_the_table_it_was_given_alone() -> None:
    table = two_stages()
    overridden(table, ["stage.1.method.clip_high=0.28", "domain.sums.weight=7"])
    assert table == two_stages()


def test_the_later_override_wins() -> None:
    assert resolve(overridden(two_stages(), ["seed=3", "seed=4"])).seed == 4


def test_the_only_stage_needs_no_number() -> None:
    table = overridden(tomllib.loads(ONE_STAGE), ["method.gamma=0.2", "optimizer.learning_rate=1e-6"])
    stage = resolve(table).stage[0]
    assert (stage.method.own, stage.optimizer.learning_rate) == ({"gamma": 0.2}, 1e-6)


def test_one_of_several_stages_must_be_named() -> None:
    assert message(two_stages(), "group_size=4") == (
        "group_size: the recipe has 2 stages; write stage.0.group_size to name one"
    )


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("seed", "override 'seed': must be key=value, as in stage.0.method.gamma=0.2"),
        ("=3", "override '=3': must be key=value, as in stage.0.method.gamma=0.2"),
        ("a..b=3", "override 'a..b=3': 'a..b' is no key; write parts joined by dots"),
        ("stage.7.share=1", "override 'stage.7.share=1': stage has entries 0 to 1; got '7'"),
        ("model.name.x=3", "override 'model.name.x=3': model.name is a value and has no 'x'"),
        ("model.name=True", "override 'model.name=True': write true, or '\"True\"' for text"),
        (
            "model.name=a # b",
            "override 'model.name=a # b': line 1, column 9: Invalid value; put text in quotes",
        ),
        ("seed=1\nname='x'", "override \"seed=1\\nname='x'\": one assignment at a time"),
    ],
)
def test_an_override_that_cannot_be_placed_says_why(override: str, expected: str) -> None:
    assert message(two_stages(), override) == expected


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("seed=true", "seed: must be a whole number; got true. Root of every"),
        ("seed=1.5", "seed: must be a whole number; got 1.5. Root of every"),
        ("seed='1'", 'seed: must be a whole number; got "1". Root of every'),
        ("name=3", "name: must be text in quotes; got 3. Name of the run"),
        ("model=3", "model: must be a table; got 3. What is trained."),
        ("domain={}", "domain: a recipe needs prompts; add a [domain.NAME] table"),
        ("stage.0.optimizer.name=adam", "stage.0.optimizer.name: must be 'adamw' or 'sgd'; got \"adam\"."),
        ("stage.0.optimizer.betas=[1.0, 0.5]", "stage.0.optimizer.betas.0: must be less than 1; got 1.0."),
        ("stage.0.method=grpo", 'stage.0.method: must be a table; got "grpo".'),
        ("stage.0.share=0.5", "stage: the shares of all stages must add up to 1; got 1.25."),
        ("stage.0.name=grpo", "stage: names must be unique; got 'grpo' twice."),
        ("budget.wall_seconds=0", "budget.wall_seconds: must be greater than 0 or 'unlimited'; got 0."),
        ("budget.wall_seconds=soon", "budget.wall_seconds: must be a number or 'unlimited'; got \"soon\"."),
        ("budget.amount=inf", "budget.amount: must be a finite number; got inf"),
        ("seed=2020-01-01", "seed: dates and times are not used here; put 2020-01-01 in quotes"),
        ("stage.0.method.x=[1, nan]", "stage.0.method.x.1: must be a finite number; got nan"),
        ("sead=1", "sead: unknown option 'sead'; did you mean 'seed'?"),
        ("stage.0.optimizer.rate=1", "stage.0.optimizer.rate: unknown option 'rate'; choose one of: betas,"),
    ],
)
def test_a_wrong_value_is_named_with_path_range_and_what_was_found(override: str, expected: str) -> None:
    assert message(two_stages(), override).startswith(f"recipe: {expected}")


def test_all_mistakes_are_listed_together() -> None:
    assert message(two_stages(), "sead=1", "stage.1.group_size=0").splitlines() == [
        "recipe: 2 mistakes",
        "  stage.1.group_size: must be greater than or equal to 1; got 0. "
        "Traces per prompt, demonstrations among them included.",
        "  sead: unknown option 'sead'; did you mean 'seed'?",
    ]


def test_only_unknown_keys_make_an_unknown_name_error() -> None:
    with pytest.raises(UnknownNameError):
        resolve(overridden(two_stages(), ["sead=1"]))
    with pytest.raises(ConfigError) as caught:
        resolve(overridden(two_stages(), ["sead=1", "seed=-1"]))
    assert not isinstance(caught.value, UnknownNameError)


def test_a_missing_recipe_names_the_nearest_one(tmp_path: Path) -> None:
    recipe_file(tmp_path)
    with pytest.raises(ConfigError, match=r"no such file; did you mean 'first\.toml'\?"):
        load_recipe(tmp_path / "firts.toml")


def test_a_folder_is_no_recipe(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml(tmp_path)


def test_a_file_that_is_no_toml_is_named_with_its_line(tmp_path: Path) -> None:
    path = recipe_file(tmp_path, 'name = "a"\nseed = \n')
    with pytest.raises(ConfigError) as caught:
        read_toml(path)
    assert str(caught.value) == f"{path}: line 2, column 8: Invalid value"


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(b'name = "\xff"')
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        read_toml(path)


def test_an_entry_is_checked_against_its_own_options() -> None:
    found = validate_entry("method", {"name": "m", "gamma": 0.25}, config_class=Shape, path="stage.0.method")
    assert found == Shape(gamma=0.25)


def test_the_recipes_own_keys_do_not_reach_the_entry() -> None:
    table = {"name": "d", "weight": 2.0, "side": 3}
    assert validate_entry("domain", table, config_class=Shape, path="domain.d") == Shape(side=3)


def test_a_mistake_in_an_entry_carries_the_full_path() -> None:
    with pytest.raises(ConfigError) as caught:
        validate_entry("method", {"name": "m", "gamma": 3}, config_class=Shape, path="stage.0.method")
    assert str(caught.value) == (
        "stage.0.method.gamma: must be less than 1; got 3. The constant in p / (p + gamma)."
    )


def test_an_entry_may_not_claim_the_recipes_keys() -> None:
    class Claims(Options):
        weight: float = 1.0

    with pytest.raises(ConfigError, match=r"domain\.d: the domain's Config has an option 'weight'"):
        validate_entry("domain", {}, config_class=Claims, path="domain.d")


texts = st.text(max_size=12)
scalars = st.one_of(
    st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False, allow_infinity=False), texts
)
free_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
free_tables = st.dictionaries(
    texts.filter(lambda key: key not in {"name", "weight"}), free_values, max_size=3
)


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    count = draw(st.integers(1, 3))
    stages = [
        {
            "name": f"stage-{number}",
            "share": 1 / count,
            "method": {"name": draw(st.sampled_from(["sft", "grpo"])), **draw(free_tables)},
            "optimizer": {
                "learning_rate": draw(st.floats(1e-12, 1.0)),
                "betas": [0.5, draw(st.floats(0, 0.99))],
            },
        }
        for number in range(count)
    ]
    domains = draw(st.dictionaries(texts.filter(bool), free_tables, min_size=1, max_size=2))
    return resolve(
        {
            "name": "a",
            "seed": draw(st.integers(0, 2**62)),
            "output": draw(texts.filter(bool)),
            "model": {"name": "lab/nano"},
            "domain": domains,
            "budget": {
                "amount": draw(st.floats(1, 1e30)),
                "wall_seconds": draw(st.just("unlimited") | st.floats(1, 9)),
            },
            "stage": stages,
        }
    )


@given(recipes())
def test_the_written_recipe_reads_back_as_the_same_run(recipe: Recipe) -> None:
    assert resolve(tomllib.loads(options_as_toml(recipe))) == recipe


@pytest.mark.soak
@settings(max_examples=500)
@given(recipes())
def test_five_hundred_written_recipes_read_back_as_the_same_run(recipe: Recipe) -> None:
    text = options_as_toml(recipe)
    again = resolve(tomllib.loads(text))
    assert again == recipe
    assert options_as_toml(again) == text
