"""The audit: what this installation promises, checked on this machine, method by method.

Three parts: the objective and the step of every installed method, third-party ones included; a model's
chat template and the agreement of generation and training; and, in ``bimetal.testing.kill``, exact resume.
Every check returns findings, so that one failure does not hide another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter

import torch
from torch import Tensor

from bimetal.core.errors import BimetalError, unknown_name
from bimetal.core.types import (
    Origin,
)
from bimetal.data.microbatch import Piece
from bimetal.methods import sft
from bimetal.objectives.controller import Controller
from bimetal.objectives.loss import CrossEntropy
from bimetal.objectives.method import Need, RunShape
from bimetal.objectives.update import Gradients
from bimetal.testing.faults import FAULTS, NO_FAULT, Attached, Fault
from bimetal.testing.methods import CHECKS, TOLERANCE, Candidate, candidates
from bimetal.testing.scene import GROUP_SIZE, LONGEST, Scene, cut_gradients, scene
from bimetal.trainer.policy import CausalPolicy
from bimetal.trainer.roles import POLICY
from bimetal.trainer.step import run

PIECES = 5
"""Micro-batches of the accumulation check; two would not see every fault."""

SEEN_BY_CONTROLLERS = ("reward/mean", "policy/entropy", "imitation/nll")
"""Metrics that a controller may learn from."""

DISTANCE = 1e-9
"""Relative to the gradient's length, in float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One check of one subject; ``detail`` says what is wrong, and is empty where nothing is."""

    subject: str
    check: str
    detail: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the promise is kept."""
        return not self.detail


def audit_step(fault: Fault = NO_FAULT) -> Iterator[Finding]:
    """The step by itself: which tokens an imitated text's loss reaches, against a sum written out by hand."""
    yield finding_of("step", "mask", lambda: _mask_fault(fault))


def audit_method(candidate: Candidate, fault: Fault = NO_FAULT) -> Iterator[Finding]:
    """C1 and the conformance suite, constant weights, and the round trip of what has state."""
    name = candidate.name
    if fault is NO_FAULT:
        for check in CHECKS:
            label = check.__name__.removeprefix("check_").replace("_", " ")
            yield finding_of(name, label, lambda check=check: check(candidate, 0))
    yield finding_of(name, "accumulation (C1)", lambda: _accumulation_fault(candidate, fault))
    yield finding_of(name, "constant weights", lambda: _weight_fault(candidate, fault))
    yield finding_of(name, "state round trip", lambda: _state_fault(candidate))


def chosen(names: Collection[str]) -> tuple[Candidate, ...]:
    """The methods and variants of these names; all that are installed where none is named.

    Raises:
        UnknownNameError: There is no such method.
    """
    found = {candidate.name: candidate for candidate in candidates()}
    for name in names:
        if name not in found:
            raise unknown_name("method", name, found)
    return tuple(found[name] for name in names) if names else tuple(found.values())


def finding_of(subject: str, check: str, look: Callable[[], str | None]) -> Finding:
    """What a check found: it returns or raises what is wrong, and is timed."""
    began = perf_counter()
    try:
        detail = look() or ""
    except AssertionError as error:
        detail = str(error).splitlines()[0] if str(error) else "the check failed without a message"
    except BimetalError as error:
        detail = str(error)
    return Finding(subject=subject, check=check, detail=detail, seconds=perf_counter() - began)


def _accumulation_fault(candidate: Candidate, fault: Fault) -> str:
    """Why the gradient of many micro-batches is not that of one; empty where it is."""
    whole = scene(fault.method(candidate.method()), 0, drift="some")
    batch = whole.batch()
    pieces = _pieces(whole)
    one = cut_gradients(whole, batch, [Piece(rows=tuple(range(batch.size)))], arithmetic=fault.arithmetic)
    many = cut_gradients(whole, batch, pieces, arithmetic=fault.arithmetic)
    for role, gradient in one.items():
        gap, size = gradient.plus(many[role], -1.0).norm(), gradient.norm()
        if gap > TOLERANCE[torch.float64] * max(size, 1.0):
            cause = _cause(whole, pieces, many)
            return (
                f"{len(pieces)} micro-batches give {role} another gradient than one: they differ by "
                f"{gap:.3g} of {size:.3g}{cause}"
            )
    return ""


def _pieces(whole: Scene) -> list[Piece]:
    """Micro-batches of unequal length; those of whole groups where the method asks."""
    batch = whole.batch()
    if Need.WHOLE_GROUPS in whole.method.needs:
        groups = batch.group.tolist()
        return [
            Piece(rows=tuple(i for i, g in enumerate(groups) if g == group)) for group in sorted(set(groups))
        ]
    lengths = batch.attention.sum(dim=1).tolist()
    order = sorted(range(batch.size), key=lambda i: lengths[i])
    bounds = [round(k * batch.size / PIECES) for k in range(PIECES + 1)]
    cuts = [order[a:b] for a, b in pairwise(bounds)]
    return [Piece(rows=tuple(rows)) for rows in cuts if rows]


