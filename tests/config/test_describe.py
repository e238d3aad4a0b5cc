"""The option reference and the JSON Schema."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from bimetal.config.describe import json_schema, option_reference, option_rows, options_table, sections
from bimetal.config.options import Options
from bimetal.config.schema import Recipe


class Metal(StrEnum):
    """Two metals."""

    IRON = "iron"
    COPPER = "copper"


class Strip(Options):
    """One strip."""

    metal: Metal = Metal.IRON
    """What it is made of."""

    width: float = Field(default=1.0, gt=0, le=2)
    """Millimetres."""

    length: int | Literal["any"] = "any"
    """Millimetres, or any."""


class Bonded(Options):
    """Several strips."""

    label: str
    """A name; `a | b` is allowed."""

    strips: tuple[Strip, ...] = ()
    """The strips."""

    by_name: dict[str, Strip] = Field(default_factory=dict)
    """More strips."""


def test_a_row_has_type_range_default_and_the_sentence_of_the_field() -> None:
    rows = {row.key: (row.type, row.range, row.default, row.description) for row in option_rows(Strip)}
    assert rows == {
        "metal": ('"iron" or "copper"', "", '"iron"', "What it is made of."),
        "width": ("number", "> 0, <= 2", "1.0", "Millimetres."),
        "length": ('whole number or "any"', "", '"any"', "Millimetres, or any."),
    }


def test_sections_are_named_by_their_path() -> None:
    assert [path for path, _ in sections(Bonded)] == ["", "strips.N", "by_name.NAME"]


def test_the_table_escapes_bars_and_says_required() -> None:
    assert options_table(Bonded).splitlines()[2] == (
        "| `label` | text |  | required | A name; `a \\| b` is allowed. |"
    )


def test_a_model_without_fields_says_so() -> None:
    class Nothing(Options):
        """Has none."""

    assert options_table(Nothing) == "No options.\n"


def test_the_reference_of_recipes_has_every_section() -> None:
    text = option_reference(Recipe)
    for path in (
        "budget",
        "trainer",
        "domain.NAME",
        "stage.N",
        "stage.N.optimizer",
        "data.sources.N",
        "evaluation",
    ):
        assert f"## `[{path}]`" in text


def test_every_core_option_is_described_by_a_sentence() -> None:
    missing = [
        f"{path}.{row.key}"
        for path, model in sections(Recipe)
        for row in option_rows(model)
        if not row.description
    ]
    assert missing == []


def test_the_schema_refuses_unknown_keys_and_lets_a_file_leave_out_what_is_derived() -> None:
    schema = json_schema(Recipe)
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == {"name", "model", "budget", "stage"}
    assert schema["$defs"]["StageOptions"]["required"] == ["method"]
    assert schema["$defs"]["MethodOptions"]["additionalProperties"] is not False
