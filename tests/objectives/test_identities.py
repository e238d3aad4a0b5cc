"""The identity book: two roads to one number, one line of mathematics per test.

Driven through the tiny model, so that gradients are those of real parameters. The coefficient form is
L = -sum_t share_t sg[a_t] log p_t, and has exactly the gradient of the method at the current weights.
"""

# long: the identity book is one file
from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import pytest
import torch
from tests.objectives.tables import a_batch, marks, numbers, said, slope
from torch import Tensor

from bimetal.core.batch import Batch, PolicyOutput
from bimetal.core.catalogue import find
from bimetal.core.types import Group, Origin, Status, Stream, Verdict
from bimetal.data.microbatch import Piece
from bimetal.objectives.aggregate import sequence_mean, token_mean
from bimetal.objectives.compose import Term, shares
from bimetal.objectives.controller import value_of
from bimetal.objectives.credit import imitation
from bimetal.objectives.gate import clip, no_gate
from bimetal.objectives.loss import CrossEntropy, Divergence, PolicyGradient
from bimetal.objectives.method import Method, RunShape
from bimetal.objectives.mix import demonstration_only
from bimetal.objectives.ratio import over_old, over_one, over_self, sequence_over_old
from bimetal.objectives.update import Gradients
from bimetal.objectives.weight import probability
from bimetal.testing.scene import Drift, Scene, cut_gradients, drafted_groups, scene, stage
from bimetal.testing.tiny import random_groups
from bimetal.trainer.roles import CRITIC, POLICY
from bimetal.trainer.step import run

RUN = RunShape(max_response_tokens=12, group_size=4)
PROGRESS = 0.3


def method_of(name: str, **options) -> Method:
    """A method of the catalogue."""
    entry = find("methods", name)
    return entry.module.build(entry.module.Config(**{**entry.options, **options}), RUN)


def gradient(whole: Scene, role: str = POLICY, *, progress: float = PROGRESS) -> Gradients:
    """The step's gradient, in two pieces."""
    batch = whole.batch()
    half = batch.size // 2
    pieces = [Piece(rows=tuple(range(half))), Piece(rows=tuple(range(half, batch.size)))]
    return cut_gradients(whole, batch, pieces, progress=progress)[role]


def assert_equal(one: Gradients, other: Gradients, *, scale: float | None = None) -> None:
    """Equal within 1e-9 of their length, or of ``scale`` where they are sums that cancel."""
    size = one.norm() if scale is None else scale
    assert size > 0
    assert one.plus(other, -1.0).norm() <= 1e-9 * size


def with_terms(whole: Scene, *terms: Term) -> Scene:
    """The same scene with other terms of the same names."""
    return dataclasses.replace(whole, method=dataclasses.replace(whole.method, terms=terms))


# ---- coefficient equality, for every method --------------------------------------------------------------


def p_of(said: PolicyOutput) -> Tensor:
    return said.logprobs.exp()


def rho_of(batch: Batch, said: PolicyOutput) -> Tensor:
    return (said.logprobs - batch.old_logprobs).exp()


def clipped_coefficient(batch: Batch, said: PolicyOutput) -> Tensor:
    """S A p / q with q = p_old and the PPO mask S of the notes."""
    rho, a = rho_of(batch, said), batch.advantages
    shut = ((a > 0) & (rho > 1.2)) | ((a < 0) & (rho < 0.8))
    return torch.where(shut, 0.0, a * rho)


def k3_coefficient(batch: Batch, said: PolicyOutput) -> Tensor:
    """Minus d k3 / d log p = q / p - 1."""
    return (batch.reference_logprobs - said.logprobs).exp() - 1


