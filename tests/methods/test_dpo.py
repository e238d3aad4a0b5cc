"""DPO against its literal transcription, online and offline, and its pairs."""

from __future__ import annotations

import math

import pytest
from tests.methods import literal_corrections as literal
from tests.methods.compare import LONGEST, check_against_literal, free_groups
from tests.objectives.tables import a_batch, a_group, a_trace, said, slope

from bimetal.core.types import Demonstration, Draft, GroupState, Message, Prompt, Signals
from bimetal.methods.dpo import VARIANTS, Config, build, two_demonstrations
from bimetal.objectives.method import Need, RunShape
from bimetal.testing.scene import drafted_groups

RUN = RunShape(max_response_tokens=LONGEST, group_size=4)


def transcribed(pairs, *, beta=0.1, smoothing=0.0, identity=False, imitation=0.0):
    return lambda samples: literal.dpo(
        pairs(samples), beta=beta, smoothing=smoothing, identity=identity, imitation=imitation
    )


def right_and_wrong(samples):
    """The first right and the first wrong response of each group that has both."""
    found = []
    for group in samples.groups:
        right = [s for s in group if s.reward == 1.0]
        wrong = [s for s in group if s.reward == 0.0]
        if right and wrong:
            found.append((right[0], wrong[0]))
    return found


@pytest.mark.parametrize(
    ("seed", "options", "literal_options"),
    [
        (0, {}, {}),
        (
            1,
            {"smoothing": 0.2, "beta": 0.5, "imitation": 0.3},
            {"smoothing": 0.2, "beta": 0.5, "imitation": 0.3},
        ),
        (2, VARIANTS["ipo"], {"identity": True}),
    ],
)
def test_online_dpo_equals_its_literal_transcription(seed, options, literal_options):
    expected = transcribed(right_and_wrong, **literal_options)
    metrics = check_against_literal(
        build(Config(**options), RUN), free_groups(seed), expected, seed=seed, drift="some"
    )
    assert math.isfinite(metrics.value("preference/margin"))


def test_offline_dpo_equals_its_literal_transcription():
    method = build(Config(imitation=0.5, **VARIANTS["dpo_offline"]), RUN)
    assert Need.REWARD not in method.needs
    # As drafted: the preferred demonstration, then the other. The literal view leaves unjudged traces out.
    groups = tuple(
        g for g in drafted_groups(method.mix, 4) if len(g.traces) == 2 and all(t.is_known for t in g.traces)
    )
    assert len(groups) > 1

    def pairs(samples):
        shown = samples.demonstrations
        return [(shown[i], shown[i + 1]) for i in range(0, len(shown), 2)]

    check_against_literal(method, groups, transcribed(pairs, imitation=0.5), seed=4, drift="none")


def test_the_margin_and_its_slope_worked_by_hand():
    loss = build(Config(beta=0.5), RUN).terms[0].loss
    batch = a_batch(
        {"preference": [[1, 1], [1, 0], [0, 0]]},
        advantages=[[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]],
        group=[0, 0, 0],
        reference_logprobs=[[-1.0, -2.0], [-1.0, math.nan], [math.nan] * 2],
    )
    policy = said([[-0.5, -1.0], [-2.0, math.nan], [math.inf] * 2])
    found = loss(batch, policy, batch.members["preference"])
    # Log-ratios 0.5 + 1 of the preferred and -1 of the other: margin 2.5 nats, h = 1.25.
    value = math.log(1 + math.exp(-1.25))
    assert found.tolist() == [pytest.approx([value, value]), pytest.approx([value, 0]), [0.0, 0.0]]
    # d loss / d log p = -+ beta sigmoid(-h), once for each of the 3 tokens that carry the loss.
    each = 3 * 0.5 / (1 + math.exp(1.25))
    assert slope(found, policy.logprobs) == [
        pytest.approx([-each, -each]),
        pytest.approx([each, 0]),
        [0.0, 0.0],
    ]
    seen = loss.watch(batch, policy, batch.members["preference"])
    assert float(seen["preference/margin"][0, 0].detach()) == pytest.approx(2.5)
    assert float(seen["preference/accuracy"][1, 0]) == 1.0


def test_where_the_policy_is_the_reference_the_loss_is_log_two_and_ipos_a_quarter_of_beta_to_minus_two():
    batch = a_batch(
        {"preference": [[1], [1]]},
        advantages=[[1.0], [-1.0]],
        group=[7, 7],
        reference_logprobs=[[-1.0], [-3.0]],
    )
    policy = said([[-1.0], [-3.0]])
    for options, value in (({}, math.log(2)), ({"smoothing": 0.3}, math.log(2)), ({"loss": "squared"}, 25.0)):
        loss = build(Config(**options), RUN).terms[0].loss(batch, policy, batch.members["preference"])
        assert loss.tolist() == [[pytest.approx(value)], [pytest.approx(value)]]


def test_a_group_of_equal_rewards_has_no_pair_and_unknown_traces_are_in_none():
    method = build(Config(imitation=1.0), RUN)
    equal = a_group(a_trace("a", policy=1), a_trace("b", policy=1), a_trace("c", reward=None, policy=1))
    mixed = a_group(
        a_trace("d", reward=None, policy=1),
        a_trace("e", reward=0.5, policy=1),
        a_trace("f", reward=0.0, policy=1),
        a_trace("g", reward=1.0, policy=1),
    )
    found = method.credit([equal, mixed], Signals())
    assert [(c.trace_id, c.advantage) for c in found if c.weights] == [("f", -1.0), ("g", 1.0)]
    assert [[w.term for w in c.weights] for c in found if c.weights] == [
        ["preference"],
        ["preference", "imitation"],
    ]


@pytest.mark.parametrize(
    ("qualities", "pair"),
    [
        ((0.2, 0.9, 0.5), (1, 0)),
        ((None, None, None), (0, 2)),
        ((None, 0.5, 0.1), (1, 2)),
        ((0.5, 0.5), ()),
        ((None, 0.5), ()),
        ((0.5,), ()),
        ((), ()),
    ],
)
def test_two_demonstrations_are_drafted_by_quality(qualities, pair):
    prompt = Prompt(id="p", domain="d", messages=(Message(role="user", content="?"),))
    shown = tuple(Demonstration(prompt_id="p", text="", quality=q) for q in qualities)
    state = GroupState(prompt=prompt, visit=0, size=4, progress=0.0, demonstrations=shown)
    assert two_demonstrations(state) == tuple(Draft(prefix_fraction=1.0, demonstration=i) for i in pair)
