"""The TOML writer against Python's own reader."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bimetal.config.toml import table_as_toml, value_as_toml

values = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), values, max_size=6))
def test_every_table_is_read_back_as_it_was(table: dict[str, object]) -> None:
    assert tomllib.loads(table_as_toml(table)) == table


def test_plain_values_stand_before_sections_whatever_the_order() -> None:
    text = table_as_toml({"model": {"name": "a"}, "stage": [{"share": 1.0}], "seed": 1})
    assert text == 'seed = 1\n\n[model]\nname = "a"\n\n[[stage]]\nshare = 1.0\n'


def test_a_table_of_tables_has_no_heading_of_its_own() -> None:
    assert table_as_toml({"domain": {"a": {"weight": 1}}}) == "[domain.a]\nweight = 1\n"


def test_an_empty_table_is_kept() -> None:
    assert table_as_toml({"data": {}}) == "[data]\n"


@pytest.mark.parametrize("text", ["\x7f", "\x00\x1f", 'quote " and \\ back', "\ud7ff\ue000", "line\nline"])
def test_awkward_text_survives(text: str) -> None:
    assert tomllib.loads(f"value = {value_as_toml(text)}") == {"value": text}


def test_what_toml_cannot_say_is_refused() -> None:
    with pytest.raises(ValueError, match="no way to write None"):
        value_as_toml(None)
