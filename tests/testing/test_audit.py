"""The audit passes on this installation, and every fault makes it fail with a message that names it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from bimetal.core.errors import UnknownNameError
from bimetal.studies.quickstart import packaged_recipe
from bimetal.testing.audit import Finding, audit_method, audit_step, chosen
from bimetal.testing.audit_model import audit_recipe
from bimetal.testing.faults import FAULTS, NO_FAULT, Fault, fault

DOMAINS = ("lab_arithmetic", "lab_countdown", "lab_knights", "lab_registers", "lab_table")


def failures(findings: Iterable[Finding]) -> list[str]:
    return [f"{one.check}: {one.detail}" for one in findings if not one.ok]


def of_the_model(wrong: Fault, folder: Path) -> list[str]:
    few = [f"domain.{name}.count.train=6" for name in DOMAINS]
    return failures(audit_recipe(packaged_recipe(folder, few), wrong, base=folder))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sft", "ppo", "chord_phi", "luffy"])
def test_a_method_keeps_its_promises(name: str) -> None:
    (candidate,) = chosen([name])
    assert failures(audit_method(candidate)) == []


@pytest.mark.slow
def test_the_step_and_the_embedded_model_keep_theirs(tmp_path: Path) -> None:
    assert failures(audit_step()) == []
    assert of_the_model(NO_FAULT, tmp_path) == []


@pytest.mark.parametrize("name", ["drop-microbatches", "last-backward-only", "mean-of-means"])
@pytest.mark.parametrize("method", ["sft", "luffy"])
def test_a_wrong_accumulation_is_found_and_named(name: str, method: str) -> None:
    (candidate,) = chosen([method])
    (message,) = failures(audit_method(candidate, fault(name)))
    assert message.startswith("accumulation (C1): 5 micro-batches give policy another gradient than one")
    assert f"This is the fault '{name}' ({FAULTS[name].what})" in message


def test_a_mask_beside_the_response_is_found_and_named() -> None:
    (message,) = failures(audit_step(fault("off-by-one-mask")))
    assert "'off-by-one-mask'" in message


@pytest.mark.parametrize("method", ["chord_phi", "dft"])
def test_a_weight_with_a_gradient_is_found_and_named(method: str) -> None:
    (candidate,) = chosen([method])
    (message,) = failures(audit_method(candidate, fault("detached-weight-not-detached")))
    assert message.startswith("constant weights: term 'imitation'")
    assert "'detached-weight-not-detached'" in message


@pytest.mark.slow
@pytest.mark.parametrize("name", ["template-drift", "double-bos"])
def test_a_prompt_that_is_not_the_templates_is_found_and_named(name: str, tmp_path: Path) -> None:
    (message,) = of_the_model(fault(name), tmp_path)
    assert message.startswith("chat template: prompt ")
    assert f"'{name}'" in message


def test_an_unknown_fault_or_method_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'mean-of-means'"):
        fault("mean-of-mean")
    with pytest.raises(UnknownNameError, match="did you mean 'luffy'"):
        chosen(["lufy"])
