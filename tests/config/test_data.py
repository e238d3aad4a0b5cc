"""The `[data]` section: what it accepts, and what it says of what it does not."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from bimetal.config.data import FIELDS, DataOptions, SourceOptions
from bimetal.data.schemas import LAYOUTS


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "path\n  Field required"),
        ({"path": ""}, "at least 1 character"),
        (
            {"path": "https://example.org/a.jsonl"},
            "an address is not read; got 'https://example.org/a.jsonl'",
        ),
        ({"path": "a\0b"}, "a path holds no control characters"),
        ({"path": "a", "format": "alpaca"}, "'canonical', 'messages'"),
        ({"path": "a", "weight": 0}, "greater than 0"),
        ({"path": "a", "limit": 0}, "greater than or equal to 1"),
        ({"path": "a", "quality": 1.5}, "less than or equal to 1"),
        ({"path": "a", "stream": "other"}, "'main' or 'demonstrations'"),
        (
            {"path": "a", "columns": {"referenec": "x"}},
            "unknown field in columns 'referenec'; did you mean 'reference'?",
        ),
        ({"path": "a", "splits": "x"}, "Extra inputs are not permitted"),
    ],
)
def test_a_source_says_what_is_wrong(options: dict[str, object], said: str):
    with pytest.raises(ValidationError) as caught:
        SourceOptions.model_validate(options)
    assert said in str(caught.value)


def test_bad_rows_stop_unless_the_recipe_says_otherwise():
    assert DataOptions().on_bad_rows == "stop"
    with pytest.raises(ValidationError, match="'stop' or 'set_aside'"):
        DataOptions.model_validate({"on_bad_rows": "ignore"})


def test_the_fields_are_those_of_the_formats():
    assert set(FIELDS) == set().union(*(layout.allowed for layout in LAYOUTS.values()))
