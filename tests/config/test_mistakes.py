"""Mistakes put into words."""

from __future__ import annotations

import pytest
from pydantic import field_validator

from bimetal.config.mistakes import all_of, validated
from bimetal.config.options import Options
from bimetal.core.errors import ConfigError, UnknownNameError, unknown_name


class Inner(Options):
    """A part."""

    size: int = 1
    """How big."""


class Outer(Options):
    """A whole."""

    part: Inner | int = 0
    """A part, or its size."""

    pair: tuple[int, str] = (0, "")
    """Two things."""

    spare: Inner | None = None
    """Another part, or none."""

    color: str = "red"
    """One of two."""

    @field_validator("color")
    @classmethod
    def _known(cls, color: str) -> str:
        if color not in {"red", "blue"}:
            raise unknown_name("color", color, ["red", "blue"])
        return color


def message(table: dict[str, object], path: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        validated(Outer, table, path=path)
    return str(caught.value)


def test_the_branch_of_a_union_is_no_part_of_the_path() -> None:
    assert message({"part": {"size": "x"}}).startswith('part.size: must be a whole number; got "x". How big.')


def test_a_section_that_may_be_left_out_is_walked_like_any_other() -> None:
    assert message({"spare": {"size": "x"}}) == 'spare.size: must be a whole number; got "x". How big.'
    assert message({"spare": {"sise": 1}}) == "spare.sise: unknown option 'sise'; did you mean 'size'?"
    assert message({"spare": 1}) == "spare: must be a table; got 1. Another part, or none."


def test_an_unknown_key_inside_a_union_is_compared_with_that_parts_keys() -> None:
    assert "part.sise: unknown option 'sise'; did you mean 'size'?" in message({"part": {"sise": 1}})


def test_the_items_of_a_pair_have_types_of_their_own() -> None:
    lines = message({"pair": ["a", 1]}, "stage.0").splitlines()
    assert lines == [
        'stage.0.pair.0: must be a whole number; got "a". Two things.',
        "stage.0.pair.1: must be text in quotes; got 1. Two things.",
    ]


def test_what_a_validator_says_stands_behind_the_path() -> None:
    assert message({"color": "bleu"}) == "color: unknown color 'bleu'; did you mean 'blue'?"


def test_a_long_value_is_cut() -> None:
    assert message({"part": "x" * 500}).count("x") < 80


def test_the_mistakes_of_several_checks_are_joined() -> None:
    def broken() -> Outer:
        return validated(Outer, {"colour": "red"}, path="a")

    def also_broken() -> Outer:
        return validated(Outer, {"pair": 1}, path="b")

    with pytest.raises(ConfigError) as caught:
        all_of([broken, also_broken])
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == ["a.colour", "b.pair"]
    with pytest.raises(UnknownNameError):
        all_of([broken, broken])
