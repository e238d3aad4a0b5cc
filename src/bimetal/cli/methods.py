"""`bimetal methods`: the list of methods, or the card of one."""

from __future__ import annotations

from typing import Annotated

import typer

from bimetal.cli._console import JsonFlag, print_json, print_markdown, print_table


def command(
    name: Annotated[str, typer.Argument(help="Show the card of this method.")] = "",
    json: JsonFlag = False,
) -> None:
    """List the methods, or show what one does, needs and can be told.

    Example: bimetal methods; bimetal methods grpo
    """
    from bimetal.cli._catalogue import card, card_as_markdown, cards

    found = [card("methods", name)] if name else cards("methods")
    if json:
        print_json(found[0].as_json() if name else [one.as_json() for one in found])
    elif name:
        print_markdown(card_as_markdown(found[0]))
    else:
        print_table(("method", "what it is"), [(one.name, one.summary) for one in found])
