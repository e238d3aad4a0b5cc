"""Tests of bimetal.trainer.stages: methods, roles and curricula of a run's stages."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from tests.rollout.scene import Judging

from bimetal.config.load import resolve
from bimetal.core.catalogue import LocalCode
from bimetal.core.errors import ConfigError, UnknownNameError
from bimetal.core.types import Stream
from bimetal.testing.tiny import tiny_policy
from bimetal.trainer.roles import CRITIC, POLICY, REFERENCE, Models, role_of
from bimetal.trainer.stages import assign_roles, begin, plan_stages
from bimetal.trainer.workset import load_workset

BASE = Path()
COUNT = {"train": 10, "selection": 2, "test": 2}


def recipe(*stages):
    return resolve(
        {
            "name": "s", "seed": 2, "model": {"name": "lab/nano"}, "budget": {"amount": 10},
            "domain": {
                "lab_arithmetic": {
                    "count": COUNT, "least_digits": 2, "most_digits": 2, "covered_share": 0.5
                }
            },
            "stage": [{"share": 1 / len(stages), "name": f"s{n}", **one} for n, one in enumerate(stages)],
        }
    )  # fmt: skip


def planned(*stages):
    made = recipe(*stages)
    work = load_workset(made, base=BASE, code=LocalCode.REFUSED)
    return made, work, plan_stages(made, work, base=BASE, code=LocalCode.REFUSED)


def begun(*stages, number=0):
    made, work, plans = planned(*stages)
    return begin(
        plans[number], made, work, judge=Judging(), stop_token_ids=(7,), base=BASE, code=LocalCode.REFUSED
    )


def named(name, **options):
    return {"method": {"name": name, **options}, "prompts_per_batch": 4}


def test_a_stage_asks_of_a_batch_what_its_table_says():
    stage = begun({**named("grpo"), "group_size": 3, "temperature": 0.5})
    assert (stage.name, stage.order.size) == ("s0", 3)
    sampling = stage.order.sampling
    assert (sampling.temperature, sampling.max_tokens, sampling.stop_token_ids) == (0.5, 128, (7,))
    assert (sampling.top_p, sampling.top_k) == (1.0, 0)
    assert stage.order.judge is not None
    assert begun(named("sft")).order.judge is None


def test_only_prompts_for_which_the_mix_drafts_are_drawn():
    stage = begun(named("sft"))
    drawn = [draw.prompt for _ in range(5) for draw in stage.draw({})]
    assert all(stage.work.library.of(p.id) for p in drawn)
    everyone = {draw.prompt.id for _ in range(5) for draw in begun(named("grpo")).draw({})}
    assert len({p.id for p in drawn}) < len(everyone)


def test_visits_are_counted_by_prompt_and_stream():
    stage = begun({**named("chord"), "demonstration_prompts": 2})
    visits: dict[str, int] = {}
    draws = [draw for _ in range(12) for draw in stage.draw(visits)]
    seen: dict[tuple[str, Stream], list[int]] = {}
    for draw in draws:
        seen.setdefault((draw.prompt.id, draw.prompt.stream), []).append(draw.visit)
    assert {stream for _, stream in seen} == set(Stream)
    assert all(numbers == list(range(len(numbers))) for numbers in seen.values())
    assert [d.prompt.stream for d in draws[:6]] == [Stream.MAIN] * 4 + [Stream.DEMONSTRATIONS] * 2


def test_two_methods_of_one_seed_see_the_same_prompts():
    one, other = begun(named("grpo")), begun(named("dr_grpo"))
    assert one.draw({}) == other.draw({})


@pytest.mark.parametrize("stage", [
    named("grpo"), {**named("chord"), "demonstration_prompts": 2}, named("sft"),
], ids=lambda one: one["method"]["name"])  # fmt: skip
def test_a_restored_stage_goes_on_as_the_one_that_was_not_interrupted(stage):
    first, visits = begun(stage), {}
    for _ in range(3):
        first.draw(visits)
    first.alarms.check({"reward/mean": 0.5, "policy/entropy": 1.0})
    second = begun(stage)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [second.draw(dict(visits)) for _ in range(4)] == [first.draw(dict(visits)) for _ in range(4)]
    assert second.alarms == first.alarms


def test_a_second_stage_has_draws_of_its_own_beginning():
    assert begun(named("sft"), named("grpo"), number=1).draw({}) == begun(named("grpo")).draw({})


@pytest.mark.parametrize(("stage", "error", "message"), [
    ({"method": {"name": "gropo"}}, UnknownNameError, "did you mean 'grpo'"),
    ({"method": {"name": "grpo", "nosuch": 1}}, UnknownNameError, r"stage.1.method.nosuch"),
    ({"method": {"name": "grpo"}, "curriculum": {"name": "unifrom"}}, UnknownNameError, "mean 'uniform'"),
    ({"method": {"name": "grpo"}, "curriculum": {"nosuch": 1}}, ConfigError, r"stage.1.curriculum"),
    ({"method": {"name": "grpo", "clip_low": 2.0}}, ConfigError, r"stage.1.method.clip_low"),
])  # fmt: skip
def test_a_mistake_in_any_stage_is_found_when_the_stages_are_planned(stage, error, message):
    with pytest.raises(error, match=message):
        planned(named("sft"), stage)


def models():
    return Models({POLICY: role_of(POLICY, tiny_policy())})


def test_each_stage_gets_a_fresh_optimizer_with_its_options():
    _, _, plans = planned(
        {**named("sft"), "optimizer": {"learning_rate": 0.5, "clip_norm": 2.0, "schedule": "linear"}},
        named("grpo"),
    )
    found = models()
    assign_roles(found, plans[0])
    first = found[POLICY].optimizer
    assert (first.rate.peak, first.rate.schedule, first.clip_norm) == (0.5, "linear", 2.0)
    assign_roles(found, plans[1])
    assert found[POLICY].optimizer is not first
    assert found[POLICY].optimizer.rate.peak == 1e-5
    assert math.isclose(found[POLICY].optimizer.clip_norm, 1.0, rel_tol=1e-12)


def test_a_reference_is_the_policy_as_the_stage_begins_and_never_moves():
    _, _, plans = planned(named("sft"), named("grpo", beta=0.1), named("grpo", beta=0.1), named("sft"))
    found = models()
    assign_roles(found, plans[0])
    assert list(found) == [POLICY]
    assign_roles(found, plans[1])
    weight = next(iter(found[POLICY].parameters.values()))
    anchor = dict(found[REFERENCE].module.named_parameters())
    assert not found[REFERENCE].trains
    assert not any(p.requires_grad for p in anchor.values())
    before = {name: p.clone() for name, p in anchor.items()}
    with torch.no_grad():
        weight.add_(1.0)
    assert all(torch.equal(p, before[name]) for name, p in anchor.items())
    assign_roles(found, plans[2])
    again = dict(found[REFERENCE].module.named_parameters())
    name = next(iter(found[POLICY].parameters))
    assert torch.equal(again[name], weight)
    assign_roles(found, plans[3])
    assert REFERENCE not in found


def test_a_critic_is_kept_from_stage_to_stage_and_trains_where_it_is_needed():
    _, _, plans = planned(named("ppo"), named("grpo"), named("ppo"))
    found = models()
    assign_roles(found, plans[0])
    critic = found[CRITIC].module
    assert set(found.trained) == {POLICY, CRITIC}
    assign_roles(found, plans[1])
    assert found.trained == (POLICY,)
    assign_roles(found, plans[2])
    assert found[CRITIC].module is critic
    assert set(found.trained) == {POLICY, CRITIC}
