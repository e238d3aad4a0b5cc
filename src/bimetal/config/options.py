"""Options: the base of every catalogue entry's ``Config`` and of every section of a recipe."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Options(BaseModel):
    """Frozen, typed, documented settings; an unknown key is an error.

    Subclasses annotate every field, bound it, and describe it in the string below it; those strings
    become the option reference, the JSON Schema and the ``--help`` text.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False, strict=False
    )