CLOSED_FORMS = {
    "sft": {"imitation": lambda batch, said: torch.ones_like(said.logprobs)},
    "grpo": {"rl": clipped_coefficient, "divergence": k3_coefficient},
    "dr_grpo": {"rl": clipped_coefficient},
    "ppo": {"rl": clipped_coefficient},
    "chord_mu": {
        "rl": clipped_coefficient,
        "imitation": lambda batch, said: torch.ones_like(said.logprobs),
    },
    "chord_phi": {
        "rl": clipped_coefficient,
        "imitation": lambda batch, said: p_of(said) * (1 - p_of(said)),
    },
    "luffy": {
        "on": lambda batch, said: batch.advantages * rho_of(batch, said),
        "off": lambda batch, said: batch.advantages * 0.1 * p_of(said) / (p_of(said) + 0.1) ** 2,
    },
}
OPTIONS = {"grpo": {"beta": 0.04}, "luffy": {"entropy": 0.0}}


@pytest.mark.parametrize("drift", ["none", "some"])
@pytest.mark.parametrize("name", sorted(CLOSED_FORMS))
def test_the_gradient_is_that_of_the_closed_form_coefficient(name: str, drift: Drift):
    whole = scene(method_of(name, **OPTIONS.get(name, {})), 3, drift=drift)
    policy_terms = [term for term in whole.method.terms if term.role == POLICY]
    assert {term.name for term in policy_terms} == set(CLOSED_FORMS[name])
    batch = whole.batch()
    output = run(whole.models[POLICY], batch, {}, whole.models)
    if batch.old_logprobs is None:
        batch = batch.with_fields(old_logprobs=output.logprobs.detach())
    parts = shares(whole.method.terms, batch)
    loss = torch.zeros((), dtype=torch.float64)
    with torch.no_grad():
        forms = {k: form(batch, output) for k, form in CLOSED_FORMS[name].items()}
    for term in policy_terms:
        c = value_of(term.coefficient, PROGRESS)
        weight = torch.where(batch.members[term.name], c * parts[term.name] * forms[term.name], 0.0)
        loss = loss - (weight * output.logprobs).sum()
    owned = whole.models[POLICY].parameters
    found = torch.autograd.grad(loss, list(owned.values()), allow_unused=True)
    expected = {
        k: torch.zeros_like(p) if g is None else g for (k, p), g in zip(owned.items(), found, strict=True)
    }
    assert_equal(gradient(whole), Gradients(expected))


def test_every_method_of_the_catalogue_has_a_closed_form_here_or_in_its_own_test():
    assert {"sft", "grpo", "dr_grpo", "ppo", "chord_mu", "chord_phi"} <= set(CLOSED_FORMS)


# ---- limits ----------------------------------------------------------------------------------------------


def sft_like(loss) -> Method:
    return Method(
        mix=demonstration_only,
        credit=imitation({"imitation": {Origin.DEMONSTRATION: 1.0}}),
        terms=(Term("imitation", loss, token_mean()),),
    )


def test_sft_is_the_cross_entropy_of_the_framework():
    whole = scene(method_of("sft"), 5)
    batch = whole.batch()
    model = whole.models[POLICY].module.model
    logits = model(input_ids=batch.input_ids, attention_mask=batch.attention.long()).logits
    members = batch.members["imitation"]
    loss = torch.nn.functional.cross_entropy(logits[members], batch.targets[members])
    owned = whole.models[POLICY].parameters
    found = torch.autograd.grad(loss, list(owned.values()))
    assert_equal(gradient(whole), Gradients(dict(zip(owned, found, strict=True))))


def test_a_policy_gradient_over_itself_with_advantage_one_is_sft():
    groups = drafted_groups(demonstration_only, 2)
    one = stage(sft_like(PolicyGradient(over_self, no_gate())), groups, seed=2)
    assert_equal(gradient(one), gradient(stage(method_of("sft"), groups, seed=2)))


def test_a_policy_gradient_over_one_with_advantage_one_is_dft():
    groups = drafted_groups(demonstration_only, 2)
    one = stage(sft_like(PolicyGradient(over_one, no_gate())), groups, seed=2)
    two = stage(sft_like(CrossEntropy(probability)), groups, seed=2)
    assert_equal(gradient(one), gradient(two))


