"""Chunk functions through the policy: equal to the full logits, in value and gradient, for any chunk size."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from tests.trainer.test_step import a_model, rows_of, stepped

from bimetal.core.errors import ConfigError
from bimetal.core.types import Signals
from bimetal.data.collate import collate
from bimetal.methods import sft
from bimetal.objectives.aggregate import token_mean
from bimetal.objectives.compose import Term
from bimetal.objectives.logprobs import (
    Statistic,
    argmax_token,
    divergence_from_other,
    divergence_to_other,
    entropy,
    top_k_mass,
)
from bimetal.objectives.loss import CrossEntropy, StatisticLoss
from bimetal.objectives.method import RunShape
from bimetal.testing.tiny import tiny_policy
from bimetal.trainer.policy import ENTROPY, CausalPolicy, Critic, Other, reduce_chunks
from bimetal.trainer.roles import REFERENCE, frozen_role
from bimetal.trainer.step import STEP, StepShape, run, take_step

STATISTICS = {
    "spread": Statistic(entropy),
    "from": Statistic(divergence_from_other, other=REFERENCE),
    "to": Statistic(divergence_to_other, other=REFERENCE),
    "mass": Statistic(top_k_mass(3)),
    "hit": Statistic(argmax_token),
}


def a_batch(temperature: float = 1.0):
    batch = collate(rows_of([4, 7, 2]), terms=("imitation",), signals=Signals(), dtype=torch.float64)
    return batch.with_fields(temperature=torch.full_like(batch.temperature, temperature))


def in_full(policy: CausalPolicy, reference: CausalPolicy, batch):
    """The same numbers from whole logits, at every position of the response."""
    rows = [
        p.model(input_ids=batch.input_ids, attention_mask=batch.attention.long()).logits[batch.mask]
        / batch.temperature[batch.mask].unsqueeze(-1)
        for p in (policy, reference)
    ]
    mine, theirs = (torch.log_softmax(row, dim=-1) for row in rows)
    targets = batch.targets[batch.mask]
    p, q = mine.exp(), theirs.detach().exp()
    return {
        "logprobs": mine.gather(-1, targets.unsqueeze(-1)).squeeze(-1),
        "spread": -(p * mine).sum(-1),
        "from": (p * (mine - theirs.detach())).sum(-1),
        "to": (q * (theirs.detach() - mine)).sum(-1),
        "mass": p.sort(dim=-1, descending=True).values[:, :3].sum(-1),
        "hit": (mine.argmax(-1) == targets).double(),
    }


@pytest.mark.parametrize("chunk", [1, 3, 13, 1000])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_statistics_in_chunks_equal_those_of_full_logits_in_value_and_gradient(chunk, temperature):
    policy, reference, batch = tiny_policy(1, scale=2.0), tiny_policy(2, scale=2.0), a_batch(temperature)
    expected = in_full(policy, reference, batch)
    with torch.no_grad():
        other = Other(reference.hidden(batch), reference.head)
    columns = reduce_chunks(
        policy.hidden(batch), policy.head, batch.targets[batch.mask],
        temperature=batch.temperature[batch.mask], functions=tuple(STATISTICS.values()),
        others={REFERENCE: other}, chunk=chunk,
    )  # fmt: skip
    found = dict(zip(("logprobs", "entropy", *STATISTICS), columns, strict=True))
    assert not found.pop("entropy").requires_grad
    noise = torch.linspace(-1, 2, len(expected["logprobs"]), dtype=torch.float64)
    weights = list(policy.parameters())
    for name, value in found.items():
        assert value.tolist() == pytest.approx(expected[name].tolist(), rel=1e-9, abs=1e-12)
        if name == "hit":
            continue
        one, two = (
            torch.autograd.grad((noise * x).sum(), weights, allow_unused=True, retain_graph=True)
            for x in (value, expected[name])
        )
        for a, b in zip(one, two, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert float((a - b).norm()) <= 1e-9 * max(float(b.norm()), 1e-3)


class SmallChunks(CausalPolicy):
    """Five positions' logits at once."""

    chunk_positions = 5


