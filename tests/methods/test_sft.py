"""SFT against its literal transcription."""

from __future__ import annotations

import pytest
from tests.methods import literal
from tests.methods.compare import LONGEST, SEEDS, check_against_literal, random_groups

from bimetal.methods.sft import Config, build
from bimetal.objectives.method import RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


@pytest.mark.parametrize("aggregate", ["token_mean", "sequence_mean", "sequence_sum"])
@pytest.mark.parametrize("seed", SEEDS[:2])
def test_sft_equals_its_literal_transcription(seed, aggregate):
    check_against_literal(
        build(Config(aggregate=aggregate), RUN),
        random_groups(seed),
        lambda samples: literal.sft(samples.demonstrations, aggregate=aggregate),
        seed=seed,
        drift="none",
    )
