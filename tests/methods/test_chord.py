"""CHORD against its literal transcription, and its schedule against the values in the notes."""

from __future__ import annotations

import pytest
from tests.methods import literal
from tests.methods.compare import LONGEST, SEEDS, check_against_literal, two_streams

from bimetal.methods.chord import VARIANTS, Config, build
from bimetal.objectives.controller import value_of
from bimetal.objectives.method import RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


def transcribed(*, mu: float, phi: bool, aggregate: str = "sequence_mean"):
    return lambda samples: literal.chord(
        samples.groups,
        samples.demonstrations,
        mu=mu,
        phi=phi,
        low=0.2,
        high=0.2,
        epsilon=1e-6,
        aggregate=aggregate,
    )


@pytest.mark.parametrize("aggregate", ["sequence_mean", "token_mean"])
@pytest.mark.parametrize("drift", ["none", "some"])
@pytest.mark.parametrize("seed", SEEDS)
def test_chord_mu_equals_its_literal_transcription(seed, drift, aggregate):
    # 400 steps with W = 0 and D = 200: step 120 is progress 0.3.
    mu = literal.chord_mu(120, peak=0.9, valley=0.05, warmup=0, decay=200)
    method = build(Config(rl_aggregate=aggregate, **VARIANTS["chord_mu"]), RUN)
    expected = transcribed(mu=mu, phi=False, aggregate=aggregate)
    metrics = check_against_literal(method, two_streams(seed), expected, seed=seed, drift=drift)
    assert (metrics.value("gate/closed_share") > 0) == (drift == "some")


@pytest.mark.parametrize("drift", ["none", "some"])
@pytest.mark.parametrize("seed", SEEDS)
def test_chord_phi_equals_its_literal_transcription(seed, drift):
    method = build(Config(**VARIANTS["chord_phi"]), RUN)
    check_against_literal(method, two_streams(seed), transcribed(mu=0.1, phi=True), seed=seed, drift=drift)


def test_mu_follows_the_published_schedule_for_every_warmup_and_decay():
    for warmup, decay in ((0, 200), (200, 400), (100, 50), (0, 0)):
        options = Config(peak=0.9, valley=0.05, rise=warmup / 1000, decay=decay / 1000)
        rl, imitation = build(options, RUN).terms
        for step in range(0, 1001, 25):
            mu = literal.chord_mu(step, peak=0.9, valley=0.05, warmup=warmup, decay=decay)
            assert value_of(imitation.coefficient, step / 1000) == pytest.approx(mu, rel=1e-9)
            assert value_of(rl.coefficient, step / 1000) == pytest.approx(1 - mu, rel=1e-9)


def test_mu_has_the_values_of_the_notes():
    _, imitation = build(Config(peak=0.9, valley=0.05, rise=0.0, decay=0.5), RUN).terms
    # k = 50 of D = 200: 0.05 + 0.425 (1 + cos(pi / 4)) = 0.7755; k = 150: 0.05 + 0.425 (1 - cos(pi / 4)).
    for step, mu in ((0, 0.9), (50, 0.77552), (100, 0.475), (150, 0.17448), (200, 0.05), (399, 0.05)):
        assert value_of(imitation.coefficient, step / 400) == pytest.approx(mu, abs=5e-6)
