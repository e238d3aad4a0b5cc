"""Conformance suite of methods: what every file in ``methods/`` keeps, and every plug-in should.

for candidate in candidates():
    for check in CHECKS:
        check(candidate, seed=0)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType

import torch
from torch import Tensor

from bimetal.core.batch import Batch, PolicyOutput
from bimetal.core.catalogue import find, names, variants
from bimetal.core.streams import Streams, permutation
from bimetal.core.types import EMPTY, JsonValue, Origin
from bimetal.data.microbatch import Piece
from bimetal.objectives.compose import Term
from bimetal.objectives.method import Method, Need, RunShape
from bimetal.objectives.update import Gradients
from bimetal.testing.scene import GROUP_SIZE, LONGEST, Drift, Scene, asked, cut_gradients, scene
from bimetal.trainer.roles import CRITIC
from bimetal.trainer.step import run

TOLERANCE: Mapping[torch.dtype, float] = {torch.float64: 1e-9, torch.float32: 1e-5}
"""Design contract C1: relative to the sum of the norms of the parts."""

Numbers = Mapping[str, Gradients]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A method module and the option values it is checked with."""

    name: str
    module: ModuleType
    options: Mapping[str, JsonValue] = field(default_factory=lambda: EMPTY)

    def method(self) -> Method:
        """The method, assembled for the lengths and group size of scenes."""
        options = self.module.Config(**self.options)
        return self.module.build(options, RunShape(max_response_tokens=LONGEST, group_size=GROUP_SIZE))


Check = Callable[[Candidate, int], None]
"""Raises ``AssertionError`` where the method breaks its promise, on the scene of this seed."""


def candidates() -> tuple[Candidate, ...]:
    """Every method of the catalogue with its default options, and every variant."""
    entries = [find("methods", name) for name in (*names("methods"), *variants("methods"))]
    return tuple(Candidate(name=entry.name, module=entry.module, options=entry.options) for entry in entries)


def check_gradient_ignores_the_cut(candidate: Candidate, seed: int) -> None:
    """C1: any micro-batches, any order, any padding give one gradient, at the first update and past it."""
    scenes: tuple[tuple[torch.dtype, Drift], ...] = ((torch.float64, "some"), (torch.float32, "none"))
    for dtype, drift in scenes:
        whole = scene(candidate.method(), seed, dtype=dtype, drift=drift)
        batch = whole.batch()
        one = cut_gradients(whole, batch, [Piece(rows=tuple(range(batch.size)))])
        allowed = {role: TOLERANCE[dtype] * size for role, size in _sizes_of_parts(whole, batch).items()}
        noise = Streams(seed).generator("conformance-cut", candidate.name, drift)
        for _ in range(2):
            shuffled = padded(whole.batch(permutation(noise, batch.size)), columns=3)
            pieces = partition(whole.method, shuffled, noise.random(batch.size).tolist())
            _assert_near(one, cut_gradients(whole, shuffled, pieces), allowed)


def check_no_gradient_outside_members(candidate: Candidate, seed: int) -> None:
    """A term's loss and its gradient are 0 outside its members, whatever stands there, NaN and inf too."""
    whole = scene(candidate.method(), seed, drift="some")
    batch = whole.batch()
    for term in whole.method.terms:
        output = run(whole.models[term.role], batch, whole.method.statistics, whole.models)
        members = batch.members[term.name]
        assert not bool((members & ~batch.mask).any()), f"{term.name}: a member outside the response"
        clean, clean_loss = _leaf_gradients(term, batch, output)
        spoiled, spoiled_loss = _leaf_gradients(
            term, _spoiled(batch, members), _spoiled_output(output, members)
        )
        assert bool((clean_loss[~members] == 0).all()), f"{term.name}: loss outside its members"
        assert torch.equal(clean_loss, spoiled_loss), f"{term.name}: its loss looks outside its members"
        for name, gradient in clean.items():
            assert bool((gradient[~members] == 0).all()), (
                f"{term.name}: gradient on {name} outside its members"
            )
            assert torch.equal(gradient, spoiled[name]), (
                f"{term.name}: gradient on {name} looks outside its members"
            )


