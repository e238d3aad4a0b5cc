"""Acceptance tests of the optimizer step: SGD with learning rate 1, float64, no clipping unless stated."""

# long: the acceptance tests of the trainer are one list
from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from bimetal.core.batch import Batch, PolicyOutput
from bimetal.core.errors import NonFiniteError
from bimetal.core.streams import Streams, permutation
from bimetal.core.types import (
    Credit,
    Draft,
    Finish,
    Origin,
    PromptId,
    Segment,
    SegmentWeight,
    Signals,
    Trace,
    TraceId,
)
from bimetal.data.collate import Row, collate
from bimetal.data.microbatch import Piece
from bimetal.methods import sft
from bimetal.objectives.aggregate import token_mean
from bimetal.objectives.compose import Term
from bimetal.objectives.loss import CrossEntropy, only
from bimetal.objectives.method import Method, RunShape
from bimetal.objectives.update import Gradients, Update
from bimetal.testing.scene import Scene, asked, cut_gradients
from bimetal.testing.tiny import tiny_policy
from bimetal.trainer.optimizer import LearningRate, RoleOptimizer
from bimetal.trainer.roles import POLICY, Models, role_of
from bimetal.trainer.step import STEP, StepShape, take_step

SFT = sft.build(sft.Config(), RunShape(max_response_tokens=32))


def a_model(seed: int = 0, *, clip_norm: float = math.inf, rate: float = 1.0) -> Models:
    policy = role_of(POLICY, tiny_policy(seed, scale=2.0))
    policy.optimizer = RoleOptimizer(
        policy.parameters, name="sgd", rate=LearningRate(peak=rate), clip_norm=clip_norm
    )
    return Models({POLICY: policy})


def a_trace(name: str, tokens: int, *, seed: int = 0) -> Trace:
    noise = Streams(seed).generator("step-test", name)
    ids = tuple(int(i) for i in noise.integers(0, 23, tokens + 2))
    head = Segment(origin=Origin.PROMPT, token_ids=ids[:2])
    body = Segment(origin=Origin.DEMONSTRATION, token_ids=ids[2:])
    return Trace(
        id=TraceId(name), prompt_id=PromptId(name), domain="d", visit=0, member=0, draft=Draft(),
        contexts=((head, body),), finish=Finish.STOP,
    )  # fmt: skip


def rows_of(lengths: Sequence[int], weights: Sequence[float] | None = None) -> list[Row]:
    """One demonstration per length; each row's tokens have one weight in the term."""
    given = [1.0] * len(lengths) if weights is None else weights
    return [
        Row(
            trace=(trace := a_trace(f"t{i}", n)),
            credit=Credit(trace_id=trace.id, weights=(SegmentWeight(term="imitation", segment=1, weight=w),)),
            group=i,
        )
        for i, (n, w) in enumerate(zip(lengths, given, strict=True))
    ]


def a_batch(rows: Sequence[Row], *, terms: Sequence[str] = ("imitation",)) -> Batch:
    return collate(rows, terms=terms, signals=Signals(), dtype=torch.float64)


def stepped(batch: Batch, *, tokens: int = 10**6, method: Method = SFT, models: Models | None = None):
    """The change of every parameter, as one vector, and the metrics."""
    models = models or a_model()
    owned = list(models[POLICY].parameters.values())
    before = [p.detach().clone() for p in owned]
    metrics = take_step(
        models, method, {STEP: batch}, progress=0.0, shape=StepShape(micro_batch_tokens=tokens)
    )
    change = torch.cat([(p.detach() - b).reshape(-1) for p, b in zip(owned, before, strict=True)])
    return change, metrics


def pieced(batch: Batch, pieces: Sequence[Piece], *, method: Method = SFT) -> Tensor:
    """Minus the gradient of a step that is cut in exactly this way, as one vector."""
    whole = Scene(method=method, models=a_model(), groups=(), signals=Signals(), credits=())
    (found,) = cut_gradients(whole, batch, pieces).values()
    return -torch.cat([g.reshape(-1) for g in found.parts.values()])


def assert_close(one: Tensor, other: Tensor, *, scale: float | None = None) -> None:
    size = float(one.norm()) if scale is None else scale
    assert size > 0
    assert float((one - other).norm()) <= 1e-9 * size


LENGTHS = [3, 11, 2, 30, 7, 1, 19, 5, 4, 23, 8, 2, 13, 6, 28, 9]


# ---- any cut, one step -----------------------------------------------------------------------------------


def test_sixteen_sequences_cut_in_any_way_change_the_parameters_alike():
    batch = a_batch(rows_of(LENGTHS))
    whole = pieced(batch, [Piece(rows=tuple(range(16)))])
    for size in (1, 2, 4, 8):
        pieces = [Piece(rows=tuple(range(i, i + size))) for i in range(0, 16, size)]
        assert_close(whole, pieced(batch, pieces))


