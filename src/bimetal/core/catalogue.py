"""The catalogue: a name becomes a module, and the file name is the registration.

Built-in entries are the files of ``bimetal/{methods,domains,backends,curricula}``; installed packages
add entries through the entry-point groups ``bimetal.methods`` and so on; a user's own file is named
by its path, ``"./my_reward.py"`` or ``"./my_reward.py:score"``, and is executed only with permission.

``locate`` says where an entry lives without running any of its code; ``load`` runs it; ``find`` does both.
"""

from __future__ import annotations

import hashlib
import importlib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Literal, cast

from bimetal.core.errors import ConfigError, boundary, unknown_name
from bimetal.core.types import EMPTY, JsonValue

Kind = Literal["methods", "domains", "backends", "curricula"]
"""The folders of the catalogue."""

_SINGULAR: Mapping[Kind, str] = MappingProxyType(
    {"methods": "method", "domains": "domain", "backends": "backend", "curricula": "curriculum"}
)
_FILE_NAME = re.compile(r"(?P<path>.*\.py)(?::(?P<attribute>[^:/\\]*))?", re.DOTALL)


class Source(StrEnum):
    """Where an entry comes from."""

    BUILTIN = "builtin"
    PLUGIN = "plugin"
    FILE = "file"


class LocalCode(StrEnum):
    """Whether a recipe may run code from files of the user; the flag ``--allow-code`` allows it."""

    REFUSED = "refused"
    ALLOWED = "allowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Location:
    """Where an entry lives: an importable module, or a file with the hash of its content.

    ``Location(kind="domains", name="./my_reward.py:score", source=Source.FILE, path="/home/a/my_reward.py",
    attribute="score", sha256="9f86...")``
    """

    kind: Kind
    name: str
    source: Source
    module: str = ""
    path: str = ""
    attribute: str = ""
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A loaded entry: its module, and the option values that its name presets (a variant's).

    ``attribute`` is what follows the colon of a local file's name, empty where nothing does.
    """

    location: Location
    module: ModuleType
    options: Mapping[str, JsonValue] = field(default_factory=lambda: EMPTY)

    @property
    def name(self) -> str:
        """The name that was asked for."""
        return self.location.name

    @property
    def source(self) -> Source:
        """Where the entry comes from."""
        return self.location.source

    @property
    def sha256(self) -> str:
        """Hash of a local file's content, empty for the others."""
        return self.location.sha256

    @property
    def attribute(self) -> str:
        """What follows the colon of a local file's name, empty where nothing does."""
        return self.location.attribute


def names(kind: Kind) -> list[str]:
    """The names of all built-in and installed entries, sorted; nothing is imported.

    Raises:
        ConfigError: A plug-in shadows a built-in entry or another plug-in.
    """
    return sorted(_modules(kind))


def variants(kind: Kind) -> dict[str, tuple[str, Mapping[str, JsonValue]]]:
    """Variant name -> (entry it presets, option values), of every entry; imports all of them.

    Raises:
        ConfigError: A variant has the name of an entry, or of another entry's variant.
    """
    found: dict[str, tuple[str, Mapping[str, JsonValue]]] = {}
    known = _modules(kind)
    for owner, location in sorted(known.items()):
        presets = cast(
            "Mapping[str, Mapping[str, JsonValue]]", getattr(load(location).module, "VARIANTS", {})
        )
        for variant, options in presets.items():
            taken = variant if variant in known else found.get(variant, ("",))[0]
            if taken:
                raise ConfigError(
                    f"{_SINGULAR[kind]} variant {variant!r} of {owner!r} is also a name in {taken!r}; "
                    f"rename it in VARIANTS of {owner!r}"
                )
            found[variant] = (owner, options)
    return found


def is_local_file(name: str) -> bool:
    """Whether a name means a file of the user.

    >>> is_local_file("./my_reward.py:score"), is_local_file("my_reward.py"), is_local_file("chord")
    (True, True, False)
    """
    return _FILE_NAME.fullmatch(name) is not None


def locate(
    kind: Kind, name: str, *, base: Path | None = None, code: LocalCode = LocalCode.REFUSED
) -> Location:
    """Say where the entry of this exact name lives, without running any of its code.

    Args:
        kind: The folder of the catalogue.
        name: A file name without its ending, a plug-in's name, or the path of a local file.
        base: The folder against which a local path is read and which it cannot leave; the current
            folder unless stated.
        code: Whether a local file is allowed.

    Raises:
        UnknownNameError: No entry has this name (a variant is not an entry: see ``find``).
        ConfigError: A local file without permission, missing, or outside ``base``.
    """
    if is_local_file(name):
        return _locate_file(kind, name, base=base or Path.cwd(), code=code)
    known = _modules(kind)
    if name not in known:
        raise unknown_name(_SINGULAR[kind], name, known)
    return known[name]


def load(location: Location) -> Entry:
    """Import the module, or run the file, that was located.

    Raises:
        ConfigError: The code raised, or a file's content is not the one that was located.
    """
    if location.source is Source.FILE:
        return Entry(location=location, module=_run_file(location))
    with boundary(ConfigError, f"import {location.module} for {_SINGULAR[location.kind]} {location.name!r}"):
        return Entry(location=location, module=importlib.import_module(location.module))


def find(kind: Kind, name: str, *, base: Path | None = None, code: LocalCode = LocalCode.REFUSED) -> Entry:
    """The entry or variant of this name, loaded; arguments and errors are those of ``locate`` and ``load``.

    >>> find("methods", "chord_phi")  # doctest: +SKIP
    Entry(location=..., module=<module 'bimetal.methods.chord'>, options={...})
    """
    if is_local_file(name) or name in _modules(kind):
        return load(locate(kind, name, base=base, code=code))
    presets = variants(kind)
    if name not in presets:
        raise unknown_name(_SINGULAR[kind], name, [*names(kind), *presets])
    owner, options = presets[name]
    location = replace(locate(kind, owner), name=name)
    return replace(load(location), options=MappingProxyType(dict(options)))


def _modules(kind: Kind) -> dict[str, Location]:
    """Name -> location of the built-in and installed entries."""
    # Reading the installed packages costs 50 ms, which workers that are told where to look never pay.
    import importlib.metadata
    import pkgutil

    package = f"bimetal.{kind}"
    folder = importlib.import_module(package).__path__
    found = {
        info.name: Location(kind=kind, name=info.name, source=Source.BUILTIN, module=f"{package}.{info.name}")
        for info in pkgutil.iter_modules(folder)
        if not info.name.startswith("_")
    }
    for point in sorted(importlib.metadata.entry_points(group=package), key=lambda p: (p.name, p.value)):
        rival = found.get(point.name)
        # One package seen twice on the path (an editable install beside a copy) is not a conflict.
        if rival is not None and rival.module != point.module:
            raise ConfigError(
                f"plug-in {_SINGULAR[kind]} {point.name!r} ({point.value}) has the name of {rival.module}; "
                "rename it in the plug-in, or uninstall one of them"
            )
        found[point.name] = rival or Location(
            kind=kind, name=point.name, source=Source.PLUGIN, module=point.module
        )
    return found


def _locate_file(kind: Kind, name: str, *, base: Path, code: LocalCode) -> Location:
    match = _FILE_NAME.fullmatch(name)
    if match is None:
        raise unknown_name(_SINGULAR[kind], name, names(kind))
    attribute = match["attribute"] or ""
    if match["attribute"] is not None and not attribute.isidentifier():
        raise ConfigError(
            f"{_SINGULAR[kind]} {name!r}: {attribute!r} after the colon is not a Python name; "
            "write the name of a function of that file"
        )
    if code is not LocalCode.ALLOWED:
        raise ConfigError(
            f"{_SINGULAR[kind]} {name!r} is local code, which runs with your rights; "
            "read the file, then pass --allow-code to permit it"
        )
    root = base.resolve()
    path = (root / match["path"]).resolve()
    if not path.is_relative_to(root):
        raise ConfigError(
            f"{_SINGULAR[kind]} {name!r}: {path} lies outside {root}; move the file into that folder"
        )
    if not path.is_file():
        raise ConfigError(f"{_SINGULAR[kind]} {name!r}: no file {path}; local paths start at {root}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Location(
        kind=kind, name=name, source=Source.FILE, path=str(path), attribute=attribute, sha256=digest
    )


def _run_file(location: Location) -> ModuleType:
    """Run exactly the bytes whose hash was recorded: neither a later edit nor a stale cache can slip in."""
    what = f"{_SINGULAR[location.kind]} {location.name!r}"
    path = Path(location.path)
    with boundary(ConfigError, f"read {what}"):
        content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != location.sha256:
        raise ConfigError(f"{what}: {path} changed while the run was using it; start the run again")
    module = ModuleType(f"bimetal_local_{location.sha256[:16]}")
    module.__file__ = str(path)
    # Annotations of dataclasses and option models are looked up through sys.modules.
    sys.modules[module.__name__] = module
    try:
        with boundary(ConfigError, f"run {what}"):
            exec(compile(content, str(path), "exec"), module.__dict__)
    except ConfigError:
        del sys.modules[module.__name__]
        raise
    return module