def check_finite_when_drifted_far(candidate: Candidate, seed: int) -> None:
    """Loss and gradient stay finite when the policy gives what was written probabilities near 0."""
    for dtype in (torch.float64, torch.float32):
        whole = scene(candidate.method(), seed, dtype=dtype, drift="far")
        batch = whole.batch()
        # The step itself refuses what is not finite.
        found = cut_gradients(whole, batch, [Piece(rows=tuple(range(batch.size)))])
        assert all(math.isfinite(gradient.norm()) for gradient in found.values())


def check_routed_terms_exist(candidate: Candidate, seed: int) -> None:
    """Credit names only terms of the method and segments of the trace, and over a few scenes all of them."""
    method, routed = candidate.method(), set[str]()
    known = {term.name for term in method.terms}
    for further in range(2):
        whole = scene(method, seed + further)
        for row in whole.rows:
            for weight in row.credit.weights:
                assert weight.term in known, (
                    f"credit names term {weight.term!r}; the method has {sorted(known)}"
                )
                origin = row.trace.segments[weight.segment].origin
                assert origin is not Origin.PROMPT, f"prompt tokens are members of {weight.term!r}"
                routed.add(weight.term)
    assert routed == known, f"no trace is ever a member of {sorted(known - routed)}"


def check_roles_are_provided(candidate: Candidate, seed: int) -> None:
    """Every role a term reads exists in a run that provides what the method needs."""
    whole = scene(candidate.method(), seed)
    for term in whole.method.terms:
        assert term.role in whole.models, (
            f"term {term.name!r} reads role {term.role!r}, which no need asks for"
        )
        assert term.role != CRITIC or Need.CRITIC in whole.method.needs


def check_deterministic(candidate: Candidate, seed: int) -> None:
    """The same scene twice gives the same credits and the same gradient, bit for bit."""
    first, second = (
        scene(candidate.method(), seed, drift="some"),
        scene(candidate.method(), seed, drift="some"),
    )
    assert first.credits == second.credits
    assert first.method.credit(first.groups, first.signals) == first.credits, "the credit rule has a memory"
    batch = first.batch()
    pieces = [Piece(rows=tuple(range(i, batch.size, 3))) for i in range(3)]
    one, two = cut_gradients(first, batch, pieces), cut_gradients(second, second.batch(), pieces)
    for role, gradient in one.items():
        assert all(torch.equal(part, two[role].parts[name]) for name, part in gradient.parts.items())


def check_one_credit_per_trace(candidate: Candidate, seed: int) -> None:
    """Credit is one per trace, in order of groups and members; its numbers per token fit the response."""
    whole = scene(candidate.method(), seed)
    traces = [trace for group in whole.groups for trace in group.traces]
    assert [credit.trace_id for credit in whole.credits] == [trace.id for trace in traces]
    for trace, credit in zip(traces, whole.credits, strict=True):
        if isinstance(credit.advantage, tuple):
            assert len(credit.advantage) == trace.response_length
        assert credit.returns is None or len(credit.returns) == trace.response_length
        seen = [(w.term, w.segment) for w in credit.weights]
        assert len(seen) == len(set(seen)), f"{trace.id}: a segment is routed to one term twice"


CHECKS: tuple[Check, ...] = (
    check_gradient_ignores_the_cut,
    check_no_gradient_outside_members,
    check_finite_when_drifted_far,
    check_routed_terms_exist,
    check_roles_are_provided,
    check_deterministic,
    check_one_credit_per_trace,
)
"""The whole suite."""


