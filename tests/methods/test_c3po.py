"""C3PO against its literal transcription, and what its budget keeps."""

from __future__ import annotations

import pytest
from tests.methods import literal_corrections as literal
from tests.methods.compare import LONGEST, check_against_literal, forget_verdict, free_groups
from tests.methods.literal import grpo
from tests.objectives.tables import a_group, a_trace

from bimetal.core.types import Signals
from bimetal.methods.c3po import Config, build, drawn
from bimetal.objectives.method import RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)
BUDGET = 50
"""Of about 100 tokens in a scene."""


def transcribed(groups, *, budget=BUDGET, beta=0.04, entropy=0.01):
    """The order is that of the method, as the numbers of the known responses."""
    known = [trace.id for group in groups for trace in group.traces if trace.is_known]
    order = [known.index(trace.id) for trace in drawn(groups)]
    return lambda samples: literal.c3po(
        samples.groups,
        order=order,
        budget=budget,
        low=0.2,
        high=0.2,
        beta=beta,
        entropy=entropy,
        epsilon=1e-6,
    )


@pytest.mark.parametrize(("seed", "drift"), [(0, "none"), (1, "some")])
def test_c3po_equals_its_literal_transcription(seed, drift):
    method, groups = build(Config(budget=BUDGET, beta=0.04, entropy=0.01), RUN), free_groups(seed)
    metrics = check_against_literal(method, groups, transcribed(groups), seed=seed, drift=drift)
    # The response that reaches the budget is trained whole.
    assert BUDGET <= metrics.value("term/rl/tokens") < BUDGET + LONGEST


def test_an_unknown_trace_takes_no_budget():
    groups = forget_verdict(free_groups(0), 1, 2)
    method = build(Config(budget=BUDGET, beta=0, entropy=0), RUN)
    check_against_literal(method, groups, transcribed(groups, beta=0, entropy=0), seed=0, drift="some")


def test_with_a_budget_of_all_tokens_it_is_grpo_over_tokens():
    groups = free_groups(2)
    tokens = sum(t.response_length for g in groups for t in g.traces)

    def expected(samples):
        return grpo(samples.groups, low=0.2, high=0.2, beta=0, epsilon=1e-6, aggregate="token_mean")

    method = build(Config(budget=tokens, beta=0, entropy=0), RUN)
    check_against_literal(method, groups, expected, seed=2, drift="some")


def test_the_budget_changes_no_advantage_and_the_order_knows_no_length():
    groups = free_groups(3)
    whole = {c.trace_id: c for c in build(Config(), RUN).credit(groups, Signals())}
    some = build(Config(budget=BUDGET), RUN).credit(groups, Signals())
    kept = [c for c in some if c.weights]
    assert 0 < len(kept) < len(some)
    assert all(c == whole[c.trace_id] for c in kept)
    short = [a_group(*(a_trace(f"t{i}", policy=1) for i in range(9)))]
    long = [a_group(*(a_trace(f"t{i}", policy=9 - i) for i in range(9)))]
    names = [t.id for t in drawn(short)]
    assert names == [t.id for t in drawn(long)] != sorted(names)


def test_a_budget_is_reached_by_the_response_that_crosses_it():
    group = a_group(*(a_trace(f"t{i}", reward=float(i % 2), policy=4) for i in range(5)))
    for budget, kept in ((1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (100, 5)):
        found = build(Config(budget=budget), RUN).credit([group], Signals())
        assert sum(bool(c.weights) for c in found) == kept