def test_the_token_budget_does_not_change_the_step():
    batch = a_batch(rows_of(LENGTHS))
    whole, _ = stepped(batch)
    for tokens in (1, 40, 100, 300):
        assert_close(whole, stepped(batch, tokens=tokens)[0])


def test_the_order_of_rows_does_not_change_the_step():
    rows = rows_of(LENGTHS)
    whole, _ = stepped(a_batch(rows))
    for seed in range(2):
        order = permutation(Streams(seed).generator("order"), 16)
        assert_close(whole, stepped(a_batch([rows[i] for i in order]), tokens=60)[0])


def test_all_long_rows_in_one_piece_change_nothing():
    batch = a_batch(rows_of(LENGTHS))
    long = tuple(i for i, n in enumerate(LENGTHS) if n > 10)
    short = tuple(i for i, n in enumerate(LENGTHS) if n <= 10)
    pieces = [Piece(rows=long), Piece(rows=short[:3]), Piece(rows=short[3:])]
    assert_close(pieced(batch, [Piece(rows=tuple(range(16)))]), pieced(batch, pieces))


# ---- impulse, linearity, token mean ----------------------------------------------------------------------


def impulse(slot: int) -> Tensor:
    """Four micro-batches that hold the same four rows in another rotation; only one row carries weight."""
    rows = rows_of([5, 9, 3, 7], weights=[1.0, 0.0, 0.0, 0.0])
    order = [(i - slot) % 4 for i in range(4)]
    return pieced(a_batch([rows[i] for i in order]), [Piece(rows=(i,)) for i in range(4)])


def test_the_whole_weight_on_any_one_micro_batch_gives_the_same_change():
    changes = [impulse(slot) for slot in range(4)]
    assert float(changes[0].norm()) > 0
    for change in changes[1:]:
        assert_close(changes[0], change)


def test_the_changes_of_single_micro_batches_add_up_to_the_whole():
    lengths = [5, 9, 3, 7, 12]
    pieces = [Piece(rows=(i,)) for i in range(5)]
    alone = [
        pieced(a_batch(rows_of(lengths, weights=[float(i == k) for i in range(5)])), pieces) for k in range(5)
    ]
    assert_close(pieced(a_batch(rows_of(lengths)), pieces), torch.stack(alone).sum(dim=0))


@dataclasses.dataclass(frozen=True)
class Constant:
    """A loss of ``short`` on rows of ten members, ``long`` on others, with the slope of a cross entropy."""

    short: float
    long: float

    def __call__(self, batch, policy, members):
        ten = members.sum(dim=1, keepdim=True) == 10
        path = policy.logprobs - policy.logprobs.detach()
        return only(members, torch.where(ten, self.short, self.long) + path)

    watch = CrossEntropy().watch


@pytest.mark.parametrize("cut", [1, 100, 10**6])
def test_a_sequence_of_ten_and_one_of_a_thousand_tokens_have_the_token_mean(cut):
    # Row lengths beyond the model's positions are not needed: 10 and 1000 fit its 1024.
    method = dataclasses.replace(SFT, terms=(Term("imitation", Constant(2.0, 5.0), token_mean()),))
    _, metrics = stepped(a_batch(rows_of([10, 1000])), tokens=cut, method=method)
    # (10 * 2 + 1000 * 5) / 1010
    assert metrics.value("term/imitation/loss") == pytest.approx(5020 / 1010, rel=1e-12)
    assert metrics.value("term/imitation/tokens") == 1010


# ---- norm, clipping, learning rate -----------------------------------------------------------------------


def test_the_reported_norm_is_the_length_of_the_change():
    change, metrics = stepped(a_batch(rows_of(LENGTHS)), tokens=50)
    assert metrics.value("gradient/norm") == pytest.approx(float(change.norm()), rel=1e-9)
    assert metrics.value("optimizer/learning_rate") == 1.0


def test_clipping_at_half_the_norm_halves_the_step_and_reports_the_whole_norm():
    batch = a_batch(rows_of(LENGTHS))
    whole, metrics = stepped(batch)
    norm = metrics.value("gradient/norm")
    half, clipped = stepped(batch, models=a_model(clip_norm=norm / 2), tokens=50)
    assert_close(whole / 2, half)
    assert clipped.value("gradient/norm") == pytest.approx(norm, rel=1e-9)


def test_clipping_above_the_norm_changes_nothing():
    batch = a_batch(rows_of(LENGTHS))
    whole, metrics = stepped(batch)
    loose, _ = stepped(batch, models=a_model(clip_norm=metrics.value("gradient/norm") * 1.01))
    assert_close(whole, loose)


