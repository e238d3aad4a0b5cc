"""Expert iteration against its literal transcription, for every way of choosing among the verified."""

from __future__ import annotations

import pytest
from tests.methods import literal_corrections as literal
from tests.methods import literal_rl, literal_sft
from tests.methods.compare import LONGEST, check_against_literal, forget_verdict, free_groups
from tests.objectives.tables import a_group, a_trace

from bimetal.core.types import Signals
from bimetal.methods.expert_iteration import Config, build
from bimetal.objectives.method import RunShape

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


def transcribed(*, at_least=1.0, cap=4, prefer="best", aggregate="token_mean"):
    return lambda samples: literal.expert_iteration(
        samples.groups, at_least=at_least, cap=cap, prefer=prefer, aggregate=aggregate
    )


@pytest.mark.parametrize(
    ("seed", "options"),
    [
        (0, {}),
        (1, {"cap": 1, "prefer": "shortest"}),
        (1, {"cap": 2, "prefer": "first", "aggregate": "sequence_mean"}),
    ],
)
def test_expert_iteration_equals_its_literal_transcription(seed, options):
    own = {("kept" if name == "cap" else name): value for name, value in options.items()}
    check_against_literal(
        build(Config(**own), RUN), free_groups(seed), transcribed(**options), seed=seed, drift="some"
    )


def test_an_unknown_trace_is_never_kept():
    groups = forget_verdict(free_groups(0), 1, 2)
    check_against_literal(build(Config(), RUN), groups, transcribed(), seed=0, drift="none")


def test_without_a_cap_it_is_on_policy_sft_and_reinforce_without_a_baseline():
    def on_policy(samples):
        return literal_sft.on_policy_sft([s for group in samples.groups for s in group])

    def reinforce(samples):
        flat = [s for group in samples.groups for s in group]
        kept = [s for s in flat if s.reward == 1.0]
        return literal_rl.reinforce(
            kept, baseline=[0.0] * len(kept), off_policy="none", aggregate="token_mean"
        )

    for expected in (on_policy, reinforce):
        check_against_literal(build(Config(), RUN), free_groups(2), expected, seed=2, drift="none")


@pytest.mark.parametrize(
    ("prefer", "kept"), [("best", ["b", "d"]), ("first", ["a", "b"]), ("shortest", ["a", "d"])]
)
def test_which_two_of_four_stay(prefer, kept):
    sizes = {"a": (0.6, 2), "b": (1.0, 9), "c": (0.7, 7), "d": (0.9, 3), "e": (0.5, 1)}
    group = a_group(*(a_trace(name, reward=r, policy=n) for name, (r, n) in sizes.items()))
    method = build(Config(least_reward=0.6, kept=2, prefer=prefer), RUN)
    found = method.credit([group], Signals())
    assert [c.trace_id for c in found if c.weights] == kept
    assert {c.advantage for c in found if c.weights} == {1.0}
