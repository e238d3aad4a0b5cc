"""Loss and gradient norm of every step against a committed file: one run per kind of method.

A change that says it moves no number (N0) or only rounding (N1) must pass as it is. One that moves numbers
by design (N2) writes the file anew with `make golden-update` and says why in the changelog.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.trainer.small import METHODS, recipe, save_tiny_model

from bimetal.cli.main import main
from bimetal.config.toml import options_as_toml

FILE = Path(__file__).parent / "trajectories.json"
STEPS = 20
RELATIVE = 1e-4
"""What another processor's rounding may add up to over 20 steps (N1)."""

REWARD = '''
def score(prompts, completions, **columns):
    """Random weights are never right, so something they differ in is paid."""
    return [sum(map(ord, text)) % 4 / 3 for text in completions]
'''


def trajectory(name: str, folder: Path) -> list[list[float]]:
    """(loss, gradient norm) of every optimizer step of a run through the command line."""
    (folder / "reward.py").write_text(REWARD, "ascii")
    rows = [
        {"id": str(n), "prompt": f"{n}+1=?", "reference": str(n + 1)}
        | ({"demonstration": f"Answer: {n + 1}"} if n % 4 else {})
        for n in range(24)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "ascii")
    resolved = recipe(
        folder / "run",
        model=save_tiny_model(folder / "start"),
        stage=METHODS[name],
        domain={"paid": {"name": "./reward.py:score"}},
        data={"sources": [{"path": "rows.jsonl", "domain": "paid"}]},
        budget={"currency": "optimizer_steps", "amount": STEPS},
        evaluation={"every_steps": "never"},
    )
    (folder / "recipe.toml").write_text(options_as_toml(resolved), "utf-8")
    assert main(["train", str(folder / "recipe.toml"), "--allow-code"]) == 0
    lines = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text("ascii").splitlines()]
    found = [line["metrics"] for line in lines if "gradient/norm" in line["metrics"]]
    return [
        [sum(v for k, v in m.items() if k.startswith("term/") and k.endswith("/loss")), m["gradient/norm"]]
        for m in found
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_every_step_is_the_recorded_one(name: str, tmp_path: Path) -> None:
    found = trajectory(name, tmp_path)
    recorded = json.loads(FILE.read_text("ascii")) if FILE.exists() else {}
    if os.environ.get("BIMETAL_GOLDEN") == "update":
        # Written by each parameter for itself, so that one run can be renewed alone.
        FILE.write_text(json.dumps(recorded | {name: found}, indent=0) + "\n", "ascii")
        return
    assert len(found) >= STEPS
    assert any(norm > 0 for _, norm in found)
    for step, (now, then) in enumerate(zip(found, recorded[name], strict=True), start=1):
        assert now == pytest.approx(then, rel=RELATIVE, abs=1e-7), f"step {step} of {name}"
