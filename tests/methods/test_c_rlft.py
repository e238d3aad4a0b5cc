"""C-RLFT against its literal transcription, and where its weights cancel."""

from __future__ import annotations

import dataclasses

import pytest
from tests.methods import literal, literal_sft
from tests.methods.compare import LONGEST, SEEDS, Group, check_against_literal, random_groups
from tests.objectives.tables import NAN, a_batch, a_group, a_trace

from bimetal.core.types import Signals
from bimetal.methods.c_rlft import Config, build
from bimetal.objectives.compose import shares
from bimetal.objectives.method import RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


def classed(seed: int, *classes: str) -> tuple[Group, ...]:
    """Random groups whose prompts take turns in these classes."""
    groups = random_groups(seed)
    metas = [{"author": classes[i % len(classes)]} for i in range(len(groups))]
    prompts = [dataclasses.replace(g.prompt, meta=meta) for g, meta in zip(groups, metas, strict=True)]
    return tuple(dataclasses.replace(g, prompt=p) for g, p in zip(groups, prompts, strict=True))


@pytest.mark.parametrize("balance", ["token", "sequence"])
@pytest.mark.parametrize("weight", [0.1, 0.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_c_rlft_equals_its_literal_transcription(seed, weight, balance):
    # Every group has one demonstration, in order of groups.
    def transcribed(samples):
        weights = [weight if i % 3 else 1.0 for i in range(len(samples.demonstrations))]
        return literal_sft.c_rlft(samples.demonstrations, weights, per_sequence=balance == "sequence")

    options = Config(column="author", suboptimal=("small", "old"), weight=weight, balance=balance)
    groups = classed(seed, "large", "small", "old")
    check_against_literal(build(options, RUN), groups, transcribed, seed=seed, drift="none")


@pytest.mark.parametrize("only", ["suboptimal", "expert"])
def test_one_class_alone_is_sft(only):
    def sft(samples):
        return literal.sft(samples.demonstrations, aggregate="token_mean")

    method = build(Config(column="author"), RUN)
    check_against_literal(method, classed(0, only), sft, seed=0, drift="none")


def test_weights_and_shares_by_hand():
    options = Config(column="author", weight=0.5)
    expert = a_group(a_trace("a", demonstration=2))
    lesser = a_group(a_trace("b", demonstration=3))
    prompt = dataclasses.replace(lesser.prompt, meta={"author": "suboptimal"})
    lesser = dataclasses.replace(lesser, prompt=prompt)

    def weights(balance: str) -> list[float]:
        method = build(options.model_copy(update={"balance": balance}), RUN)
        return [w.weight for c in method.credit((expert, lesser), Signals()) for w in c.weights]

    assert weights("token") == [1.0, 0.5]
    # 1 / (2 + 1) and 0.5 / (3 + 1)
    assert weights("sequence") == pytest.approx([1 / 3, 0.125], rel=1e-15)
    # The weights of all tokens add up to 2 + 1.5 = 3.5, the denominator.
    members = {"imitation": [[1, 1, 0], [1, 1, 1]]}
    batch = a_batch(members, weights={"imitation": [[1.0, 1.0, NAN], [0.5, 0.5, 0.5]]})
    found = shares(build(options, RUN).terms, batch)["imitation"]
    assert found[0].tolist() == pytest.approx([1 / 3.5, 1 / 3.5, 0.0], rel=1e-15)
    assert found[1].tolist() == pytest.approx([0.5 / 3.5] * 3, rel=1e-15)


def test_prompts_without_a_class_are_an_experts():
    def sft(samples):
        return literal.sft(samples.demonstrations, aggregate="token_mean")

    check_against_literal(build(Config(), RUN), random_groups(0), sft, seed=0, drift="none")
