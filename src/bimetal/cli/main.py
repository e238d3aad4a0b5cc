"""The command ``bimetal``: every other file of this folder is one command, named after the file.

A command's file exports ``command``, a function with Typer annotations; what it needs beyond the
standard library and Typer it imports when it runs, so that ``bimetal --help`` answers at once.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import bimetal.cli as commands
from bimetal.cli._console import print_error
from bimetal.core.errors import BimetalError, ConfigError, DataError

RUN_FAILED = 1
"""Exit code of a run that could not go on."""

BAD_USAGE = 2
"""Exit code of a mistake in the command, the recipe or the data."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


def command_names() -> list[str]:
    """Every command, sorted; nothing is imported."""
    return sorted(
        info.name
        for info in pkgutil.iter_modules(commands.__path__)
        if not info.name.startswith("_") and info.name != "main"
    )


def application() -> typer.Typer:
    """The command line, with every command of this folder."""
    app = typer.Typer(
        name="bimetal",
        help="Post-trains language models with any mixture of supervised and reinforcement learning.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in command_names():
        module = importlib.import_module(f"{commands.__name__}.{name}")
        app.command(name)(module.command)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0, 1 where a run failed, 2 for bad usage, recipe or data.

    Args:
        arguments: What follows ``bimetal``; the process's own unless stated.
    """
    try:
        application()(args=list(sys.argv[1:] if arguments is None else arguments), prog_name="bimetal")
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else RUN_FAILED if stop.code else 0
    except (ConfigError, DataError) as error:
        print_error(str(error))
        return BAD_USAGE
    except BimetalError as error:
        print_error(str(error))
        return RUN_FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _version(value: bool | None) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"bimetal {version('bimetal')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool | None, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = None,
) -> None:
    """Post-trains language models with any mixture of supervised and reinforcement learning."""
    del version
