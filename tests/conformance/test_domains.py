"""Every domain of the folder, found by listing it, keeps what all domains promise."""

from __future__ import annotations

import importlib
import pkgutil

import pytest

import bimetal.domains
from bimetal.testing.domains import CHECKS, DomainSuite

NAMES = sorted(module.name for module in pkgutil.iter_modules(bimetal.domains.__path__))
COUNT = {"train": 60, "selection": 12, "test": 20}


def suite_of(name: str) -> DomainSuite:
    domain = importlib.import_module(f"bimetal.domains.{name}")
    if "task" in domain.Config.model_fields:
        pytest.importorskip("reasoning_gym")
    options = dict(getattr(domain, "EXAMPLE_OPTIONS", {}))
    if "count" in domain.Config.model_fields:
        options["count"] = COUNT
    return DomainSuite(domain=domain, options=domain.Config(**options))


def test_the_folder_holds_the_lab_domains() -> None:
    assert {"lab_arithmetic", "lab_countdown", "lab_knights", "lab_registers", "lab_table"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_domain_keeps(name: str, check) -> None:
    check(suite_of(name))


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("lab_")])
def test_a_lab_domain_documents_its_reference(name: str) -> None:
    assert importlib.import_module(f"bimetal.domains.{name}").REFERENCE_FORM
