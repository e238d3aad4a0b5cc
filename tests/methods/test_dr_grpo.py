"""Dr. GRPO against its literal transcription."""

from __future__ import annotations

import pytest
from tests.methods import literal
from tests.methods.compare import SEEDS, check_against_literal, free_groups

from bimetal.methods.dr_grpo import Config, build
from bimetal.objectives.method import RunShape


@pytest.mark.parametrize("drift", ["none", "some"])
@pytest.mark.parametrize("seed", SEEDS)
def test_dr_grpo_equals_its_literal_transcription(seed, drift):
    # The constant is the run's limit, 37, whatever the batch's longest response is (at most 12).
    method = build(Config(), RunShape(max_response_tokens=37, group_size=4))
    metrics = check_against_literal(
        method,
        free_groups(seed),
        lambda samples: literal.dr_grpo(samples.groups, low=0.2, high=0.2, constant=37),
        seed=seed,
        drift=drift,
    )
    assert (metrics.value("gate/closed_share") > 0) == (drift == "some")