def padded(batch: Batch, *, columns: int) -> Batch:
    """The batch with more padding on the right, filled with what must never be looked at."""

    def widen(x: Tensor) -> Tensor:
        if x.dim() != 2:
            return x
        fill = math.nan if x.is_floating_point() else 0
        return torch.cat([x, torch.full((x.shape[0], columns), fill, dtype=x.dtype)], dim=1)

    wide = batch.map(widen)
    # A temperature divides logits before anything is masked, so it alone stays a number.
    return wide.with_fields(temperature=torch.nan_to_num(wide.temperature, nan=1.0))


def partition(method: Method, batch: Batch, draws: Sequence[float]) -> list[Piece]:
    """The rows in random pieces of unequal size, and a dead piece; groups stay whole if the method asks."""
    key = (
        [float(draws[int(g) % len(draws)]) for g in batch.group]
        if Need.WHOLE_GROUPS in method.needs
        else draws
    )
    bins: dict[int, list[int]] = {}
    for row in range(batch.size):
        bins.setdefault(int(float(key[row]) ** 2 * 5), []).append(row)
    return [*(Piece(rows=tuple(rows)) for rows in bins.values()), Piece(rows=(0,), live=False)]


def _sizes_of_parts(whole: Scene, batch: Batch) -> dict[str, float]:
    """Role -> sum over groups of the length of each one's own gradient."""
    groups = batch.group.tolist()
    sizes: dict[str, float] = {}
    for group in sorted(set(groups)):
        ask = asked(whole, batch, [Piece(rows=tuple(i for i, g in enumerate(groups) if g == group))])
        for role in ask.roles():
            sizes[role] = sizes.get(role, 0.0) + ask.gradients(role=role).norm()
    return sizes


def _assert_near(one: Numbers, other: Numbers, allowed: Mapping[str, float]) -> None:
    assert one.keys() == other.keys()
    for role, gradient in one.items():
        assert gradient.norm() > 0, f"the gradient of {role} is 0: the scene proves nothing"
        gap = gradient.plus(other[role], -1.0).norm()
        assert gap <= allowed[role], f"{role}: gradients of two cuts differ by {gap}; allowed {allowed[role]}"


def _leaf_gradients(term: Term, batch: Batch, output: PolicyOutput) -> tuple[dict[str, Tensor], Tensor]:
    """The gradient of a term's summed loss with respect to everything the role said, and the loss itself."""
    leaves = {
        "logprobs": output.logprobs,
        **({} if output.values is None else {"values": output.values}),
        **dict(output.statistics),
    }
    leaves = {name: x.detach().clone().requires_grad_() for name, x in leaves.items()}
    rest = {name: x for name, x in leaves.items() if name not in {"logprobs", "values"}}
    said = PolicyOutput(logprobs=leaves["logprobs"], values=leaves.get("values"), statistics=rest)
    loss = term.loss(batch, said, batch.members[term.name])
    found = torch.autograd.grad(loss.sum(), list(leaves.values()), allow_unused=True)
    given = zip(leaves.items(), found, strict=True)
    return {name: torch.zeros_like(x) if g is None else g for (name, x), g in given}, loss.detach()


def _spoiled(batch: Batch, members: Tensor) -> Batch:
    hole = torch.full(members.shape, math.nan, dtype=torch.float64)
    fields = {}
    for entry in dataclasses.fields(batch):
        value = getattr(batch, entry.name)
        if isinstance(value, Tensor) and value.is_floating_point() and entry.name != "temperature":
            fields[entry.name] = torch.where(members, value, hole.to(value.dtype))
    return batch.with_fields(**fields)


def _spoiled_output(output: PolicyOutput, members: Tensor) -> PolicyOutput:
    def spoil(x: Tensor) -> Tensor:
        return torch.where(members, x, torch.full_like(x, math.inf))

    return PolicyOutput(
        logprobs=spoil(output.logprobs),
        values=None if output.values is None else spoil(output.values),
        statistics={name: spoil(x) for name, x in output.statistics.items()},
    )
