"""`bimetal schema`: JSON Schema of recipes, or of one catalogue entry's table."""

from __future__ import annotations

from typing import Annotated

import typer

from bimetal.cli._console import JsonFlag, print_json
from bimetal.core.errors import ConfigError, unknown_name

KINDS = {"method": "methods", "domain": "domains", "backend": "backends", "curriculum": "curricula"}


def command(
    kind: Annotated[str, typer.Argument(help="method, domain, backend or curriculum.")] = "",
    name: Annotated[str, typer.Argument(help="Name of the entry.")] = "",
    json: JsonFlag = True,
) -> None:
    """Print the JSON Schema of recipes, or of the table of one catalogue entry.

    Example: bimetal schema > recipe.schema.json; bimetal schema method grpo
    """
    del json  # the answer is JSON either way
    from bimetal.cli._catalogue import entry_schema
    from bimetal.config.describe import json_schema
    from bimetal.config.schema import Recipe

    if not kind:
        print_json(json_schema(Recipe))
        return
    if kind not in KINDS:
        raise unknown_name("kind of entry", kind, KINDS)
    if not name:
        raise ConfigError(f"schema {kind}: needs the name of a {kind}, as in `bimetal schema {kind} NAME`")
    print_json(entry_schema(KINDS[kind], name))  # pyright: ignore[reportArgumentType] - KINDS holds kinds