# ---- windows, empty pieces, two backward passes ----------------------------------------------------------


def test_a_partial_window_divides_by_its_own_count():
    rows = rows_of([4, 6, 2])
    change, _ = stepped(a_batch(rows), tokens=8)
    # The sum over 12 tokens of each row's own sum, over 12 tokens.
    alone = [stepped(a_batch(rows_of([4, 6, 2])[i : i + 1]))[0] * n for i, n in enumerate([4, 6, 2])]
    assert_close(change, torch.stack(alone).sum(dim=0) / 12)


def test_a_micro_batch_without_members_changes_nothing():
    rows = rows_of([4, 6, 2])
    unknown = Row(trace=(trace := a_trace("x", 9)), credit=Credit(trace_id=trace.id), group=9)
    change, metrics = stepped(a_batch(rows))
    with_empty, seen = stepped(a_batch([*rows, unknown]), tokens=1)
    assert_close(change, with_empty)
    assert seen.value("term/imitation/tokens") == metrics.value("term/imitation/tokens") == 12


def test_a_step_without_any_member_moves_nothing_and_is_finite():
    rows = [Row(trace=(t := a_trace(f"t{i}", 3)), credit=Credit(trace_id=t.id), group=i) for i in range(3)]
    change, metrics = stepped(a_batch(rows))
    assert float(change.norm()) == 0.0
    assert metrics.value("gradient/norm") == 0.0
    assert metrics.value("term/imitation/loss") == 0.0


def two_terms(update: Update | None = None) -> Method:
    terms = (
        Term("imitation", CrossEntropy(), token_mean()),
        Term("other", CrossEntropy(), token_mean(), 0.5),
    )
    method = dataclasses.replace(SFT, terms=terms)
    return method if update is None else dataclasses.replace(method, update=update)


def two_term_batch() -> Batch:
    rows = rows_of([5, 3, 8, 2])
    other = [
        dataclasses.replace(
            row,
            credit=Credit(trace_id=row.trace.id, weights=(SegmentWeight(term="other", segment=1),)),
        )
        for row in rows[2:]
    ]
    return a_batch([*rows[:2], *other], terms=("imitation", "other"))


def test_two_backward_passes_equal_one_of_the_sum():
    def one_by_one(ask):
        return {POLICY: ask.gradients(terms=("imitation",)).plus(ask.gradients(terms=("other",)))}

    together, _ = stepped(two_term_batch(), method=two_terms(), tokens=12)
    apart, _ = stepped(two_term_batch(), method=two_terms(Update(one_by_one)), tokens=12)
    assert_close(together, apart)


def test_a_term_that_a_rule_asks_for_twice_is_reported_once():
    def twice(ask):
        ask.gradients(terms=("imitation",))
        return {POLICY: ask.gradients()}

    _, plainly = stepped(two_term_batch(), method=two_terms())
    _, metrics = stepped(two_term_batch(), method=two_terms(Update(twice)))
    for name in ("term/imitation/loss", "term/imitation/tokens", "term/other/loss", "imitation/nll"):
        assert metrics.value(name) == pytest.approx(plainly.value(name), rel=1e-12)


def test_the_gradients_by_origin_add_up_and_keep_the_denominator():
    rows = rows_of([5, 3])
    written = a_trace("r", 4)
    body = dataclasses.replace(written.segments[1], origin=Origin.POLICY)
    rollout = dataclasses.replace(written, contexts=((written.segments[0], body),))
    credit = Credit(trace_id=rollout.id, weights=(SegmentWeight(term="imitation", segment=1),))
    batch = a_batch([*rows, Row(trace=rollout, credit=credit, group=2)])
    whole = Scene(method=SFT, models=a_model(), groups=(), signals=Signals(), credits=())
    ask = asked(whole, batch, [Piece(rows=(0, 1, 2))])
    both = ask.gradients(origin=Origin.DEMONSTRATION).plus(ask.gradients(origin=Origin.POLICY))
    assert both.plus(ask.gradients(), -1.0).norm() <= 1e-9 * both.norm()
    # 8 demonstration tokens of 12: two thirds of the gradient of a step with demonstrations alone.
    alone = asked(whole, a_batch(rows), [Piece(rows=(0, 1))]).gradients().scaled(8 / 12)
    assert ask.gradients(origin=Origin.DEMONSTRATION).plus(alone, -1.0).norm() <= 1e-9 * alone.norm()


