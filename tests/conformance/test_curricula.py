"""Every curriculum of the folder, found by listing it, keeps what all curricula promise."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import bimetal.curricula
from bimetal.core.types import PromptId
from bimetal.curricula.uniform import Uniform
from bimetal.testing.curricula import CHECKS, CurriculumSuite, resumes_exactly_at_every_point

NAMES = sorted(module.name for module in pkgutil.iter_modules(bimetal.curricula.__path__))


def suite_of(name: str) -> CurriculumSuite:
    entry = importlib.import_module(f"bimetal.curricula.{name}")
    options = entry.Config(**getattr(entry, "EXAMPLE_OPTIONS", {}))
    return CurriculumSuite(build=lambda candidates, streams: entry.build(options, candidates, streams))


def test_the_folder_holds_uniform() -> None:
    assert "uniform" in NAMES


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_curriculum_keeps(name: str, check) -> None:
    check(suite_of(name))


class Forgetful(Uniform):
    """A curriculum that saves nothing."""

    def load_state_dict(self, state) -> None:
        pass


def drawing_forever_the_first(candidates, streams):
    class Stuck(Uniform):
        def draw(self, count: int) -> list[PromptId]:
            return [candidates[0].prompt_id] * count

    return Stuck(candidates, streams)


def test_a_curriculum_without_memory_is_found() -> None:
    with pytest.raises(AssertionError, match=r"interrupted after 1 draws|metrics differ"):
        resumes_exactly_at_every_point(CurriculumSuite(build=Forgetful))


def test_a_curriculum_that_is_stuck_is_found_by_several_checks() -> None:
    failed = set()
    for check in CHECKS:
        try:
            check(CurriculumSuite(build=drawing_forever_the_first))
        except AssertionError:
            failed.add(check.__name__)
        except (IndexError, ZeroDivisionError):
            pass
    assert {"another_seed_gives_other_draws", "every_candidate_is_drawn_in_the_end"} <= failed
