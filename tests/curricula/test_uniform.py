"""Tests of bimetal.curricula.uniform."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bimetal.core.errors import CheckpointError, ConfigError
from bimetal.core.streams import Streams
from bimetal.core.types import PromptId
from bimetal.curricula.uniform import Config, build
from bimetal.rollout.curriculum import Candidate, Curriculum


def candidates(**pools):
    """Pool name -> (size, weight)."""
    return [
        Candidate(prompt_id=PromptId(f"{pool}{n}"), pool=pool, weight=weight)
        for pool, (size, weight) in pools.items()
        for n in range(size)
    ]


def made(seed=1, **pools):
    return build(Config(), candidates(**pools), Streams(seed))


def test_it_is_a_curriculum():
    assert isinstance(made(a=(1, 1.0)), Curriculum)


def test_every_prompt_comes_once_per_pass_in_another_order_each_time():
    curriculum = made(a=(10, 1.0))
    passes = [curriculum.draw(10) for _ in range(3)]
    assert all(sorted(one) == sorted(passes[0]) and len(set(one)) == 10 for one in passes)
    assert len({tuple(one) for one in passes}) == 3


def test_how_the_draws_are_cut_does_not_matter():
    whole, parts = made(a=(5, 1.0), b=(3, 2.0)), made(a=(5, 1.0), b=(3, 2.0))
    assert whole.draw(30) == [name for count in (1, 2, 7, 20) for name in parts.draw(count)]


@given(st.lists(st.tuples(st.integers(1, 5), st.floats(0.1, 10.0)), min_size=1, max_size=4))
def test_at_any_time_every_pool_has_had_its_share_to_within_one_prompt_per_pool(pools):
    curriculum = made(**{f"pool{n}_": pool for n, pool in enumerate(pools)})
    total = sum(weight for _, weight in pools)
    drawn: Counter[str] = Counter()
    for count in range(1, 60):
        (name,) = curriculum.draw(1)
        drawn[name.partition("_")[0]] += 1
        for number, (_, weight) in enumerate(pools):
            assert abs(drawn[f"pool{number}"] - count * weight / total) < len(pools)


def test_weights_count_for_pools_whatever_their_sizes():
    drawn = Counter(name[0] for name in made(a=(2, 1.0), b=(50, 3.0)).draw(400))
    assert drawn == {"a": 100, "b": 300}


def test_a_pools_order_does_not_depend_on_the_other_pools():
    alone = made(a=(8, 1.0)).draw(16)
    together = [name for name in made(a=(8, 1.0), b=(3, 1.0)).draw(32) if name.startswith("a")]
    assert together == alone


def test_passes_are_counted():
    curriculum = made(a=(4, 1.0))
    assert curriculum.metrics() == {"passes": 0.0}
    curriculum.draw(6)
    assert curriculum.metrics() == {"passes": 1.5}


def test_a_state_of_other_pools_is_refused():
    state = made(a=(4, 1.0)).state_dict()
    with pytest.raises(CheckpointError, match=r"state is of pools \['a'\]; this run has \['b'\]"):
        made(b=(4, 1.0)).load_state_dict(state)


def test_no_candidates_are_an_error():
    with pytest.raises(ConfigError, match="no prompts to draw"):
        made()