def test_where_the_policy_is_the_old_one_the_clipped_policy_gradient_is_reinforce():
    whole = scene(method_of("grpo"), 4)
    reinforce = with_terms(whole, Term("rl", PolicyGradient(over_self, no_gate()), sequence_mean()))
    assert_equal(gradient(whole), gradient(reinforce))


def test_past_the_first_update_it_is_not_reinforce():
    whole = scene(method_of("grpo"), 4, drift="some")
    reinforce = with_terms(whole, Term("rl", PolicyGradient(over_self, no_gate()), sequence_mean()))
    assert gradient(whole).plus(gradient(reinforce), -1.0).norm() > 0.01 * gradient(whole).norm()


def chord(mu: float, weight: str = "one") -> Method:
    return method_of("chord", peak=mu, valley=mu, rise=0.0, decay=0.0, weight=weight)


def test_chord_at_mu_zero_is_grpo_on_its_rollouts():
    whole = scene(chord(0.0), 6, drift="some")
    free = tuple(g for g in whole.groups if g.prompt.stream is Stream.MAIN)
    assert_equal(gradient(whole), gradient(stage(method_of("grpo"), free, seed=6, drift="some")))


def test_chord_at_mu_one_is_sft_on_its_demonstrations():
    whole = scene(chord(1.0), 6, drift="some")
    shown = tuple(g for g in whole.groups if g.prompt.stream is Stream.DEMONSTRATIONS)
    assert_equal(gradient(whole), gradient(stage(method_of("sft"), shown, seed=6)))


def test_chord_is_linear_in_mu():
    parts = {mu: gradient(scene(chord(mu), 6, drift="some")) for mu in (0.0, 0.25, 1.0)}
    assert_equal(parts[0.25], parts[0.0].scaled(0.75).plus(parts[1.0], 0.25))


def test_dr_grpo_is_rloo_times_a_known_factor():
    whole = scene(method_of("dr_grpo"), 7)
    groups = [g for g in whole.groups if all(t.is_known for t in g.traces)]
    assert groups
    # With G = 4: (G - 1) / G.
    for group in groups:
        rewards = [t.reward for t in group.traces]
        for i, credit in enumerate(whole.method.credit([group], whole.signals)):
            rest = [r for j, r in enumerate(rewards) if j != i]
            assert credit.advantage == pytest.approx(
                0.75 * (rewards[i] - sum(rest) / 3), rel=1e-12, abs=1e-15
            )


# ---- stop-gradient ---------------------------------------------------------------------------------------


@dataclasses.dataclass
class Stored:
    """A cross entropy whose detached weight was stored as numbers."""

    numbers: Tensor
    watch = CrossEntropy().watch

    def __call__(self, batch, policy, members):
        return torch.where(members, -self.numbers * policy.logprobs, 0.0)


def test_replacing_a_detached_weight_by_its_stored_value_changes_no_gradient():
    whole = scene(chord(0.5, "uncertainty"), 8)
    batch = whole.batch()
    output = run(whole.models[POLICY], batch, {}, whole.models)
    rl, demo = whole.method.terms
    stored = demo.loss.weight(batch, output, batch.members["imitation"])
    replaced = with_terms(whole, rl, dataclasses.replace(demo, loss=Stored(stored)))
    one = [Piece(rows=tuple(range(batch.size)))]
    assert_equal(cut_gradients(whole, batch, one)[POLICY], cut_gradients(replaced, batch, one)[POLICY])


def test_replacing_the_old_log_probabilities_of_a_first_update_by_their_stored_value_changes_no_gradient():
    whole = scene(method_of("grpo"), 8)
    batch = whole.batch()
    output = run(whole.models[POLICY], batch, {}, whole.models)
    stored = batch.with_fields(old_logprobs=output.logprobs.detach())
    one = [Piece(rows=tuple(range(batch.size)))]
    assert_equal(cut_gradients(whole, batch, one)[POLICY], cut_gradients(whole, stored, one)[POLICY])


# ---- zero signal and coefficients ------------------------------------------------------------------------


