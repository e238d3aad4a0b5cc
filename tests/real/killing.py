"""A real run in a process of its own, killed at a chosen moment, and what it was doing when it died."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

RECIPE = """
name = "killed"
seed = 5
[model]
name = "lab/nano"
[domain.lab_arithmetic]
count = {{train = 40, selection = 8, test = 8}}
least_digits = 2
most_digits = 2
[domain.slow]
name = "./slow_reward.py:score"
[[data.sources]]
path = "sums.jsonl"
[budget]
currency = "optimizer_steps"
amount = {steps}
[trainer]
threads = 1
checkpoint_every_steps = 3
max_prompt_tokens = 48
max_response_tokens = 32
[evaluation]
every_steps = 10
problems_per_domain = 4
[[stage]]
share = 0.2
method = {{name = "sft"}}
prompts_per_batch = 6
optimizer = {{learning_rate = 3e-3}}
[[stage]]
share = 0.8
method = {{name = "grpo"}}
prompts_per_batch = 4
group_size = 3
updates_per_rollout = {updates}
optimizer = {{learning_rate = 1e-3}}
"""

UPDATES: Mapping[str, int] = {"sft": 1, "grpo": 2}
"""Optimizer steps of a roll-out batch, by stage."""

SLOW_REWARD = '''"""Takes a moment, as a verifier that runs programs does."""

import time


def score(data_source, solution_str, ground_truth, extra_info):
    time.sleep(0.03)
    return float(ground_truth in solution_str)
'''


class Phase(StrEnum):
    """What a run was doing."""

    GENERATION = "generation"
    VERIFICATION = "verification"
    UPDATE = "update"
    CHECKPOINT = "checkpoint write"


@dataclass(frozen=True, slots=True)
class Seen:
    """What lies in a run folder: enough to tell what the run is doing."""

    batches: tuple[str, ...]
    kinds: tuple[str, ...]
    updates: int
    writes_checkpoint: bool
    has_recipe: bool

    @property
    def phase(self) -> Phase:
        """A batch whose traces are in a fixed order is in its update until all its lines are written."""
        if self.writes_checkpoint:
            return Phase.CHECKPOINT
        if not self.kinds or self.kinds[-1] == "order":
            return Phase.UPDATE if self.kinds and self.updates > 0 else Phase.GENERATION
        return Phase.VERIFICATION


def seen(folder: Path) -> Seen:
    """Look at a run folder, also while it is being written."""
    journal = folder / "journal"
    batches = tuple(sorted(p.name for p in journal.iterdir())) if journal.is_dir() else ()
    kinds: tuple[str, ...] = ()
    updates = 0
    if batches:
        kinds = tuple(_kinds(journal / batches[-1]))
        updates = _updates_left(folder, int(batches[-1].removeprefix("batch-").removesuffix(".jsonl")))
    checkpoints = folder / "checkpoints"
    parts = list(checkpoints.glob(".step-*.part")) if checkpoints.is_dir() else []
    return Seen(batches, kinds, updates, bool(parts), (folder / "recipe.toml").exists())


def _kinds(path: Path) -> list[str]:
    try:
        lines = path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [json.loads(line.partition(b" ")[2])["kind"] for line in lines if line.endswith(b"\n")]


def _updates_left(folder: Path, batch: int) -> int:
    """Optimizer steps of this batch that have no line yet."""
    path = folder / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith(b"\n")]
    steps = [row for row in rows if row["batch"] == batch and "budget/progress" in row["metrics"]]
    return (UPDATES[steps[-1]["stage"]] if steps else 1) - len(steps)


def write_inputs(folder: Path, *, steps: int) -> Path:
    """A recipe with two stages and two domains, one of them judged by a slow local file; its path."""
    folder.mkdir()
    rows = [
        {"id": f"sum/{n}", "domain": "slow", "prompt": f"{n}+{n}=?", "reference": str(2 * n),
         "demonstration": f"Answer: {2 * n}"} for n in range(12)
    ]  # fmt: skip
    (folder / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "ascii")
    (folder / "slow_reward.py").write_text(SLOW_REWARD, "ascii")
    path = folder / "recipe.toml"
    path.write_text(RECIPE.format(steps=steps, updates=UPDATES["grpo"]), "ascii")
    return path


def command(recipe: Path, folder: Path) -> list[str]:
    """What a user types: `train`, or `resume` once there is a run."""
    bimetal = [sys.executable, "-m", "bimetal"]
    if (folder / "recipe.toml").exists():
        return [*bimetal, "resume", str(folder), "--allow-code", "--json"]
    return [*bimetal, "train", str(recipe), f'output="{folder}"', "--allow-code", "--json"]


def run_to_the_end(recipe: Path, folder: Path) -> None:
    """Start or resume a run and let it finish."""
    ran = subprocess.run(command(recipe, folder), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["finished"]


def kill_at(recipe: Path, folder: Path, *, wanted: Phase | None, noise: random.Random) -> Phase:
    """Start or resume a run and kill it in this phase, or some time after its first work; where it died.

    Raises:
        AssertionError: It ended by itself before.
    """
    before = seen(folder)
    with (folder.parent / "log.txt").open("ab") as log:
        process = subprocess.Popen(command(recipe, folder), stdout=log, stderr=log)
        try:
            _wait(process, folder, before, wanted, noise)
        finally:
            process.kill()
            process.wait()
    return seen(folder).phase


def _wait(
    process: subprocess.Popen[bytes], folder: Path, before: Seen, wanted: Phase | None, noise: random.Random
) -> None:
    """Until the moment comes: a state that this process brought about, or a random time after one."""
    started = False
    while True:
        assert process.poll() is None, (folder.parent / "log.txt").read_text("utf-8", "replace")[-4000:]
        now = seen(folder)
        started = started or now != before
        if started and wanted is None:
            time.sleep(noise.uniform(0.0, 1.5))
            return
        if started and now.phase is wanted and now.has_recipe:
            # Later in the phase, if it lasts that long.
            time.sleep(noise.choice((0.0, 0.0, 0.01, 0.05)))
            return
        time.sleep(0.003)


def planned(counts: Mapping[Phase | None, int], noise: random.Random) -> Sequence[Phase | None]:
    """The moments in random order."""
    moments = [phase for phase, count in counts.items() for _ in range(count)]
    noise.shuffle(moments)
    return moments
