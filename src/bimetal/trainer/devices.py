"""Which device computes, and in which type: resolved once, recorded, and required again on resume."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Literal

import torch

from bimetal.core.errors import ConfigError


def resolve_device(name: str) -> torch.device:
    """The device of this name; "auto" is the first of cuda, mps and cpu that this machine has.

    Raises:
        ConfigError: The device is not one that can be asked for, or this machine has none such.
    """
    if name == "auto":
        name = next(kind for kind in ("cuda", "mps", "cpu") if _has(kind))
    if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", name):
        raise ConfigError(f"model.device: unknown device {name!r}; write auto, cpu, mps, cuda or cuda:1")
    device = torch.device(name)
    if not _has(device.type):
        raise ConfigError(
            f"model.device: this machine has no {device.type}; found {', '.join(_kinds())}; "
            "write auto, or run `bimetal doctor` to see why"
        )
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if device.index is not None and device.index >= count:
        raise ConfigError(
            f"model.device: there is no {name}; found {count}, the last cuda:{count - 1}; name one of those"
        )
    return device


def bf16_supported(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 matrices in hardware; elsewhere it is slower than float32.

    A processor does with the features avx512_bf16, amx_bf16 or (Arm) bf16. Apple's graphics units
    accept the type, but what is gained there depends on the generation, so they count as without.
    """
    if device.type == "cuda":
        # Emulated bfloat16 also counts as supported unless it is left out.
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu":
        return not _cpu_features().isdisjoint({"avx512_bf16", "amx_bf16", "bf16"})
    return False


def autocast_dtype(wish: Literal["auto", "off", "bfloat16"], device: torch.device) -> torch.dtype | None:
    """The type of matrix products; ``None`` is the weights' own. "bfloat16" is obeyed on every device."""
    if wish == "bfloat16" or (wish == "auto" and bf16_supported(device)):
        return torch.bfloat16
    return None


def compute_record(device: torch.device) -> dict[str, str | int | bool]:
    """What of this machine rounding depends on: device, its name, threads, kernels, versions."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name()
    return {
        "device": device.type,
        "device_name": name,
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "omp_num_threads": os.environ.get("OMP_NUM_THREADS", ""),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "bf16_supported": bf16_supported(device),
    }


def _kinds() -> tuple[str, ...]:
    return tuple(kind for kind in ("cuda", "mps", "cpu") if _has(kind))


def _has(kind: str) -> bool:
    if kind == "cuda":
        return torch.cuda.is_available()
    if kind == "mps":
        return torch.backends.mps.is_available()
    return True


def _cpu_features() -> frozenset[str]:
    """The features Linux lists for the first processor; empty elsewhere."""
    return frozenset(_cpu_line("flags", "Features").split())


def _cpu_name() -> str:
    return _cpu_line("model name") or "unknown"


def _cpu_line(*names: str) -> str:
    listing = Path("/proc/cpuinfo")
    if not listing.is_file():
        return ""
    lines = listing.read_text(encoding="utf-8", errors="replace").splitlines()
    pairs = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in pairs if name.strip() in names), "")