def same_reward(groups: Sequence[Group], reward: float) -> tuple[Group, ...]:
    status = Status.CORRECT if reward == 1.0 else Status.WRONG
    verdict = Verdict(status=status, reward=reward)
    return tuple(
        dataclasses.replace(g, traces=tuple(dataclasses.replace(t, verdict=verdict) for t in g.traces))
        for g in groups
    )


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.3])
@pytest.mark.parametrize(
    ("name", "kept"), [("grpo", ()), ("dr_grpo", ()), ("chord", ("imitation",)), ("luffy", ())]
)
def test_uniform_rewards_leave_exactly_the_imitation_gradient(name, kept, reward):
    method = method_of(name, **OPTIONS.get(name, {}) if name == "luffy" else {})
    groups = same_reward(drafted_groups(method.mix, 9), reward)
    whole = stage(method, groups, seed=9, drift="some")
    found = gradient(whole)
    if not kept:
        assert found.norm() == 0.0
        return
    silent = [t if t.name in kept else dataclasses.replace(t, coefficient=0.0) for t in method.terms]
    alone = gradient(with_terms(whole, *silent))
    assert alone.norm() > 0
    assert found.plus(alone, -1.0).norm() == 0.0


def test_no_demonstrations_leave_exactly_the_rl_gradient():
    whole = scene(chord(0.25), 10, drift="some")
    free = tuple(g for g in whole.groups if g.prompt.stream is Stream.MAIN)
    alone = stage(chord(0.25), free, seed=10, drift="some")
    rl = stage(method_of("grpo"), free, seed=10, drift="some")
    assert_equal(gradient(alone), gradient(rl).scaled(0.75))


def test_adding_demonstration_rows_leaves_the_gradient_on_rollout_tokens_unchanged():
    free = tuple(random_groups(11, demonstrations=False))
    shown = tuple(g for g in random_groups(11, groups=12) if g.prompt.stream is Stream.DEMONSTRATIONS)
    few, many = (stage(chord(0.25), (*free, *extra), seed=11) for extra in (shown[:1], shown))

    def on_rollouts(whole: Scene) -> Gradients:
        silent = (whole.method.terms[0], dataclasses.replace(whole.method.terms[1], coefficient=0.0))
        return gradient(with_terms(whole, *silent))

    assert len(shown) > 1
    assert_equal(on_rollouts(few), on_rollouts(many))


@pytest.mark.parametrize("name", ["grpo", "chord", "luffy", "ppo"])
def test_doubling_coefficients_doubles_the_gradient(name):
    whole = scene(method_of(name), 12, drift="some")
    doubled = with_terms(
        whole,
        *(
            dataclasses.replace(t, coefficient=2 * value_of(t.coefficient, PROGRESS))
            for t in whole.method.terms
        ),
    )
    for role in whole.models.trained:
        assert_equal(gradient(doubled, role), gradient(whole, role).scaled(2.0))


def test_doubling_weights_doubles_the_gradient():
    whole = scene(method_of("sft"), 12)
    heavy = tuple(
        dataclasses.replace(c, weights=tuple(dataclasses.replace(w, weight=2.0) for w in c.weights))
        for c in whole.credits
    )
    assert_equal(gradient(dataclasses.replace(whole, credits=heavy)), gradient(whole).scaled(2.0))


@pytest.mark.parametrize("name", ["chord", "luffy"])
def test_a_zero_coefficient_is_a_deleted_term_where_pools_are_its_own(name):
    whole = scene(method_of(name), 13, drift="some")
    *rest, last = whole.method.terms
    assert last.pool == ""
    zero = with_terms(whole, *rest, dataclasses.replace(last, coefficient=0.0))
    unrouted = tuple(
        dataclasses.replace(c, weights=tuple(w for w in c.weights if w.term != last.name))
        for c in whole.credits
    )
    deleted = dataclasses.replace(with_terms(whole, *rest), credits=unrouted)
    assert_equal(gradient(zero), gradient(deleted))