def test_sources_are_compared_when_asked_for():
    rows = rows_of([5, 3])
    written = a_trace("r", 4)
    body = dataclasses.replace(written.segments[1], origin=Origin.POLICY)
    rollout = dataclasses.replace(written, contexts=((written.segments[0], body),))
    credit = Credit(trace_id=rollout.id, weights=(SegmentWeight(term="imitation", segment=1),))
    batch = a_batch([*rows, Row(trace=rollout, credit=credit, group=2)])
    shape = StepShape(micro_batch_tokens=10**6, compare_sources=True)
    seen = take_step(a_model(), SFT, {STEP: batch}, progress=0.0, shape=shape)
    shares = [seen.value(f"gradient/share_{source}") for source in ("demonstrations", "rollouts")]
    assert sum(shares) == pytest.approx(1.0, rel=1e-12)
    assert -1 <= seen.value("gradient/cosine_demonstrations_rollouts") <= 1
    only_demonstrations = take_step(a_model(), SFT, {STEP: a_batch(rows)}, progress=0.0, shape=shape)
    assert "gradient/share_rollouts" not in only_demonstrations


# ---- not finite ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Broken:
    """Not a number on rows of five members."""

    watch = CrossEntropy().watch

    def __call__(self, batch, policy, members):
        five = members.sum(dim=1, keepdim=True) == 5
        return only(members, torch.where(five, math.nan, 1.0) * policy.logprobs)


def unmoved(models: Models, method: Method, batch: Batch, match: str) -> None:
    before = {k: p.detach().clone() for k, p in models[POLICY].parameters.items()}
    with pytest.raises(NonFiniteError, match=match):
        take_step(
            models, method, {STEP: batch}, progress=0.0, shape=StepShape(micro_batch_tokens=1, number=17)
        )
    assert all(torch.equal(p, before[k]) for k, p in models[POLICY].parameters.items())


def test_a_loss_that_is_not_finite_names_step_term_and_traces_and_moves_nothing():
    method = dataclasses.replace(SFT, terms=(Term("imitation", Broken(), token_mean()),))
    unmoved(
        a_model(),
        method,
        a_batch(rows_of([3, 5, 2])),
        r"step 17: not finite: term 'imitation' in traces t1\.",
    )


@dataclasses.dataclass(frozen=True)
class Steep:
    """Finite, with an infinite slope: the square root at 0."""

    watch = CrossEntropy().watch

    def __call__(self, batch, policy, members):
        return only(members, (policy.logprobs - policy.logprobs.detach()).sqrt())


def test_a_gradient_that_is_not_finite_names_parameters_and_moves_nothing():
    method = dataclasses.replace(SFT, terms=(Term("imitation", Steep(), token_mean()),))
    unmoved(
        a_model(), method, a_batch(rows_of([3])), "step 17: not finite: gradient of policy parameters model."
    )


def test_a_rule_that_makes_something_that_is_not_finite_moves_nothing():
    def divides_by_zero(ask):
        found = ask.gradients()
        return {POLICY: found.scaled(math.nan)}

    method = dataclasses.replace(SFT, update=Update(divides_by_zero))
    unmoved(a_model(), method, a_batch(rows_of([3])), "the update rule made for policy")


def test_a_gradient_for_a_role_that_does_not_train_is_refused():
    models = a_model()
    models.roles["shadow"] = role_of("shadow", tiny_policy(1))
    rule = Update(lambda ask: {"shadow": ask.gradients(terms=("imitation",), role="shadow")})
    with pytest.raises(ValueError, match="does not train"):
        stepped(a_batch(rows_of([3])), method=dataclasses.replace(SFT, update=rule), models=models)


def test_a_role_without_a_module_must_be_asked_through_another():
    models = a_model()
    role = role_of("adapters", nn.Linear(1, 1))
    models.roles["adapters"] = dataclasses.replace(role, module=None)
    rule = Update(lambda ask: {"policy": ask.gradients(terms=("imitation",), role="adapters")})
    with pytest.raises(ValueError, match="through"):
        stepped(a_batch(rows_of([3])), method=dataclasses.replace(SFT, update=rule), models=models)


# ---- statistics ------------------------------------------------------------------------------------------


def test_policy_output_says_what_was_declared():
    output = PolicyOutput(logprobs=torch.zeros((1, 1)), statistics={"x": torch.ones((1, 1))})
    assert float(output.statistic("x")) == 1.0
    with pytest.raises(KeyError, match="declared: \\['x'\\]"):
        output.statistic("y")


def test_gradients_are_named_as_the_roles_parameters_are():
    whole = Scene(method=SFT, models=a_model(), groups=(), signals=Signals(), credits=())
    found = asked(whole, a_batch(rows_of([3])), [Piece(rows=(0,))]).gradients()
    assert isinstance(found, Gradients)
    assert list(found.parts) == list(whole.models[POLICY].parameters)
