"""Tests of bimetal.trainer.accounting: costs by hand (design contract C6)."""

from __future__ import annotations

from dataclasses import replace

from tests.rollout.scene import CORRECT, prompt, trace

from bimetal.core.budget import Currency, FlopModel
from bimetal.core.types import Group, Origin, Segment, Stream
from bimetal.methods import grpo
from bimetal.objectives.method import RunShape
from bimetal.testing.tiny import VOCABULARY, random_groups, tiny_policy
from bimetal.trainer.accounting import flop_model, pass_cost, rollout_cost, update_cost
from bimetal.trainer.signals import Passes, wanted

MODEL = FlopModel(matrix_parameters=100, layers=2, attention_width=3, hidden=5, vocabulary=7)
# A token in the layers: 2 * 100; per attended position: 4 * 2 * 3 = 24; its logits: 2 * 5 * 7 = 70.

PROMPT = Segment(origin=Origin.PROMPT, token_ids=(1, 2))
WRITTEN = Segment(origin=Origin.POLICY, token_ids=(3, 4, 5), logprobs=(0.0, 0.0, 0.0))
SHOWN = Segment(origin=Origin.DEMONSTRATION, token_ids=(3,))


def one(*segments, verdict=None):
    return replace(trace("a"), contexts=(segments,), verdict=verdict)


def group(*traces):
    return Group(prompt=prompt("p"), visit=0, traces=traces)


def test_a_rollout_reads_its_prompt_and_feeds_all_but_its_last_token():
    cost = rollout_cost(MODEL, [group(one(PROMPT, WRITTEN, verdict=CORRECT))])
    # Prompt: 2 tokens attend 1 + 2 = 3 positions; two of the three tokens are fed and attend 3 + 4 = 7.
    # (2 + 2) * 200 + (3 + 7) * 24 + 3 * 70 = 800 + 240 + 210
    assert cost == {
        Currency.GENERATED_TOKENS: 3,
        Currency.FLOPS: 1250,
        Currency.VERDICTS: 1,
        Currency.VERIFIER_SECONDS: 0.25,
    }


def test_a_continued_prefix_is_read_and_only_the_policys_tokens_are_generated():
    cost = rollout_cost(MODEL, [group(one(PROMPT, SHOWN, WRITTEN))])
    # Read: 3 tokens attend 6; fed: 2 attend 4 + 5 = 9: 5 * 200 + 15 * 24 + 3 * 70 = 1000 + 360 + 210
    assert cost[Currency.FLOPS] == 1570
    assert cost[Currency.GENERATED_TOKENS] == 3
    assert cost[Currency.VERDICTS] == 0


def test_a_demonstration_generates_nothing_and_its_verdict_counts():
    cost = rollout_cost(MODEL, [group(one(PROMPT, SHOWN, verdict=CORRECT))])
    assert (cost[Currency.GENERATED_TOKENS], cost[Currency.FLOPS], cost[Currency.VERDICTS]) == (0, 0, 1)


def test_answers_add_up():
    a, b = one(PROMPT, WRITTEN, verdict=CORRECT), one(PROMPT, SHOWN, WRITTEN)
    assert rollout_cost(MODEL, [group(a, b)])[Currency.FLOPS] == 1250 + 1570
    assert rollout_cost(MODEL, [group(a), group(b)])[Currency.FLOPS] == 1250 + 1570
    assert rollout_cost(MODEL, [])[Currency.FLOPS] == 0


def test_a_pass_before_the_update_reads_all_but_the_last_token():
    a = one(PROMPT, WRITTEN)
    # 4 tokens attend 1 + 2 + 3 + 4 = 10: 4 * 200 + 10 * 24 = 1040; logits of 3 tokens: 210; critics: none.
    assert pass_cost(MODEL, Passes(old=(a,)))[Currency.FLOPS] == 1250
    assert pass_cost(MODEL, Passes(values=(a,)))[Currency.FLOPS] == 1040
    assert pass_cost(MODEL, Passes(old=(a,), reference=(a,), values=(a,))) == {
        Currency.FORWARD_TOKENS: 12,
        Currency.FLOPS: 3540,
    }
    assert pass_cost(MODEL, Passes()) == {Currency.FORWARD_TOKENS: 0, Currency.FLOPS: 0}


def test_an_update_is_three_forward_passes_per_pass_of_each_role():
    a, b = one(PROMPT, WRITTEN), one(PROMPT, SHOWN)
    # b: 2 tokens attend 3: 400 + 72 = 472; one logit: 70
    assert update_cost(MODEL, [a], passes={"policy": 1}) == {
        Currency.TRAINED_TOKENS: 3, Currency.FLOPS: 3 * 1250, Currency.OPTIMIZER_STEPS: 1,
    }  # fmt: skip
    cost = update_cost(MODEL, [a, b], passes={"policy": 2, "critic": 1})
    assert cost[Currency.FLOPS] == 3 * (2 * (1250 + 542) + (1040 + 472))
    assert cost[Currency.TRAINED_TOKENS] == 4


def test_the_shape_of_a_model_is_read_from_its_modules():
    found = flop_model(tiny_policy())
    # GPT-2 of width 16: per layer 16*48 + 16*16 + 16*64 + 64*16 = 3072; embeddings and head are left out.
    assert found == FlopModel(
        matrix_parameters=2 * 3072, layers=2, attention_width=16, hidden=16, vocabulary=VOCABULARY
    )


def test_groups_without_a_rollout_need_no_pass_of_the_old_policy():
    groups = random_groups(3, groups=2, size=3)
    lent = [t.id for g in groups if g.prompt.stream is Stream.DEMONSTRATIONS for t in g.traces]
    method = grpo.build(grpo.Config.model_validate({}), RunShape(max_response_tokens=12, group_size=3))
    found = [t.id for t in wanted(method, groups, updates=2).old]
    assert lent
    assert found == [t.id for g in groups for t in g.traces if t.id not in lent]
    assert wanted(method, groups, updates=1).old == ()
