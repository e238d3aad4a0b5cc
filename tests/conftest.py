"""What holds for every test: no network, few threads, and the same examples wherever hypothesis runs."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# Read by the libraries when they are first imported, so they stand before any test does that.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# A busy machine is no failure, so no deadline; a fixed seed, so that a red run is red again.
settings.register_profile(
    "bimetal", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("bimetal")
