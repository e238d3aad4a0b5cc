"""Budgets are driven by counts, and floating-point operations are those worked out by hand."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bimetal.core.budget import Budget, Currency, FlopModel, Recomputation, attended
from bimetal.core.errors import CheckpointError, ConfigError

TOKENS = Currency.GENERATED_TOKENS
# Per token 2 * 100 in the matrices, per attended position 4 * 2 layers * 8 = 64, per logit row 2 * 8 * 10.
MODEL = FlopModel(matrix_parameters=100, layers=2, attention_width=8, hidden=8, vocabulary=10)


def test_progress_is_the_spent_share_of_the_driving_currency() -> None:
    budget = Budget(200, currency=TOKENS)
    budget.spend({TOKENS: 50, Currency.FLOPS: 10**20, Currency.WALL_SECONDS: 3.5})
    assert budget.progress == 0.25
    assert budget.spent(Currency.FLOPS) == 10**20 and budget.spent(Currency.WALL_SECONDS) == 3.5
    budget.spend({TOKENS: 500})
    assert budget.progress == 1.0 and budget.is_spent


def test_the_default_currency_is_flops() -> None:
    assert Budget(1).currency is Currency.FLOPS


@pytest.mark.parametrize("currency", [Currency.WALL_SECONDS, Currency.VERIFIER_SECONDS])
def test_seconds_never_drive_a_run(currency: Currency) -> None:
    with pytest.raises(ConfigError, match="is measured, not counted"):
        Budget(100, currency=currency)


def test_seconds_may_cap_a_run_without_moving_its_progress() -> None:
    budget = Budget(100, currency=TOKENS, wall_limit_seconds=10)
    budget.spend({Currency.WALL_SECONDS: 9.5})
    assert not budget.is_over_wall_limit
    budget.spend({Currency.WALL_SECONDS: 0.5})
    assert budget.is_over_wall_limit and budget.progress == 0.0 and not budget.is_spent


def test_a_resumed_run_gets_the_whole_wall_time_again():
    spent = Budget(100, currency=TOKENS, wall_limit_seconds=10)
    spent.spend({Currency.WALL_SECONDS: 11.0})
    budget = Budget(100, currency=TOKENS, wall_limit_seconds=10)
    budget.load_state_dict(spent.state_dict())
    assert not budget.is_over_wall_limit
    budget.spend({Currency.WALL_SECONDS: 9.0})
    assert not budget.is_over_wall_limit
    budget.spend({Currency.WALL_SECONDS: 1.0})
    assert budget.is_over_wall_limit and budget.spent(Currency.WALL_SECONDS) == 21.0


def test_stages_take_their_shares_one_after_the_other() -> None:
    budget = Budget(1000, currency=TOKENS, shares=(0.25, 0.75))
    budget.spend({TOKENS: 125})
    assert budget.stage_progress == 0.5 and not budget.is_stage_spent
    budget.spend({TOKENS: 125})
    assert budget.is_stage_spent
    budget.begin_stage(1)
    budget.spend({TOKENS: 75})
    # 75 of the 750 that follow.
    assert budget.stage_progress == 0.1 and budget.stage == 1


def test_what_a_stage_overshoots_the_next_one_lacks() -> None:
    budget = Budget(1000, currency=TOKENS, shares=(1, 1))
    budget.spend({TOKENS: 600})
    budget.begin_stage(1)
    budget.spend({TOKENS: 200})
    # The second stage ends at 1000 and began at 600: 200 of 400.
    assert budget.stage_progress == 0.5


def test_what_a_stage_leaves_the_next_one_gets() -> None:
    budget = Budget(1000, currency=TOKENS, shares=(1, 1))
    budget.spend({TOKENS: 200})
    budget.begin_stage(1)
    budget.spend({TOKENS: 200})
    assert budget.stage_progress == 0.25  # 200 of 1000 - 200


def test_a_stage_without_anything_left_is_over() -> None:
    budget = Budget(10, currency=TOKENS, shares=(1, 1))
    budget.spend({TOKENS: 12})
    budget.begin_stage(1)
    assert budget.stage_progress == 1.0 and budget.is_stage_spent


@given(st.integers(1, 10**25), st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=6))
def test_the_last_stage_ends_at_the_limit_exactly(limit: int, shares: list[float]) -> None:
    budget = Budget(limit, shares=shares)
    budget.begin_stage(len(shares) - 1)
    budget.spend({Currency.FLOPS: limit - 1})
    assert not budget.is_stage_spent and not budget.is_spent
    budget.spend({Currency.FLOPS: 1})
    assert budget.is_stage_spent and budget.is_spent


def test_stages_only_go_forward() -> None:
    budget = Budget(10, shares=(1, 1))
    budget.begin_stage(1)
    for stage in (0, 2):
        with pytest.raises(ValueError, match=f"from stage 1 to stage {stage}"):
            budget.begin_stage(stage)


@pytest.mark.parametrize("limit", [0, -5, True])
def test_a_limit_is_a_whole_number_above_zero(limit: int) -> None:
    with pytest.raises(ConfigError, match="budget limit"):
        Budget(limit)


@pytest.mark.parametrize("shares", [(), (0,), (1, -1), (math.nan,), (math.inf,)])
def test_shares_are_above_zero(shares: tuple[float, ...]) -> None:
    with pytest.raises(ConfigError, match="share of the budget"):
        Budget(10, shares=shares)


@pytest.mark.parametrize("cap", [0, -1.0, math.nan])
def test_a_wall_cap_is_above_zero(cap: float) -> None:
    with pytest.raises(ConfigError, match="wall-time cap"):
        Budget(10, wall_limit_seconds=cap)


@pytest.mark.parametrize(
    "amounts",
    [
        {TOKENS: 1.0},
        {TOKENS: -1},
        {TOKENS: True},
        {Currency.WALL_SECONDS: -0.1},
        {Currency.WALL_SECONDS: math.nan},
        {TOKENS: 1, Currency.WALL_SECONDS: math.inf},
    ],
)
def test_amounts_that_cannot_be_are_refused_and_nothing_is_counted(amounts: dict[Currency, float]) -> None:
    budget = Budget(10, currency=TOKENS)
    with pytest.raises(ValueError, match=r"counted in whole numbers|cannot spend"):
        budget.spend(amounts)
    assert all(budget.spent(c) == 0 for c in Currency)


def test_a_resumed_budget_goes_on_exactly_and_may_be_larger() -> None:
    budget = Budget(10**20, shares=(1, 3))
    budget.spend({Currency.FLOPS: 3 * 10**19 + 1, Currency.WALL_SECONDS: 1.25, Currency.VERDICTS: 7})
    budget.begin_stage(1)
    budget.spend({Currency.FLOPS: 1})
    state = json.loads(json.dumps(budget.state_dict()))
    same, larger = Budget(10**20, shares=(1, 3)), Budget(10**21, shares=(1, 3))
    same.load_state_dict(state)
    larger.load_state_dict(state)
    assert same.state_dict() == budget.state_dict() and same.stage_progress == budget.stage_progress
    assert larger.spent(Currency.FLOPS) == 3 * 10**19 + 2 and larger.progress < same.progress


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"currency": "verdicts"}, "counts 'verdicts', this run's 'flops'"),
        ({"spent": {}}, "currencies missing: .*'flops'"),
        ({"stage": 5}, "stage 5 of 1"),
    ],
)
def test_a_state_of_another_run_is_refused(change: dict[str, object], message: str) -> None:
    state = {**Budget(10).state_dict(), **change}
    with pytest.raises(CheckpointError, match=message):
        Budget(10).load_state_dict(state)  # type: ignore[arg-type]


def test_a_forward_pass_by_hand() -> None:
    # Three tokens attend to 1 + 2 + 3 = 6 positions: 3 * 200 + 6 * 64 = 984; two rows of logits: 320.
    assert attended(3) == 6
    assert MODEL.layers_forward(3, attended=6) == 984
    assert MODEL.head_forward(2) == 320
    assert MODEL.forward(3, logits=2) == 1304


@pytest.mark.parametrize(
    ("recomputation", "factor_of_layers", "factor_of_head"),
    [(Recomputation.NOTHING, 3, 3), (Recomputation.LOGITS, 3, 4), (Recomputation.EVERYTHING, 4, 4)],
)
def test_training_is_three_forwards_and_what_is_recomputed(
    recomputation: Recomputation, factor_of_layers: int, factor_of_head: int
) -> None:
    found = MODEL.training(3, logits=2, recomputation=recomputation)
    assert found == factor_of_layers * 984 + factor_of_head * 320


def test_generation_by_hand() -> None:
    # Prompt of 2: 2 * 200 + (1 + 2) * 64 = 592. Answer of 3: two tokens are fed back, at positions 3 and 4:
    # 2 * 200 + 7 * 64 = 848, and three rows of logits: 480. Answer of 1: one row of logits, 160.
    assert MODEL.generation(2, new_tokens=[3]) == 592 + 848 + 480
    assert MODEL.generation(2, new_tokens=[3, 1]) == 592 + 848 + 480 + 160
    assert MODEL.generation(2, new_tokens=[0]) == MODEL.generation(2, new_tokens=[]) == 0


@given(st.integers(1, 500), st.integers(1, 500))
def test_generating_costs_the_layers_of_one_forward_over_what_was_fed(prompt: int, new: int) -> None:
    fed = prompt + new - 1
    assert MODEL.generation(prompt, new_tokens=[new]) == MODEL.forward(fed, logits=new)


def test_counts_stay_exact_at_the_scale_of_real_runs() -> None:
    model = FlopModel(
        matrix_parameters=7 * 10**9, layers=32, attention_width=4096, hidden=4096, vocabulary=128_000
    )
    # 2 * 7e9 * 4096 + 4 * 32 * 4096 * (4096 * 4097 / 2) + 2 * 4096 * 128000 * 4096
    expected = 57_344_000_000_000 + 4_399_120_252_928 + 4_294_967_296_000
    assert model.forward(4096, logits=4096) == expected
