"""The conformance suite of ``bimetal.testing.methods`` over every method that the catalogue finds."""

from __future__ import annotations

import dataclasses
from types import ModuleType

import pytest

from bimetal.core.catalogue import names
from bimetal.objectives.aggregate import sequence_mean
from bimetal.objectives.loss import only
from bimetal.objectives.method import Method
from bimetal.testing.methods import CHECKS, Candidate, Check, candidates, check_no_gradient_outside_members
from bimetal.testing.methods import check_gradient_ignores_the_cut as check_cut

# Options that open a branch the defaults leave shut; a method that is not listed runs with its defaults.
FURTHER = {
    "grpo": [
        {"beta": 0.04},
        {"beta": 0.04, "estimator": "k2"},
        {"beta": 0.04, "estimator": "weighted_k3", "correction": "truncated_sequence"},
        {"correction": "banded"},
    ],
    "rloo": [{"ratio": "token", "beta": 0.03}, {"ratio": "none"}],
    "reinforce": [{"correction": "sequence", "cap": 2.0}, {"baseline": "none", "correction": "token"}],
    "reinforce_pp": [{"beta": 0.05, "discount": 0.9}],
    "dapo": [{"overlong": "filter", "correction": "decoupled"}],
    "c3po": [{"budget": 60}],
    "expert_iteration": [{"kept": 1, "prefer": "shortest"}],
    "dpo": [{"imitation": 0.2, "smoothing": 0.1}, {"pairs": "offline", "loss": "squared"}],
    "ppo": [{"dual_clip": 3.0, "value_clip": 0.2, "trace_decay": 0.95, "discount": 0.99}],
    "sft": [{"aggregate": "sequence_mean"}, {"aggregate": "sequence_sum"}],
    "dft": [{"anchor": 0.1, "direction": "reverse"}],
    "iw_sft": [{"power": 2.0, "aggregate": "sequence_sum"}],
    "stm": [{"keep": "unlikely"}],
    "c_rlft": [{"balance": "sequence"}],
    "on_policy_sft": [{"aggregate": "sequence_mean"}],
    "superhf": [{"beta": 0.0}, {"aggregate": "sequence_sum", "least_reward": 1.0}],
    "rrhf": [{"power": 0.5, "weight": 100.0}],
    "chord": [{"rl_aggregate": "token_mean", "rise": 0.5}],
}

FOUND = candidates()
BY_NAME = {candidate.name: candidate for candidate in FOUND}
ALL = [
    *FOUND,
    *(
        dataclasses.replace(BY_NAME[name], name=f"{name}-{number}", options=options)
        for name, variants in FURTHER.items()
        for number, options in enumerate(variants)
        if name in BY_NAME
    ),
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("candidate", ALL, ids=lambda candidate: candidate.name)
def test_method_keeps_its_promises(candidate: Candidate, check: Check):
    check(candidate, 0)


def test_every_file_in_the_catalogue_is_checked():
    assert set(names("methods")) <= set(BY_NAME)
    assert {"chord_mu", "chord_phi"} <= set(BY_NAME)


def _broken(change) -> Candidate:
    """GRPO with one thing wrong, so that the suite is seen to fail."""

    grpo, module = BY_NAME["grpo"].module, ModuleType("broken")
    module.Config = grpo.Config
    module.build = lambda options, run: change(grpo.build(options, run))
    return Candidate(name="broken", module=module)


def test_suite_catches_a_mean_inside_a_loss():
    def change(method: Method) -> Method:
        (term,) = method.terms
        inner = term.loss

        class Averaged:
            def __call__(self, batch, policy, members):
                loss = inner(batch, policy, members)
                return only(members, loss / members.sum().clamp(min=1) + 0 * loss)

            watch = inner.watch

        return dataclasses.replace(method, terms=(dataclasses.replace(term, loss=Averaged()),))

    with pytest.raises(AssertionError, match="differ by"):
        check_cut(_broken(change), 0)


def test_suite_catches_a_look_outside_the_members():
    def change(method: Method) -> Method:
        (term,) = method.terms
        inner = term.loss

        class Leaky:
            def __call__(self, batch, policy, members):
                whole = policy.logprobs.nan_to_num(0.0, 0.0, 0.0).sum(dim=1, keepdim=True)
                return only(members, inner(batch, policy, members) * (1 + 0.01 * whole))

            watch = inner.watch

        return dataclasses.replace(
            method, terms=(dataclasses.replace(term, loss=Leaky(), aggregate=sequence_mean()),)
        )

    with pytest.raises(AssertionError, match="outside its members"):
        check_no_gradient_outside_members(_broken(change), 0)
