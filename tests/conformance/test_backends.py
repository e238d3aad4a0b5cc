"""Every built-in backend keeps the protocol of bimetal.rollout.backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from bimetal.backends import local, scripted
from bimetal.core.catalogue import names
from bimetal.core.errors import RolloutError
from bimetal.testing.backends import CHECKS, Subject

VOCABULARY = 29
CONTEXTS = ((3, 4, 5), (7,), (3, 4, 5, 6, 8, 9, 10), (11, 12))


def text_of(ids):
    """Two letters per token, so that a stop string of three letters always spans tokens."""
    return "".join(chr(ord("a") + i % 26) + chr(ord("A") + i % 26) for i in ids)


def tiny_llama() -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
            initializer_range=0.5, bos_token_id=None, eos_token_id=None,
        )
    )  # fmt: skip


def tiny_qwen() -> Qwen2ForCausalLM:
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
            initializer_range=0.5, tie_word_embeddings=True, bos_token_id=None, eos_token_id=None,
        )
    )  # fmt: skip


def tiny_gpt2() -> GPT2LMHeadModel:
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=64,
            initializer_range=0.5, bos_token_id=None, eos_token_id=None,
        )
    )  # fmt: skip


def built(make: Callable[[], torch.nn.Module], seed: int) -> torch.nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make().eval()


def local_subject(make: Callable[[], torch.nn.Module], options: local.Config) -> Subject:
    module = built(make, 0)

    def score(context, answer, temperature):
        with torch.no_grad():
            logits = module(input_ids=torch.tensor([[*context, *answer]])).logits[0].float()
        logprobs = torch.log_softmax(logits / temperature, dim=-1)
        return [float(logprobs[len(context) - 1 + n, token]) for n, token in enumerate(answer)]

    return Subject(
        connect=lambda: local.connect(options, module=module, pad_token_id=0, decode=text_of),
        contexts=CONTEXTS, vocabulary=VOCABULARY, decode=text_of, score=score,
        other_weights=built(make, 1).state_dict(),
    )  # fmt: skip


def scripted_subject() -> Subject:
    answers = ((1, 2, 3, 4, 5, 6, 7, 8, 9), (9, 8, 7, 6, 5, 4, 3, 2, 1), (5,) * 9, (1, 2) * 5)
    replies = tuple(
        scripted.Reply(context_ids=context, token_ids=answer)
        for context, answer in zip(CONTEXTS, answers, strict=True)
    )
    return Subject(
        connect=lambda: scripted.connect(scripted.Config(replies=replies), decode=text_of),
        contexts=CONTEXTS, vocabulary=VOCABULARY, decode=text_of,
        other_weights=scripted.Config(default=scripted.Reply(token_ids=(1,) * 9)),
    )  # fmt: skip


SUBJECTS = {
    "local-llama": lambda: local_subject(tiny_llama, local.Config()),
    "local-qwen2": lambda: local_subject(tiny_qwen, local.Config()),
    "local-gpt2": lambda: local_subject(tiny_gpt2, local.Config(max_batch=2)),
    "local-fixed": lambda: local_subject(tiny_llama, local.Config(fixed_slots=3, max_context=16)),
    "scripted": scripted_subject,
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", SUBJECTS)
def test_backend_conforms(name, check):
    check(SUBJECTS[name]())


def test_every_built_in_backend_is_examined():
    assert {name.split("-")[0] for name in SUBJECTS} >= set(names("backends"))


class Faulty:
    """A scripted backend with one fault: in what it is asked, in what it answers, or in what it ignores."""

    def __init__(self, inner, *, ask=lambda r: r, answer=lambda outputs, _call: outputs, ignores=()):
        self._inner = inner
        self._ask = ask
        self._answer = answer
        self._ignores = ignores
        self._calls = 0

    def generate(self, requests):
        self._calls += 1
        return self._answer(self._inner.generate([self._ask(r) for r in requests]), self._calls)

    def load_weights(self, handle, version):
        if "load_weights" not in self._ignores:
            self._inner.load_weights(handle, version)

    def cancel(self, request_ids):
        if request_ids and "cancel" in self._ignores:
            self._inner.close()

    def health(self):
        return self._inner.health()

    def close(self):
        if "close" not in self._ignores:
            self._inner.close()


def without_stops(request):
    return replace(request, sampling=replace(request.sampling, stop_token_ids=(), stop_strings=()))


def second_call_differs(outputs, call):
    return [replace(o, token_ids=o.token_ids[::-1]) for o in outputs] if call == 2 else outputs


FAULTS = {
    "answers_every_request_in_order": {"answer": lambda outputs, _call: outputs[::-1]},
    "stays_within_length_and_vocabulary": {
        "answer": lambda outputs, _call: [
            replace(o, token_ids=(VOCABULARY,) * len(o.token_ids)) for o in outputs
        ]
    },
    "stops_at_a_stop_token_and_keeps_it": {"ask": without_stops},
    "stops_at_a_stop_string_across_tokens": {"ask": without_stops},
    "greedy_is_deterministic": {"answer": second_call_differs},
    "the_same_call_gives_the_same_outputs": {"answer": second_call_differs},
    "a_continuation_equals_the_whole_run": {"answer": second_call_differs},
    "logprobs_agree_with_the_trainer": {},
    "new_weights_take_effect": {"ignores": ("load_weights",)},
    "cancelling_the_unknown_is_harmless": {"ignores": ("cancel",)},
    "closes_twice_and_serves_no_more": {"ignores": ("close",)},
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_check_refuses_a_backend_that_breaks_its_promise(check):
    sound = scripted_subject()
    # Every scripted log-probability is 0, so a trainer that says -1 disagrees.
    broken = replace(
        sound,
        connect=lambda: Faulty(sound.connect(), **FAULTS[check.__name__]),
        score=lambda _context, answer, _temperature: [-1.0] * len(answer),
    )
    with pytest.raises((AssertionError, RolloutError)):
        check(broken)
