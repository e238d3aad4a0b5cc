"""Two real ranks over gloo, plain and sharded by FSDP2: the same step as one rank, for every method."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bimetal.core.catalogue import names

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict:
    """What rank 0 wrote after both ranks ran every case; they share one start, which is the slow part."""
    folder = tmp_path_factory.mktemp("ranks")
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.real.two_ranks", str(folder), str(rank)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=400)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    codes = [process.returncode for process in processes]
    assert codes == [0, 0], "\n\n".join(outputs)[-4000:]
    return json.loads((folder / "found.json").read_text())


def cases(found: dict, layout: str) -> dict[str, dict]:
    return {name: case for name, case in found.items() if f"-{layout}-" in name}


@pytest.mark.parametrize("layout", ["plain", "sharded"])
def test_two_ranks_change_the_parameters_as_one_does(found, layout):
    chosen = cases(found, layout)
    assert len(chosen) >= 2 * len(names("methods"))
    for name, case in chosen.items():
        assert case["norm"] > 0, name
        assert case["gap"] <= case["allowed"], name


@pytest.mark.parametrize("layout", ["plain", "sharded"])
def test_two_ranks_report_the_losses_and_the_norm_of_one(found, layout):
    for name, case in cases(found, layout).items():
        if name.endswith("-step"):
            assert case["metrics_away"] <= 1e-9, name
            assert case["norm_away"] <= case["allowed"], name


def test_ranks_had_unequal_numbers_of_live_micro_batches(found):
    assert any(case["live_rank_0"] != case["live_rank_1"] for n, case in found.items() if n.endswith("-step"))


def test_what_is_not_finite_on_one_rank_stops_both_before_anything_moves(found):
    assert found["refused"] is True


def test_sums_and_gathers_cover_both_ranks(found):
    assert found["gathered"] == [0, 1]
    assert found["summed"] == [[3.0, 3.0, 3.0], [1.0, 1.0, 1.0, 1.0]]  # 1 + 2, and 0 + 1 in float64
