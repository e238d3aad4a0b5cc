"""Names become modules: built in, installed, or a file of the user."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from bimetal.core import catalogue
from bimetal.core.catalogue import Kind, LocalCode, Source, find, is_local_file, load, locate, names
from bimetal.core.errors import ConfigError, UnknownNameError

KINDS: tuple[Kind, ...] = ("methods", "domains", "backends", "curricula")


def plug_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, kind: Kind, body: str = "", **entries: str
) -> None:
    """Install a package ``plugged`` with these entry points, the way an installer would."""
    (folder / "plugged.py").write_text(body)
    info = folder / "plugged-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged\nVersion: 1.0\n")
    points = "".join(f"{name} = {module}\n" for name, module in entries.items())
    (info / "entry_points.txt").write_text(f"[bimetal.{kind}]\n{points}")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, "plugged", raising=False)


@pytest.mark.parametrize("kind", KINDS)
def test_built_in_names_are_the_files_of_the_folder(kind: Kind) -> None:
    folder = Path(catalogue.__file__).parent.parent / kind
    files = {p.stem for p in folder.glob("*.py") if not p.stem.startswith("_")}
    assert files <= set(names(kind))
    for name in files:
        found = locate(kind, name)
        assert (found.source, found.module) == (Source.BUILTIN, f"bimetal.{kind}.{name}")


def test_a_built_in_entry_is_loaded_by_its_file_name() -> None:
    entry = find("methods", "sft")
    assert entry.module.__name__ == "bimetal.methods.sft"
    assert (entry.name, entry.source, entry.sha256, dict(entry.options)) == ("sft", Source.BUILTIN, "", {})


def test_an_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown method 'lufy'; did you mean 'luffy'"):
        locate("methods", "lufy")
    with pytest.raises(UnknownNameError, match="unknown method 'lufy'; did you mean 'luffy'"):
        find("methods", "lufy")


def test_a_plug_in_is_found_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(tmp_path, monkeypatch, kind="domains", body="VALUE = 3", riddles="plugged")
    assert "riddles" in names("domains")
    entry = find("domains", "riddles")
    assert entry.module.VALUE == 3
    assert entry.source is Source.PLUGIN


def test_a_plug_in_that_shadows_a_built_in_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plug_in(tmp_path, monkeypatch, kind="methods", sft="plugged")
    with pytest.raises(
        ConfigError, match=r"plug-in method 'sft' \(plugged\) has the name of bimetal.methods.sft"
    ):
        names("methods")


def test_a_plug_in_that_cannot_be_imported_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(tmp_path, monkeypatch, kind="domains", body="1 / 0", riddles="plugged")
    with pytest.raises(ConfigError, match="import plugged for domain 'riddles': ZeroDivisionError"):
        find("domains", "riddles")


def test_a_variant_is_its_module_with_preset_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plug_in(tmp_path, monkeypatch, kind="curricula", body="VARIANTS = {'hard': {'low': 0.1}}", band="plugged")
    entry = find("curricula", "hard")
    assert (entry.name, entry.module.__name__, dict(entry.options)) == ("hard", "plugged", {"low": 0.1})
    assert catalogue.variants("curricula")["hard"] == ("band", {"low": 0.1})
    with pytest.raises(UnknownNameError, match="did you mean 'hard'"):
        find("curricula", "hart")


def test_a_variant_with_the_name_of_an_entry_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plug_in(tmp_path, monkeypatch, kind="curricula", body="VARIANTS = {'band': {}}", band="plugged")
    with pytest.raises(ConfigError, match="variant 'band' of 'band' is also a name in 'band'"):
        catalogue.variants("curricula")


@pytest.mark.parametrize(
    ("name", "local"),
    [
        ("./a.py", True),
        ("a.py:score", True),
        ("sub/a.py", True),
        ("chord", False),
        ("chord_phi", False),
        ("a.pyc", False),
        ("happy", False),
    ],
)
def test_a_local_file_is_known_by_its_ending(name: str, local: bool) -> None:
    assert is_local_file(name) is local


def test_a_local_file_is_not_even_read_without_permission(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'./no_such.py:score' is local code.*pass --allow-code"):
        locate("domains", "./no_such.py:score", base=tmp_path)


def test_locating_a_file_hashes_it_and_does_not_run_it(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("1 / 0")
    found = locate("domains", "./mine.py:score", base=tmp_path, code=LocalCode.ALLOWED)
    assert (found.source, found.attribute, found.path) == (Source.FILE, "score", str(tmp_path / "mine.py"))
    assert found.sha256 == hashlib.sha256(b"1 / 0").hexdigest()
    with pytest.raises(ConfigError, match=r"run domain './mine.py:score': ZeroDivisionError"):
        load(found)


def test_a_local_file_is_run_with_its_dataclasses_and_options(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "from bimetal.config.options import Options\n"
        "class Config(Options):\n    low: float = 0.5\n    '''Low.'''\n"
        "@dataclass\nclass A:\n    x: int\n"
    )
    entry = find("domains", "mine.py", base=tmp_path, code=LocalCode.ALLOWED)
    assert entry.module.Config().low == 0.5 and entry.module.A(1).x == 1
    assert (entry.source, entry.attribute, len(entry.sha256)) == (Source.FILE, "", 64)


def test_a_file_that_changed_after_it_was_located_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("x = 1")
    found = locate("domains", "./mine.py", base=tmp_path, code=LocalCode.ALLOWED)
    (tmp_path / "mine.py").write_text("x = 2")
    with pytest.raises(ConfigError, match="changed while the run was using it"):
        load(found)


@pytest.mark.parametrize("name", ["../outside.py", "link.py", "sub/../../outside.py"])
def test_a_path_cannot_leave_its_folder(tmp_path: Path, name: str) -> None:
    base = tmp_path / "base"
    (base / "sub").mkdir(parents=True)
    (tmp_path / "outside.py").write_text("")
    (base / "link.py").symlink_to(tmp_path / "outside.py")
    with pytest.raises(ConfigError, match="lies outside"):
        locate("domains", name, base=base, code=LocalCode.ALLOWED)


@pytest.mark.parametrize(
    ("name", "message"),
    [("./none.py", "no file"), ("./a.py:", "not a Python name"), ("./a.py:a b", "not a Python")],
)
def test_a_path_that_means_nothing_is_an_error(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        locate("domains", name, base=tmp_path, code=LocalCode.ALLOWED)
