"""How a rule asks for gradients by term, batch and role: toys of four kinds, driven through the real step."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from tests.trainer.test_step import SFT, a_model, assert_close, rows_of, stepped, two_term_batch, two_terms
from torch import nn

from bimetal.core.batch import PolicyOutput
from bimetal.core.types import Credit, SegmentWeight, Signals
from bimetal.data.collate import collate
from bimetal.objectives.aggregate import token_mean
from bimetal.objectives.compose import Term
from bimetal.objectives.loss import CrossEntropy
from bimetal.objectives.update import Change, Gradients, Update, drop_on_conflict
from bimetal.trainer.optimizer import LearningRate, RoleOptimizer
from bimetal.trainer.roles import POLICY, Models, Role
from bimetal.trainer.step import STEP, StepShape, take_step

SHAPE = StepShape(micro_batch_tokens=10)


class Conflict(nn.Module):
    """A model of two weights whose log-probability of a token is w0 in rows 0 and 1, at an angle after."""

    def __init__(self, cosine: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(2, dtype=torch.float64))
        self.direction = torch.tensor([cosine, (1 - cosine**2) ** 0.5], dtype=torch.float64)

    def forward(self, batch, statistics, others) -> PolicyOutput:
        first = self.w[0].expand(batch.mask.shape)
        second = (self.w @ self.direction).expand(batch.mask.shape)
        return PolicyOutput(logprobs=torch.where(batch.members["imitation"], first, second))


@pytest.mark.parametrize(("cosine", "expected"), [(0.6, (1.3, 0.4)), (-0.6, (1.0, 0.0))])
def test_drop_on_conflict_drops_by_the_sign_of_the_cosine(cosine, expected):
    model = Conflict(cosine)
    role = Role(name=POLICY, module=model, parameters={"w": model.w})
    role.optimizer = RoleOptimizer(role.parameters, name="sgd", rate=LearningRate(peak=1.0))
    method = two_terms(drop_on_conflict(keep="imitation", drop="other"))
    take_step(Models({POLICY: role}), method, {STEP: two_term_batch()}, progress=0.0, shape=SHAPE)
    # "imitation" pulls along (1, 0), "other" with coefficient 0.5 along (cosine, 0.8): 1 + 0.3 and 0.4, or
    # nothing of it.
    assert model.w.tolist() == pytest.approx(expected, rel=1e-12)


def test_drop_on_conflict_on_the_real_model_is_one_of_its_two_branches():
    ask_both, _ = stepped(two_term_batch(), method=two_terms())
    keep_only, _ = stepped(
        two_term_batch(), method=two_terms(Update(lambda a: {POLICY: a.gradients(terms=("imitation",))}))
    )
    other = ask_both - keep_only
    found, _ = stepped(two_term_batch(), method=two_terms(drop_on_conflict(keep="imitation", drop="other")))
    assert_close(found, keep_only if float(keep_only @ other) < 0 else ask_both)


class Adapted(nn.Module):
    """A base weight plus a shared adapter: every token's log-probability is -(base + adapter - target)^2."""

    def __init__(self, base: nn.Parameter, adapter: nn.Parameter, target: float) -> None:
        super().__init__()
        self.base, self.adapter, self.target = base, adapter, target

    def forward(self, batch, statistics, others) -> PolicyOutput:
        loss = (self.base + self.adapter - self.target) ** 2
        return PolicyOutput(logprobs=-loss.expand(batch.mask.shape))


def test_a_bilevel_rule_differentiates_shared_adapters_through_student_and_shadow():
    # Student base 1, shadow base 3, adapter 0.5 shared by both; the loss of a module is (base + adapter)^2.
    student, shadow, adapter = (nn.Parameter(torch.tensor(x, dtype=torch.float64)) for x in (1.0, 3.0, 0.5))
    roles = {
        POLICY: Role(name=POLICY, module=Adapted(student, adapter, 0.0), parameters={"base": student}),
        "shadow": Role(name="shadow", module=Adapted(shadow, adapter, 0.0), parameters={"base": shadow}),
        "adapters": Role(name="adapters", module=None, parameters={"a": adapter}),
    }
    for role in roles.values():
        role.optimizer = RoleOptimizer(role.parameters, name="sgd", rate=LearningRate(peak=0.1))

    def bilevel(ask):
        terms = ("imitation",)
        upper = ask.gradients(terms=terms, role="adapters", through=POLICY)
        lower = ask.gradients(terms=terms, role="adapters", through="shadow")
        return {
            POLICY: ask.gradients(terms=terms),
            "shadow": ask.gradients(terms=terms, role="shadow"),
            "adapters": upper.plus(lower, -0.5),
        }

    method = dataclasses.replace(SFT, update=Update(bilevel))
    batch = collate(rows_of([3, 5]), terms=("imitation",), signals=Signals(), dtype=torch.float64)
    metrics = take_step(Models(roles), method, {STEP: batch}, progress=0.0, shape=SHAPE)
    # d (b + a)^2 = 2 (b + a): 3 through the student, 7 through the shadow; adapters 3 - 0.5 * 7 = -0.5.
    assert float(student.detach()) == pytest.approx(1.0 - 0.1 * 3, rel=1e-12)
    assert float(shadow.detach()) == pytest.approx(3.0 - 0.1 * 7, rel=1e-12)
    assert float(adapter.detach()) == pytest.approx(0.5 + 0.1 * 0.5, rel=1e-12)
    assert metrics.value("gradient/adapters_norm") == pytest.approx(0.5, rel=1e-12)
    # Asking for one term four times, through two modules, reports its loss once: (1.5)^2.
    assert metrics.value("term/imitation/loss") == pytest.approx(2.25, rel=1e-12)


