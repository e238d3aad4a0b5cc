"""PEAR against its literal transcription, its recursion, its limits, and its weights worked by hand."""

from __future__ import annotations

import dataclasses
import math

import pytest
from tests.methods import literal, literal_sft
from tests.methods.compare import LONGEST, SEEDS, Group, check_against_literal, random_groups
from tests.objectives.tables import INF, NAN, a_batch, said

from bimetal.core.streams import Streams
from bimetal.core.types import Origin
from bimetal.methods.pear import VARIANTS, Config, build, future_ratio
from bimetal.objectives.method import RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


def authored_groups(seed: int) -> tuple[Group, ...]:
    """Random groups whose demonstrations have an author who can say how likely each token was."""
    noise = Streams(seed).generator("authors")

    def with_author(trace):
        head, body = trace.segments
        if body.origin is Origin.DEMONSTRATION:
            numbers = tuple(float(-4 * x) for x in noise.random(len(body.token_ids)))
            body = dataclasses.replace(body, logprobs=numbers)
        return dataclasses.replace(trace, contexts=((head, body),))

    groups = random_groups(seed)
    return tuple(dataclasses.replace(g, traces=tuple(map(with_author, g.traces))) for g in groups)


@pytest.mark.parametrize(
    "options",
    [{}, {"low": -3.0, "high": 3.0, "floor": -1.0, "ceiling": 0.5, "discount": 0.9}, {"discount": 0.3}],
    ids=["published", "wide", "short-sighted"],
)
@pytest.mark.parametrize(
    ("level", "block"), [("token", 4), ("block", 1), ("block", 3), ("block", 4), ("sequence", 4)]
)
@pytest.mark.parametrize("seed", SEEDS)
def test_pear_equals_its_literal_transcription(seed, level, block, options):
    made = Config(level=level, block=block, **options)

    def transcribed(samples):
        return literal_sft.pear(
            samples.demonstrations,
            variant=level,
            gamma=made.discount,
            block=block,
            delta=(made.low, made.high),
            log_weight=(made.floor, made.ceiling),
        )

    check_against_literal(build(made, RUN), authored_groups(seed), transcribed, seed=seed, drift="none")


@pytest.mark.parametrize(
    "options",
    [{"low": 0.0, "high": 0.0, "discount": 1.0}, {"level": "block", "block": LONGEST}],
    ids=["the policy is the author", "one block"],
)
def test_without_a_future_to_weigh_it_is_sft(options):
    def sft(samples):
        return literal.sft(samples.demonstrations, aggregate="token_mean")

    check_against_literal(build(Config(**options), RUN), authored_groups(0), sft, seed=0, drift="none")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # Log-ratios 0.1, -0.05, 0.2, -1 held at -0.08, 0.5 held at 0.3; gamma = e^-0.1; four tokens follow
        # the first one.
        ({"level": "token"}, [-0.05 + 0.2 - 0.08 + 0.3 - 0.4, 0.42 - 0.3, 0.22 - 0.2, 0.3 - 0.1, 0.0]),
        # Blocks of two end at 2, 4 and 5: what follows them is 0.2 - 0.08 + 0.3, then 0.3, then nothing.
        ({"level": "block", "block": 2}, [0.42 - 0.3, 0.42 - 0.3, 0.3 - 0.1, 0.3 - 0.1, 0.0]),
        ({"level": "sequence"}, [0.47] * 5),  # 0.1 - 0.05 + 0.2 - 0.08 + 0.3
        ({"level": "sequence", "ceiling": 0.25}, [0.25] * 5),
        ({"level": "token", "floor": 0.0, "ceiling": 0.1}, [0.0, 0.1, 0.02, 0.1, 0.0]),
    ],
)
def test_five_tokens_worked_by_hand_between_garbage(options, expected):
    batch = a_batch(
        {"imitation": [[0, 1, 1, 1, 1, 1, 0]]}, author_logprobs=[[NAN, -1.1, -1.0, -1.2, -1.0, -1.5, INF]]
    )
    policy = said([[INF, -1.0, -1.05, -1.0, -2.0, -1.0, NAN]])
    weight = future_ratio(Config(discount=math.exp(-0.1), **options))
    found = weight(batch, policy, batch.members["imitation"])
    assert not found.requires_grad
    assert found[0, 1:6].log().tolist() == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert bool(found.isfinite().all())


def test_a_token_weighs_its_successor_times_the_successors_ratio_and_the_discount():
    batch = a_batch({"imitation": [[1] * 6]}, author_logprobs=[[-1.0, -1.1, -0.9, -1.05, -1.0, -1.2]])
    policy = said([[-1.0] * 6])
    found = future_ratio(Config(discount=0.9))(batch, policy, batch.members["imitation"])[0].tolist()
    # Log-ratios of the successors: 0.1, -0.1 held at -0.08, 0.05, 0.0, 0.2
    assert found[-1] == 1.0
    for here, following, ratio in zip(found[:-1], found[1:], [0.1, -0.08, 0.05, 0.0, 0.2], strict=True):
        assert here == pytest.approx(0.9 * math.exp(ratio) * following, rel=1e-12)


def test_an_author_who_said_nothing_is_asked_for():
    batch = a_batch({"imitation": [[1]]})
    with pytest.raises(ValueError, match="author_logprobs"):
        future_ratio(Config())(batch, said([[-1.0]]), batch.members["imitation"])


def test_the_variants_are_the_levels():
    assert {name: options["level"] for name, options in VARIANTS.items()} == {
        "pear_block": "block",
        "pear_sequence": "sequence",
    }