def _cause(whole: Scene, pieces: Sequence[Piece], found: Mapping[str, Gradients]) -> str:
    """The known faults whose gradient this is, in words; empty where it is none of them."""
    fitting = []
    for name in ("drop-microbatches", "last-backward-only", "mean-of-means"):
        wrong = cut_gradients(whole, whole.batch(), pieces, arithmetic=FAULTS[name].arithmetic)
        if all(
            g.plus(found[role], -1.0).norm() <= DISTANCE * max(g.norm(), 1.0) for role, g in wrong.items()
        ):
            fitting.append(f"{name!r} ({FAULTS[name].what})")
    return f". This is the fault {' or '.join(fitting)}" if fitting else ""


def _mask_fault(fault: Fault) -> str:
    """Whether the mean over response tokens, written out, has the step's gradient."""
    method = sft.build(sft.Config(), RunShape(max_response_tokens=LONGEST, group_size=GROUP_SIZE))
    whole = scene(fault.method(method), 0)
    batch = whole.batch()
    rows = [Piece(rows=tuple(range(batch.size)))]
    (gradient,) = cut_gradients(whole, batch, rows, arithmetic=fault.arithmetic).values()
    for shift in (0, 1, -1):
        if gradient.plus(_by_hand(whole, shift), -1.0).norm() <= DISTANCE * max(gradient.norm(), 1.0):
            if shift == 0:
                return ""
            return (
                "the loss reaches the tokens one place beside the response. This is the fault "
                "'off-by-one-mask'"
            )
    return "the gradient of an imitated text is not that of the mean over its response tokens"


def _by_hand(whole: Scene, shift: int) -> Gradients:
    """The gradient of the mean of -log p over response tokens, their places shifted, without the step."""
    role = whole.models[POLICY]
    policy = role.module
    assert isinstance(policy, CausalPolicy)
    losses: list[Tensor] = []
    for group in whole.groups:
        for trace in group.traces:
            ids = [token for segment in trace.segments for token in segment.token_ids]
            kinds = [segment.origin for segment in trace.segments for _ in segment.token_ids]
            logprobs = torch.log_softmax(policy.model(input_ids=torch.tensor([ids])).logits[0], dim=-1)
            for place in range(1, len(ids)):
                if kinds[place] is Origin.PROMPT:
                    continue
                beside = place + shift
                if beside >= len(ids) or (shift and kinds[beside] is Origin.PROMPT):
                    continue
                losses.append(-logprobs[beside - 1, ids[beside]])
    mean = torch.stack(losses).mean()
    parts = torch.autograd.grad(mean, list(role.parameters.values()))
    return Gradients(dict(zip(role.parameters, parts, strict=True)))


def _weight_fault(candidate: Candidate, fault: Fault) -> str:
    """Whether -log p times a weight has the gradient minus the weight: a weight must be a constant."""
    whole = scene(fault.method(candidate.method()), 0, drift="some")
    batch = whole.batch()
    for term in whole.method.terms:
        loss = term.loss.inner if isinstance(term.loss, Attached) else term.loss
        if not isinstance(loss, CrossEntropy):
            continue
        output = run(whole.models[term.role], batch, whole.method.statistics, whole.models)
        members = batch.members[term.name]
        (slope,) = torch.autograd.grad(term.loss(batch, output, members).sum(), [output.logprobs])
        expected = -loss.weight(batch, output, members).detach()
        if not torch.allclose(slope[members], expected[members], rtol=DISTANCE, atol=1e-12):
            return (
                f"term {term.name!r}: the weight of a token is not a constant, gradient flows through it. "
                "This is the fault 'detached-weight-not-detached'"
            )
    return ""


def _state_fault(candidate: Candidate) -> str:
    """Whether every coefficient with state comes back from its own state."""
    terms, others = candidate.method().terms, candidate.method().terms
    for term, other in zip(terms, others, strict=True):
        if not isinstance(term.coefficient, Controller) or not isinstance(other.coefficient, Controller):
            continue
        for value in (0.1, 0.9, 0.4):
            term.coefficient.observe(dict.fromkeys(SEEN_BY_CONTROLLERS, value))
        other.coefficient.load_state_dict(term.coefficient.state_dict())
        for progress in (0.0, 0.3, 1.0):
            if term.coefficient.value(progress) != other.coefficient.value(progress):
                return f"the coefficient of term {term.name!r} does not come back from its state"
    return ""
