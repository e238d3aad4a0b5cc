"""How commands write: JSON for machines, text and tables for people, nothing that could drive a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of text.")]
"""The option every command has."""


def print_json(value: object) -> None:
    """Write one JSON document to standard output."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=True) + "\n")


def print_text(text: str = "") -> None:
    """Write text to standard output, without its control characters."""
    sys.stdout.write(printable(text) + "\n")


def print_progress(text: str) -> None:
    """Write what is being done to standard error, so that standard output stays for results."""
    sys.stderr.write(printable(text) + "\n")


def print_error(text: str) -> None:
    """Write one message to standard error."""
    sys.stderr.write(f"bimetal: {printable(text)}\n")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table as wide as the terminal."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(escape(printable(cell)) for cell in row))
    console().print(table)


def print_markdown(text: str) -> None:
    """Write Markdown as it reads in a terminal; unchanged where standard output is none."""
    if not sys.stdout.isatty():
        print_text(text)
        return
    from rich.markdown import Markdown

    console().print(Markdown(printable(text)))


def console() -> Console:
    """A Rich console on standard output."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False)


def printable(text: str) -> str:
    r"""Text that cannot move a cursor, change a color or reorder what is read.

    >>> printable("a\x1b[31mb\u202ec")
    'a?[31mb?c'
    """
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def without_nothing(table: Mapping[str, object]) -> dict[str, object]:
    """The table without the keys whose value is empty.

    >>> without_nothing({"a": "", "b": 1})
    {'b': 1}
    """
    return {key: value for key, value in table.items() if value not in ("", None, (), [], {})}