def test_an_entropy_bonus_and_a_divergence_through_the_step_equal_the_full_logits():
    reference = tiny_policy(2, scale=2.0)
    method = sft.build(sft.Config(), RunShape(max_response_tokens=8))
    terms = (
        Term("imitation", CrossEntropy(), token_mean()),
        Term("bonus", StatisticLoss("spread", sign=-1.0), token_mean(), 0.1),
        Term("pull", StatisticLoss("from"), token_mean(), 0.2),
        Term("mass", StatisticLoss("mass"), token_mean(), 0.3),
    )
    declared = {name: STATISTICS[name] for name in ("spread", "from", "mass")}
    method = dataclasses.replace(method, terms=terms, statistics=declared)
    models = a_model(1)
    models[POLICY_NAME].module = SmallChunks(models[POLICY_NAME].module.model)
    models.roles[REFERENCE] = frozen_role(REFERENCE, reference)
    batch = a_batch()
    batch = dataclasses.replace(
        batch,
        members={t.name: batch.members["imitation"] for t in terms},
        weights={t.name: batch.weights["imitation"] for t in terms},
    )
    policy = models[POLICY_NAME].module
    full = in_full(policy, reference, batch)
    loss = (-full["logprobs"] - 0.1 * full["spread"] + 0.2 * full["from"] + 0.3 * full["mass"]).mean()
    wanted = -torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(policy.parameters()))])
    change, metrics = stepped(batch, method=method, models=models, tokens=16)
    assert float((change - wanted).norm()) <= 1e-9 * float(wanted.norm())
    value = sum(metrics.value(f"term/{t.name}/loss") * metrics.value(f"controller/{t.name}") for t in terms)
    assert value == pytest.approx(float(loss.detach()), rel=1e-9)


POLICY_NAME = "policy"


def test_the_entropy_is_reported_without_being_declared():
    policy, batch = tiny_policy(1), a_batch()
    output = policy(batch, {}, {})
    assert list(output.statistics) == [ENTROPY]
    assert not output.statistics[ENTROPY].requires_grad
    assert bool((output.statistics[ENTROPY][~batch.mask] == 0).all())
    assert bool((output.logprobs[~batch.mask] == 0).all())


def test_a_statistic_that_compares_with_a_missing_role_says_so():
    models = a_model()
    with pytest.raises((ConfigError, KeyError), match="reference"):
        run(models["policy"], a_batch(), {"from": STATISTICS["from"]}, models)


def test_a_batch_without_response_positions_gives_zeros_and_a_gradient_path():
    policy, batch = tiny_policy(1), a_batch()
    empty = dataclasses.replace(batch, mask=torch.zeros_like(batch.mask))
    output = policy(empty, {}, {})
    assert output.logprobs.tolist() == torch.zeros(batch.mask.shape).tolist()
    output.logprobs.sum().backward()


def test_a_fresh_critic_says_zero_and_shares_nothing_with_the_policy():
    policy, batch = tiny_policy(1), a_batch()
    critic = Critic(policy)
    output = critic(batch, {}, {})
    assert output.values is not None
    assert output.values.abs().max() == 0
    assert output.values.dtype is torch.float64
    owned = {p.data_ptr() for p in policy.parameters()}
    assert not owned & {p.data_ptr() for p in critic.parameters()}


def test_the_logits_of_the_tiny_model_are_its_head_on_its_hidden_states():
    tiny_policy(1).check_head()


def test_a_float32_model_reports_float32():
    policy = tiny_policy(1, dtype=torch.float32)
    batch = collate(rows_of([4]), terms=("imitation",), signals=Signals())
    assert policy(batch, {}, {}).logprobs.dtype is torch.float32


def test_a_step_reports_the_entropy_of_rollouts_only():
    batch = a_batch()
    models = a_model(1)
    method = sft.build(sft.Config(), RunShape(max_response_tokens=8))
    seen = take_step(models, method, {STEP: batch}, progress=0.0, shape=StepShape(micro_batch_tokens=100))
    assert seen.value("policy/entropy") is None
    written = dataclasses.replace(batch, origin=torch.where(batch.mask, 1, batch.origin))
    fresh = a_model(1)
    expected = run(fresh["policy"], written, {}, fresh).statistics[ENTROPY][written.mask].mean()
    seen = take_step(fresh, method, {STEP: written}, progress=0.0, shape=StepShape(micro_batch_tokens=10))
    assert seen.value("policy/entropy") == pytest.approx(float(expected), rel=1e-9)
