"""Tests of bimetal.backends.scripted; tests/conformance examines the protocol itself."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from bimetal.backends.scripted import Config, Reply, connect
from bimetal.core.errors import ConfigError, RolloutError
from bimetal.core.types import Finish
from bimetal.rollout.backend import Request, Sampling


def encode(text):
    return [*text.encode(), 0]


def decode(ids):
    return bytes(i for i in ids if i).decode()


def ask(backend, name="a", context=(9,), **sampling):
    (output,) = backend.generate(
        [Request(id=name, context_ids=tuple(context), key=0, sampling=Sampling(**sampling))]
    )
    return output


def test_the_first_reply_whose_pattern_matches_answers():
    script = Config(
        replies=(Reply(request="math/*", text="4"), Reply(request="*/2", text="b")), default=Reply(text="?")
    )
    backend = connect(script, encode=encode)
    answers = [decode(ask(backend, name).token_ids) for name in ("math/2", "logic/2", "logic/3")]
    assert answers == ["4", "b", "?"]


def test_a_reply_with_a_context_answers_it_and_continues_its_own_beginnings():
    script = Config(replies=(Reply(context_ids=(1, 2), token_ids=(5, 6, 7)),), default=Reply(token_ids=(8,)))
    backend = connect(script)
    answers = [ask(backend, context=c).token_ids for c in ((1, 2), (1, 2, 5), (1, 2, 6), (1,))]
    assert answers == [(5, 6, 7), (6, 7), (8,), (8,)]


def test_an_answer_ends_by_stop_token_stop_string_length_or_script():
    backend = connect(Config(default=Reply(text="one two")), encode=encode, decode=decode)
    ends = [
        (decode(o.token_ids), o.finish)
        for o in (
            ask(backend),
            ask(backend, stop_token_ids=(ord(" "),)),
            ask(backend, stop_strings=("e t",)),
            ask(backend, max_tokens=3),
        )
    ]
    assert ends == [
        ("one two", Finish.STOP),
        ("one ", Finish.STOP),
        ("one t", Finish.STOP),
        ("one", Finish.LENGTH),
    ]


@pytest.mark.parametrize("finish", list(Finish))
def test_the_script_may_say_why_an_answer_ends(finish):
    assert ask(connect(Config(default=Reply(token_ids=(1,), finish=finish)))).finish is finish


def test_logprobs_are_the_scripts():
    assert ask(connect(Config(default=Reply(token_ids=(1, 2), logprob=-0.5)))).logprobs == (-0.5, -0.5)


def test_new_weights_may_bring_a_new_script():
    backend = connect(Config(default=Reply(token_ids=(1,))))
    backend.load_weights(Config(default=Reply(token_ids=(2,))), 4)
    assert (ask(backend).token_ids, ask(backend).version) == ((2,), 4)
    with pytest.raises(RolloutError, match="found str"):
        backend.load_weights("folder", 5)


def test_mistakes_in_a_script_are_named():
    with pytest.raises(ConfigError, match="pass Renderer"):
        connect(Config(default=Reply(text="a")))
    with pytest.raises(RolloutError, match="pass Renderer"):
        ask(connect(Config()), stop_strings=("a",))
    with pytest.raises(ValidationError, match="not both"):
        Reply(text="a", token_ids=(1,))
