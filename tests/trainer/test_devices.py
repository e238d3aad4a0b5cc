"""Tests of bimetal.trainer.devices on a machine of any kind."""

from __future__ import annotations

import pytest
import torch

from bimetal.core.errors import ConfigError
from bimetal.trainer.devices import autocast_dtype, bf16_supported, compute_record, resolve_device

CPU = torch.device("cpu")


def test_auto_is_a_device_of_this_machine():
    device = resolve_device("auto")
    assert torch.zeros(1, device=device).device.type == device.type


def test_a_named_device_is_obeyed():
    assert resolve_device("cpu") == CPU


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_device_this_machine_lacks_is_an_error():
    with pytest.raises(ConfigError, match=r"no cuda; found .*cpu; write auto"):
        resolve_device("cuda")


@pytest.mark.parametrize("name", ["gpu", "cpu:0", "cuda:", "", "meta"])
def test_a_name_that_is_no_device_is_an_error(name):
    with pytest.raises(ConfigError, match="unknown device"):
        resolve_device(name)


def test_the_wish_for_a_type_is_obeyed_and_auto_follows_the_hardware():
    assert autocast_dtype("off", CPU) is None
    assert autocast_dtype("bfloat16", CPU) is torch.bfloat16
    assert autocast_dtype("auto", CPU) is (torch.bfloat16 if bf16_supported(CPU) else None)


def test_the_record_names_what_rounding_depends_on():
    record = compute_record(CPU)
    assert record["threads"] == torch.get_num_threads()
    assert record["device"] == "cpu"
    assert record["torch"] == torch.__version__
    assert record["bf16_supported"] is bf16_supported(CPU)
