"""REINFORCE against its literal transcription, for every baseline and correction, and on a bandit."""

from __future__ import annotations

import itertools

import pytest
import torch
from tests.methods import literal, literal_rl
from tests.methods.compare import LONGEST, SEEDS, check_against_literal, forget_verdict, free_groups
from tests.objectives.tables import a_batch, a_group, a_trace, log, said, slope

from bimetal.core.types import Signals
from bimetal.methods.reinforce import Config, build
from bimetal.objectives.method import RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


def baselines(kind, samples):
    if kind == "others":
        return literal_rl.batch_mean_of_others(samples)
    return [literal.mean([s.reward for s in samples]) if kind == "batch" else 0.0 for _ in samples]


def transcribed(*, baseline="others", correction="none"):
    def expected(samples):
        flat = [sample for group in samples.groups for sample in group]
        return literal_rl.reinforce(flat, baseline=baselines(baseline, flat), off_policy=correction)

    return expected


@pytest.mark.parametrize("correction", ["none", "token", "sequence"])
@pytest.mark.parametrize("baseline", ["others", "batch", "none"])
@pytest.mark.parametrize("drift", ["none", "some"])
def test_reinforce_equals_its_literal_transcription(drift, baseline, correction):
    method = build(Config(baseline=baseline, correction=correction), RUN)
    expected = transcribed(baseline=baseline, correction=correction)
    check_against_literal(method, free_groups(1), expected, seed=1, drift=drift)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_unknown_trace_is_in_no_baseline(seed):
    groups = forget_verdict(free_groups(seed), 1, 2)
    check_against_literal(build(Config(), RUN), groups, transcribed(), seed=seed, drift="some")


def test_a_correction_is_capped_and_not_differentiated():
    method = build(Config(correction="sequence", cap=2.0), RUN)
    batch = a_batch({"rl": [[1, 1]]}, advantages=[[0.5, 0.5]], old_logprobs=log([[0.1, 0.25]]))
    policy = said(log([[0.2, 0.5]]))
    # The product of 2 and 2 is 4, held at 2: each token's slope is -2 * 0.5.
    loss = method.terms[0].loss(batch, policy, batch.members["rl"])
    assert slope(loss, policy.logprobs) == [[pytest.approx(-1.0), pytest.approx(-1.0)]]


def test_three_rewards_worked_by_hand():
    groups = [
        a_group(a_trace("a", reward=1.0, policy=1), a_trace("b", reward=0.25, policy=1)),
        a_group(a_trace("c", reward=0.0, policy=1)),
    ]

    def found(baseline):
        return [c.advantage for c in build(Config(baseline=baseline), RUN).credit(groups, Signals())]

    # Others: 1 - 0.125, 0.25 - 0.5, 0 - 0.625. All, 1.25 / 3: two thirds of that.
    assert found("others") == pytest.approx([0.875, -0.25, -0.625], rel=1e-12)
    assert found("batch") == pytest.approx([1.75 / 3, -0.5 / 3, -1.25 / 3], rel=1e-12)
    assert found("none") == [1.0, 0.25, 0.0]


@pytest.mark.parametrize(("baseline", "factor"), [("others", 1.0), ("batch", 0.5), ("none", 1.0)])
def test_on_a_bandit_the_expected_gradient_is_that_of_the_expected_reward(baseline, factor):
    # Three arms, two draws per batch: every batch is enumerated with its probability, so nothing is sampled.
    # A baseline that contains the draw itself shrinks the gradient by (n - 1) / n = 1/2.
    logits = torch.tensor([0.3, -0.5, 1.1], dtype=torch.float64, requires_grad=True)
    rewards = (1.0, 0.0, 0.25)
    logprobs = torch.log_softmax(logits, dim=0)
    (exact,) = torch.autograd.grad(
        (logprobs.exp() * torch.tensor(rewards, dtype=torch.float64)).sum(), logits, retain_graph=True
    )
    method, total = build(Config(baseline=baseline), RUN), torch.zeros(3, dtype=torch.float64)
    for first, second in itertools.product(range(3), repeat=2):
        groups = [
            a_group(a_trace(str(i), reward=rewards[arm], policy=1)) for i, arm in ((0, first), (1, second))
        ]
        advantages = [float(c.advantage) for c in method.credit(groups, Signals())]
        loss = -(advantages[0] * logprobs[first] + advantages[1] * logprobs[second]) / 2
        (found,) = torch.autograd.grad(loss, logits, retain_graph=True)
        total += float((logprobs[first] + logprobs[second]).detach().exp()) * -found
    assert total.tolist() == pytest.approx((factor * exact).tolist(), rel=1e-9)