def test_the_critics_term_does_not_move_the_policy_and_the_policys_not_the_critic():
    whole = scene(method_of("ppo"), 14, drift="some")
    rl, value = whole.method.terms
    no_value = with_terms(whole, rl, dataclasses.replace(value, coefficient=0.0))
    assert_equal(gradient(whole, POLICY), gradient(no_value, POLICY))
    assert gradient(whole, CRITIC).norm() > 0
    assert gradient(no_value, CRITIC).norm() == 0.0


# ---- ratios and divergences ------------------------------------------------------------------------------


def test_the_sequence_ratio_of_a_one_token_sequence_is_its_token_ratio():
    batch = a_batch({"k": [[1, 0], [0, 1]]}, old_logprobs=[[-1.0, -9.0], [-9.0, -0.5]])
    policy, members = said([[-0.7, -3.0], [-4.0, -2.5]]), batch.members["k"]
    tokens, sequences = over_old(batch, policy, members), sequence_over_old(batch, policy, members)
    assert sequences.tolist() == [pytest.approx(row, rel=1e-12) for row in tokens.tolist()]
    assert slope(sequences, policy.logprobs) == slope(tokens, policy.logprobs)


def test_a_gate_is_shut_exactly_where_the_loss_has_no_slope():
    batch = a_batch(
        {"k": [[1] * 6]}, advantages=[[1, 1, 1, -1, -1, -1]], old_logprobs=[[-1.0] * 6]
    )  # fmt: skip
    policy, members = said([[-1.5, -1.0, -0.5, -1.5, -1.0, -0.5]]), batch.members["k"]
    loss = PolicyGradient(over_old, clip(0.2, 0.2))
    shut = loss.watch(batch, policy, members)["gate/closed_share"][0].tolist()
    assert shut == [float(g == 0) for g in slope(loss(batch, policy, members), policy.logprobs)[0]]
    assert sum(shut) == 2


MINE, THEIRS = (0.5, 0.3, 0.2), (0.2, 0.2, 0.6)
KL_MINE = sum(p * math.log(p / q) for p, q in zip(MINE, THEIRS, strict=True))
KL_THEIRS = sum(q * math.log(q / p) for p, q in zip(MINE, THEIRS, strict=True))


def estimated(estimator: str) -> tuple[Tensor, Tensor, Tensor]:
    """Estimates at every token of the small vocabulary, the logits, and the probabilities (detached)."""
    logits = torch.tensor(MINE, dtype=torch.float64).log().requires_grad_()
    logprobs = torch.log_softmax(logits, dim=0).unsqueeze(0)
    reference = [[math.log(q) for q in THEIRS]]
    batch = a_batch({"k": [[1, 1, 1]]}, reference_logprobs=reference)
    loss = Divergence(estimator)(batch, PolicyOutput(logprobs=logprobs), marks([[1, 1, 1]]))
    return loss[0], logits, numbers([MINE])[0]


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_k1_and_k3_are_the_divergence_in_expectation(estimator):
    loss, _, p = estimated(estimator)
    assert float((p * loss).sum().detach()) == pytest.approx(KL_MINE, rel=1e-12)


def test_expected_slopes_of_the_estimators_are_those_of_the_notes():
    p, q = numbers([MINE])[0], numbers([THEIRS])[0]
    reverse = p * ((p / q).log() - KL_MINE)  # d KL(p || q) / d logits
    forward = p - q  # d KL(q || p) / d logits
    for estimator, expected in (("k1", torch.zeros(3)), ("k2", reverse), ("k3", forward)):
        loss, logits, weights = estimated(estimator)
        (found,) = torch.autograd.grad((weights * loss).sum(), logits)
        assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-12)


def test_k3_is_never_negative_and_zero_at_equality():
    gaps = [[-5.0, -0.1, -1e-9, 0.0, 1e-9, 0.1, 5.0]]
    batch = a_batch({"k": [[1] * 7]}, reference_logprobs=gaps)
    value = Divergence("k3")(batch, said([[0.0] * 7]), batch.members["k"])[0].tolist()
    assert min(value) >= 0.0
    assert value[3] == 0.0
    assert value[0] == pytest.approx(math.exp(-5) - 1 + 5, rel=1e-12)  # log ratio 0 - (-5) = 5
