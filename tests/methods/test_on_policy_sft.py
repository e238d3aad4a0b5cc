"""On-policy SFT against its literal transcription, and as REINFORCE without a baseline."""

from __future__ import annotations

import dataclasses

import pytest
from tests.methods import literal_rl, literal_sft
from tests.methods.compare import (
    LONGEST,
    SEEDS,
    Finish,
    Group,
    check_against_literal,
    forget_verdict,
    free_groups,
)

from bimetal.core.types import Signals
from bimetal.methods.on_policy_sft import Config, build
from bimetal.objectives.method import RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


def cut_short(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    """The same groups, with the first right response of each cut at the length limit."""

    def cut(group: Group) -> Group:
        traces = list(group.traces)
        right = [i for i, t in enumerate(traces) if t.reward == 1.0]
        for i in right[:1]:
            traces[i] = dataclasses.replace(traces[i], finish=Finish.LENGTH)
        return dataclasses.replace(group, traces=tuple(traces))

    return tuple(map(cut, groups))


@pytest.mark.parametrize("aggregate", ["token_mean", "sequence_mean"])
@pytest.mark.parametrize("drift", ["none", "some"])
@pytest.mark.parametrize("seed", SEEDS)
def test_on_policy_sft_equals_its_literal_transcription(seed, drift, aggregate):
    def transcribed(samples):
        flat = [sample for group in samples.groups for sample in group]
        return literal_sft.on_policy_sft(flat, aggregate=aggregate)

    groups = forget_verdict(cut_short(free_groups(seed)), 1, 2)
    method = build(Config(aggregate=aggregate), RUN)
    check_against_literal(method, groups, transcribed, seed=seed, drift=drift)


def test_it_is_reinforce_without_a_baseline_over_the_kept_tokens():
    def reinforce(samples):
        flat = [sample for group in samples.groups for sample in group]
        kept = sum(len(s.logprobs) for s in flat if s.reward == 1.0)
        loss = literal_rl.reinforce(
            flat, baseline=[0.0] * len(flat), off_policy="none", aggregate="token_mean"
        )
        # Its mean is over all tokens, those of wrong responses included.
        return loss * sum(len(s.logprobs) for s in flat) / kept

    check_against_literal(build(Config(), RUN), free_groups(0), reinforce, seed=0, drift="none")


def test_where_all_is_wrong_nothing_is_learned():
    wrong = [
        dataclasses.replace(g, traces=tuple(t for t in g.traces if t.reward == 0.0)) for g in free_groups(0)
    ]
    credits = build(Config(), RUN).credit(wrong, Signals())
    assert len(credits) == sum(len(g.traces) for g in wrong) > 0
    assert all(c.weights == () for c in credits)
