"""STM against its literal transcription, its limits, and a trace worked by hand."""

from __future__ import annotations

import math

import pytest
from tests.methods import literal, literal_sft
from tests.methods.compare import LONGEST, SEEDS, check_against_literal, random_groups
from tests.objectives.tables import a_group, a_trace

from bimetal.core.types import Signals
from bimetal.methods.stm import Config, build
from bimetal.objectives.method import RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


@pytest.mark.parametrize(
    ("seed", "threshold"),
    [(0, 2.5), (1, 2.5), *((seed, 10.0) for seed in SEEDS), *((seed, 50.0) for seed in SEEDS)],
)
def test_stm_equals_its_literal_transcription(seed, threshold):
    def transcribed(samples):
        return literal_sft.stm(samples.demonstrations, threshold=threshold)

    method = build(Config(threshold=threshold), RUN)
    check_against_literal(method, random_groups(seed), transcribed, seed=seed, drift="some")


@pytest.mark.parametrize(("threshold", "keep"), [(1e30, "likely"), (1.0, "unlikely")])
def test_a_threshold_that_keeps_everything_is_sft(threshold, keep):
    def sft(samples):
        return literal.sft(samples.demonstrations, aggregate="token_mean")

    method = build(Config(threshold=threshold, keep=keep), RUN)
    check_against_literal(method, random_groups(0), sft, seed=0, drift="some")


def test_a_demonstration_without_a_likely_token_is_no_member():
    group = a_group(a_trace("a", demonstration=2), a_trace("b", demonstration=2))
    reference = {"a": (math.log(0.3), math.log(0.2)), "b": (math.log(0.3), math.log(0.5))}
    first, second = build(Config(), RUN).credit((group,), Signals(reference_logprobs=reference))
    # 1 / p_0 is 3.33 and 5, then 3.33 and 2: one of four is at most 2.5.
    assert first.weights == ()
    assert [w.weight for w in second.weights] == [(0.0, 1.0)]


@pytest.mark.parametrize(
    ("keep", "expected"),
    [("likely", (0.0, 1.0, 1.0, 0.0)), ("unlikely", (1.0, 0.0, 1.0, 1.0))],
)
def test_a_token_is_kept_by_the_perplexity_of_the_initial_model(keep, expected):
    group = a_group(a_trace("a", demonstration=4), a_trace("b", policy=2, demonstration=1))
    # 1 / p_0 is 5, 1.25, 2 (the threshold itself) and 10; the other trace continues after one shown token.
    said = {"a": (0.2, 0.8, 0.5, 0.1), "b": (0.9, 0.9, 0.1)}
    reference = {name: tuple(math.log(p) for p in numbers) for name, numbers in said.items()}
    credit = build(Config(threshold=2.0, keep=keep), RUN).credit
    first, second = credit((group,), Signals(reference_logprobs=reference))
    assert [(w.segment, w.weight) for w in first.weights] == [(1, expected)]
    # Its only shown token has 1 / p_0 of 1.11, above no threshold.
    assert [(w.segment, w.weight) for w in second.weights] == ([(1, (1.0,))] if keep == "likely" else [])
