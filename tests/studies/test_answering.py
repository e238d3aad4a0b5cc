"""Names on a command line: models and run folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from bimetal.core.errors import ConfigError
from bimetal.studies.answering import named

RECIPE = "[domain.lab_table]\n"


def test_a_finished_run_stands_for_its_model(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    (tmp_path / "model").mkdir()
    found = named(str(tmp_path))
    assert (found.label, found.model, found.run) == (tmp_path.name, str(tmp_path / "model"), tmp_path)
    assert named("lab/nano").run is None


def test_a_run_whose_model_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "model").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="the run has no finished model"):
        named(str(tmp_path))