def test_a_meta_gradient_reads_a_probe_batch_with_denominators_of_its_own():
    models = a_model()
    step = two_term_batch()
    credit = [
        dataclasses.replace(
            r, credit=Credit(trace_id=r.trace.id, weights=(SegmentWeight(term="other", segment=1),))
        )
        for r in rows_of([6, 9])
    ]
    probe = collate(credit, terms=("imitation", "other"), signals=Signals(), dtype=torch.float64)
    seen: dict[str, Gradients] = {}

    def meta(ask):
        # The weight of "other" grows where its gradient helps on the probe batch.
        seen["probe"] = ask.gradients(terms=("other",), batch="probe")
        seen["other"] = ask.gradients(terms=("other",))
        seen["imitation"] = ask.gradients(terms=("imitation",))
        gain = seen["probe"].dot(seen["other"])
        return {POLICY: seen["imitation"].plus(seen["other"], 1.0 if gain > 0 else 0.0)}

    method = two_terms(Update(meta))
    metrics = take_step(models, method, {STEP: step, "probe": probe}, progress=0.0, shape=SHAPE)
    alone = {}

    def remember(ask):
        alone["found"] = ask.gradients(terms=("other",))
        return {POLICY: alone["found"]}

    # The probe's gradient is that of a step of its own: 15 tokens, whatever the step's batch counts.
    take_step(a_model(), two_terms(Update(remember)), {STEP: probe}, progress=0.0, shape=SHAPE)
    assert seen["probe"].plus(alone["found"], -1.0).norm() <= 1e-9 * alone["found"].norm()
    # Probe rows enter no metric of the step: rows 2 and 3 of the step have 8 + 2 tokens of "other".
    assert metrics.value("term/other/tokens") == 10


def test_the_parameters_hook_merges_toward_a_direction():
    models = a_model()
    batch = two_term_batch()
    plainly, _ = stepped(batch, method=two_terms())
    start = {k: p.detach().clone() for k, p in models[POLICY].parameters.items()}
    toward = {k: torch.full_like(p, 0.5) for k, p in start.items()}

    def merge(change: Change) -> None:
        assert change.role == POLICY
        for name, after in change.after.items():
            after.lerp_(change.before[name] + toward[name], 0.25)

    method = two_terms()
    merged = dataclasses.replace(method, update=dataclasses.replace(method.update, parameters=merge))
    found, _ = stepped(batch, method=merged, models=models)
    # after = 3/4 (before + step) + 1/4 (before + 0.5): the change is 3/4 of the step plus 1/8.
    assert_close(found, 0.75 * plainly + 0.125)


def test_the_parameters_hook_sees_what_stood_before():
    models = a_model()
    start = copy.deepcopy({k: p.detach() for k, p in models[POLICY].parameters.items()})

    def undo(change: Change) -> None:
        for name, after in change.after.items():
            assert torch.equal(change.before[name], start[name])
            after.copy_(change.before[name])

    method = two_terms()
    frozen = dataclasses.replace(method, update=dataclasses.replace(method.update, parameters=undo))
    found, metrics = stepped(two_term_batch(), method=frozen, models=models)
    assert float(found.abs().max()) == 0.0
    assert metrics.value("gradient/norm") > 0


def test_roles_are_those_that_train_and_that_a_term_reads():
    models = a_model()
    models.roles["idle"] = dataclasses.replace(models[POLICY], name="idle")
    seen: list[tuple[str, ...]] = []

    def look(ask):
        seen.append(ask.roles())
        return {POLICY: ask.gradients()}

    terms = (Term("imitation", CrossEntropy(), token_mean()),)
    batch = collate(rows_of([3]), terms=("imitation",), signals=Signals(), dtype=torch.float64)
    stepped(batch, method=dataclasses.replace(SFT, terms=terms, update=Update(look)), models=models)
    assert seen == [(POLICY,)]
