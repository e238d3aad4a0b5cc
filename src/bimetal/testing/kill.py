"""Exact resume on this machine: runs that are killed in the middle, resumed, and compared (contract C4)."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from time import perf_counter

from bimetal.testing.audit import Finding

RECIPE = """
name = "audited"
seed = 7
output = {output}
[model]
name = "lab/nano"
[domain.lab_arithmetic]
count = {{train = 24, selection = 4, test = 4}}
least_digits = 2
most_digits = 2
[budget]
currency = "optimizer_steps"
amount = 8
[trainer]
threads = 1
checkpoint_every_steps = 2
max_prompt_tokens = 48
max_response_tokens = 24
[evaluation]
problems_per_domain = 4
"""

STAGES: Mapping[str, str] = {
    "optimizer and stages": """
[[stage]]
share = 0.5
method = {name = "sft"}
prompts_per_batch = 4
[[stage]]
share = 0.5
method = {name = "grpo", beta = 0.1}
prompts_per_batch = 2
group_size = 3
updates_per_rollout = 2
""",
    "critic": """
[[stage]]
method = {name = "ppo"}
prompts_per_batch = 2
group_size = 2
updates_per_rollout = 2
""",
    "controller and second stream": """
[[stage]]
method = {name = "chord"}
prompts_per_batch = 2
group_size = 2
demonstration_prompts = 2
""",
}
"""A run for every kind of state that a resume has to bring back."""

LINES_BEFORE = 5
"""Metrics lines after which a run is killed: past its first checkpoint, before its end."""

PATIENCE_SECONDS = 300.0
"""How long a run may take on a busy machine."""


def audit_resume(folder: Path) -> Iterator[Finding]:
    """Kill one run of each kind with SIGKILL, resume it, and compare it with one that was left alone."""
    for number, (kind, stages) in enumerate(STAGES.items()):
        began = perf_counter()
        detail = _fault(folder / str(number), stages)
        yield Finding(subject="resume", check=kind, detail=detail, seconds=perf_counter() - began)


def _fault(folder: Path, stages: str) -> str:
    """What differs between the two runs; empty where nothing does."""
    folder.mkdir(parents=True)
    recipes = {}
    for name in ("whole", "killed"):
        recipes[name] = folder / f"{name}.toml"
        recipes[name].write_text(RECIPE.format(output=json.dumps(str(folder / name))) + stages, "utf-8")
    log = folder / "log.txt"
    if code := _command(log, "train", str(recipes["whole"])):
        return f"a run of 8 steps ended with code {code}: {_last_line(log)}"
    if not _killed_midway(log, recipes["killed"], folder / "killed" / "metrics.jsonl"):
        return "the run could not be killed in the middle: it ended first"
    if code := _command(log, "resume", str(folder / "killed")):
        return f"resume ended with code {code}: {_last_line(log)}"
    lines = [_lines(folder / name) for name in ("whole", "killed")]
    if lines[0] != lines[1]:
        return "the metrics of the killed and resumed run are not those of the run that was left alone"
    weights = [_hash(folder / name / "model" / "model.safetensors") for name in ("whole", "killed")]
    return "" if weights[0] == weights[1] else "the weights of the two runs differ"


def _command(log: Path, *arguments: str) -> int:
    with log.open("ab") as out:
        return subprocess.run(
            [sys.executable, "-m", "bimetal", *arguments],
            stdout=out,
            stderr=out,
            timeout=PATIENCE_SECONDS,
            check=False,
        ).returncode


def _killed_midway(log: Path, recipe: Path, metrics: Path) -> bool:
    """Start a run and kill it once it has written some lines; whether it was still running then."""
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "bimetal", "train", str(recipe)], stdout=out, stderr=out
        )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            if metrics.is_file() and metrics.read_bytes().count(b"\n") >= LINES_BEFORE:
                process.kill()
                break
            time.sleep(0.005)
        process.kill()
        return process.wait() != 0


def _lines(folder: Path) -> list[object]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text("ascii").splitlines()]
    return [{key: value for key, value in row.items() if key != "times"} for row in rows]


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it wrote nothing"
