"""`bimetal new`: the file and the test of a new method, domain, backend or curriculum."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from bimetal.cli._console import JsonFlag, print_json, print_text
from bimetal.core.catalogue import Kind, names
from bimetal.core.errors import ConfigError, unknown_name

KINDS: dict[str, Kind] = {
    "method": "methods",
    "domain": "domains",
    "backend": "backends",
    "curriculum": "curricula",
}

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def command(
    kind: Annotated[str, typer.Argument(help="method, domain, backend or curriculum.")],
    name: Annotated[str, typer.Argument(help="Its name: lower-case letters, digits, underscores.")],
    folder: Annotated[Path, typer.Option(help="A checkout of bimetal, or any folder of yours.")] = Path(),
    json: JsonFlag = False,
) -> None:
    """Write the file and the test of a new catalogue entry; both run as they are.

    Example: bimetal new method my_method; bimetal new domain my_domain --folder experiments
    """
    file, test = written(kind, name, folder=folder)
    if json:
        print_json({"kind": kind, "name": name, "file": str(file), "test": str(test)})
        return
    print_text(f"{file}\n{test}")
    print_text(f"Run the test: python -m pytest {test}")
    if not is_checkout(folder):
        print_text(f'Use it in a recipe: name = "./{file.name}", and allow it with --allow-code.')


def written(kind: str, name: str, *, folder: Path) -> tuple[Path, Path]:
    """Write both files and give their paths; nothing is written if either exists.

    Raises:
        UnknownNameError: There is no such kind.
        ConfigError: The name cannot be used, or a file of that name exists.
    """
    if kind not in KINDS:
        raise unknown_name("kind of entry", kind, KINDS)
    _refuse_bad_name(kind, name)
    file, test, module = _places(KINDS[kind], name, folder)
    for path in (file, test):
        if path.exists():
            raise ConfigError(f"{path}: exists; choose another name, or move the file away")
    for path, template in ((file, f"{kind}.py.txt"), (test, f"{kind}_test.py.txt")):
        text = files("bimetal.cli").joinpath("templates", template).read_text(encoding="utf-8")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template(text).substitute(name=name, module=module), encoding="utf-8")
    return file, test


def is_checkout(folder: Path) -> bool:
    """Whether the folder is a checkout of this project, where a file's place registers it."""
    return (folder / "src" / "bimetal" / "core" / "catalogue.py").is_file()


def _places(kind: Kind, name: str, folder: Path) -> tuple[Path, Path, str]:
    if is_checkout(folder):
        file = folder / "src" / "bimetal" / kind / f"{name}.py"
        return file, folder / "tests" / kind / f"test_{name}.py", f"bimetal.{kind}.{name}"
    return folder / f"{name}.py", folder / f"test_{name}.py", name


def _refuse_bad_name(kind: str, name: str) -> None:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise ConfigError(
            f"{kind} {name!r}: must be lower-case letters, digits and underscores, a letter first, and no "
            "Python keyword; choose another name"
        )
    if name in names(KINDS[kind]):
        raise ConfigError(f"{kind} {name!r}: exists already; choose another name")
