"""Tests of bimetal.backends.local; the protocol itself is examined in tests/conformance/test_backends.py."""

# long: tests mirror the modules, one file each, and this module decides what every rollout holds
from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from bimetal.backends.local import Config, connect
from bimetal.core.errors import RolloutError
from bimetal.core.types import Finish
from bimetal.rollout.backend import Request, Sampling

VOCABULARY = 31


def text_of(ids):
    return "".join(chr(ord("a") + i % 26) for i in ids)


def built(make, config, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make(config).eval()


def llama(seed=0, **changes):
    config = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 48,
        "initializer_range": 0.3,
    }
    return built(LlamaForCausalLM, LlamaConfig(**config | changes), seed)


def gpt2():
    return built(
        GPT2LMHeadModel,
        GPT2Config(
            vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=24, initializer_range=0.5
        ),
    )


def backend_of(module, decode=text_of, **options):
    return connect(Config(**options), module=module, pad_token_id=0, decode=decode)


def request(name, context=(1, 2, 3), key=0, **sampling):
    return Request(id=str(name), context_ids=tuple(context), key=key, sampling=Sampling(**sampling))


def crowd(count, size=12):
    """Requests of many lengths, temperatures and streams."""
    return [
        request(n, [1 + (n * 7 + k) % 29 for k in range(1 + n % 9)], key=100 + n, max_tokens=size - n % 5)
        for n in range(count)
    ]


@given(members=st.lists(st.integers(0, 30), min_size=1, max_size=7, unique=True), slot=st.integers(0, 6))
@settings(max_examples=25)
def test_fixed_slots_give_the_same_bits_whatever_else_is_in_the_batch(members, slot):
    backend = backend_of(llama(), fixed_slots=7, max_context=12)
    one = request("one", (5, 6, 7, 8), key=77, max_tokens=10)
    others = [r for r in crowd(31) if int(r.id) in members]
    slot = min(slot, len(others))
    empty = [request(f"empty {n}", (0,), max_tokens=1) for n in range(slot)]
    (alone,) = [o for o in backend.generate([*empty, one]) if o.request_id == "one"]
    (crowded,) = [
        o for o in backend.generate([*others[:slot], one, *others[slot:6]]) if o.request_id == "one"
    ]
    assert crowded == alone


def test_fixed_slots_of_full_contexts_run_the_same_kernel():
    backend = backend_of(llama(), fixed_slots=2, max_context=4)
    one = request("one", (5, 6, 7, 8), key=77, max_tokens=10)
    full, short = request("b", (9, 9, 9, 9), max_tokens=10), request("b", (9,), max_tokens=10)
    assert backend.generate([one, full])[0] == backend.generate([one, short])[0]


def test_tokens_do_not_depend_on_the_size_of_waves():
    requests = crowd(23)
    small, large = backend_of(llama(), max_batch=3), backend_of(llama(), max_batch=64)
    assert [o.token_ids for o in small.generate(requests)] == [o.token_ids for o in large.generate(requests)]


def test_requests_with_one_context_differ_by_their_stream_alone():
    backend = backend_of(llama())
    outputs = backend.generate([request(n, key=n // 2, max_tokens=10) for n in range(8)])
    tokens = [o.token_ids for o in outputs]
    assert tokens[0::2] == tokens[1::2]
    assert len(set(tokens)) == 4


def test_finished_rows_leave_and_the_others_go_on_unharmed():
    module = llama()
    requests = [request(n, key=n, max_tokens=1 + 2 * n) for n in range(12)]
    together = backend_of(module).generate(requests)
    assert [len(o.token_ids) for o in together] == [1 + 2 * n for n in range(12)]
    for one, output in zip(requests, together, strict=True):
        (alone,) = backend_of(module).generate([one])
        assert alone.token_ids == output.token_ids
        assert alone.logprobs == pytest.approx(output.logprobs, abs=1e-5)


def test_an_answer_ends_at_the_models_last_position():
    for module, positions in ((gpt2(), 24), (llama(), 48)):
        (output,) = backend_of(module).generate([request("a", [1] * (positions - 3), max_tokens=50)])
        assert len(output.token_ids) == 3
        assert output.finish is Finish.LENGTH


def test_a_short_row_may_finish_while_a_row_at_the_last_position_waits():
    backend = backend_of(gpt2(), fixed_slots=2, max_context=23)
    long, short = backend.generate([request("a", [1] * 22, max_tokens=9), request("b", [2], max_tokens=20)])
    assert (len(long.token_ids), len(short.token_ids)) == (2, 20)


@pytest.mark.parametrize(
    ("context", "options", "message"),
    [
        ((), {}, "context is empty"),
        ((1,) * 48, {}, "48 tokens; the model has 48 positions"),
        ((VOCABULARY,), {}, "outside the model's vocabulary of 31"),
        ((-1,), {}, "outside the model's vocabulary of 31"),
        ((1,) * 9, {"fixed_slots": 2, "max_context": 8}, "raise backend.max_context"),
    ],
)
def test_a_context_that_cannot_be_served_is_named(context, options, message):
    with pytest.raises(RolloutError, match=f"request bad: .*{message}"):
        backend_of(llama(), **options).generate([request("good"), request("bad", context)])


def test_no_token_asked_for_is_an_error():
    with pytest.raises(RolloutError, match="max_tokens must be at least 1; found 0"):
        backend_of(llama()).generate([request("a", max_tokens=0)])


def test_two_requests_of_one_id_are_an_error():
    with pytest.raises(RolloutError, match="same id"):
        backend_of(llama()).generate([request("a"), request("a")])


def test_cancelled_requests_end_with_what_they_have():
    calls = []

    def decode(ids):
        # Watching "b" takes two decodings per token, so this cancels "a" after its third token.
        calls.append(ids)
        if len(calls) == 6:
            backend.cancel(["a"])
        return text_of(ids)

    backend = backend_of(llama(), decode)
    a, b, c = backend.generate(
        [
            request("a", key=1, max_tokens=20),
            request("b", key=2, max_tokens=20, stop_strings=("never!",)),
            request("c", key=3, max_tokens=20),
        ]
    )
    assert (a.finish, b.finish, c.finish) == (Finish.CANCELLED, Finish.LENGTH, Finish.LENGTH)
    assert len(a.token_ids) == len(a.logprobs) == 3
    assert len(c.token_ids) == 20
    (whole,) = backend_of(llama()).generate([request("a", key=1, max_tokens=20)])
    assert a.token_ids == whole.token_ids[:3]


def test_requests_of_later_waves_can_be_cancelled_before_they_begin():
    def decode(ids):
        backend.cancel(["later"])
        return text_of(ids)

    backend = backend_of(llama(), decode, max_batch=1)
    first, later = backend.generate(
        [
            request("first", (1,), max_tokens=4, stop_strings=("never!",)),
            request("later", (1, 2), max_tokens=4),
        ]
    )
    assert len(first.token_ids) == 4
    assert (later.token_ids, later.finish) == ((), Finish.CANCELLED)


def test_cancel_is_safe_from_another_thread():
    reached, go_on = threading.Event(), threading.Event()

    def decode(ids):
        reached.set()
        assert go_on.wait(60)
        return text_of(ids)

    backend = backend_of(llama(), decode)
    outputs = []
    thread = threading.Thread(
        target=lambda: outputs.extend(
            backend.generate(
                [request("a", max_tokens=40, stop_strings=("never!",)), request("b", max_tokens=40)]
            )
        )
    )
    thread.start()
    assert reached.wait(60)
    backend.cancel(["a", "b"])
    go_on.set()
    thread.join(60)
    assert [o.finish for o in outputs] == [Finish.CANCELLED] * 2
    assert [len(o.token_ids) for o in outputs] == [1, 1]


def test_the_module_keeps_its_training_flags():
    module = llama()
    module.train()
    module.model.layers[0].eval()
    backend_of(module).generate([request("a")])
    assert module.training
    assert not module.model.layers[0].training
    assert module.model.layers[1].training


def test_dropout_is_off_while_writing():
    module = llama(attention_dropout=0.9)
    module.train()
    outputs = [backend_of(module).generate([request("a", temperature=0.0, max_tokens=20)]) for _ in range(3)]
    assert outputs[0] == outputs[1] == outputs[2]


def test_the_module_can_be_trained_after_it_wrote():
    module = llama()
    backend_of(module).generate([request("a")])
    module(input_ids=torch.tensor([[1, 2, 3]])).logits.sum().backward()
    assert module.lm_head.weight.grad is not None


def test_weights_changed_in_place_are_used():
    module = llama(0)
    backend = backend_of(module)
    before = backend.generate([request("a", temperature=0.0)])
    module.load_state_dict(llama(1).state_dict())
    backend.load_weights(None, 1)
    after = backend.generate([request("a", temperature=0.0)])
    assert after[0].token_ids != before[0].token_ids
    assert (before[0].version, after[0].version) == (0, 1)


def test_weights_come_from_a_folder_with_safetensors(tmp_path):
    save_file(llama(1).state_dict(), tmp_path / "model.safetensors")
    backend = backend_of(llama(0))
    backend.load_weights(tmp_path, 3)
    expected = backend_of(llama(1)).generate([request("a", temperature=0.0)])
    assert backend.generate([request("a", temperature=0.0)])[0].token_ids == expected[0].token_ids


def test_tied_weights_may_be_stored_once(tmp_path):
    llama(1, tie_word_embeddings=True).save_pretrained(tmp_path)
    backend = backend_of(llama(0, tie_word_embeddings=True))
    backend.load_weights(str(tmp_path), 3)
    expected = backend_of(llama(1, tie_word_embeddings=True)).generate([request("a", temperature=0.0)])
    assert backend.generate([request("a", temperature=0.0)])[0].token_ids == expected[0].token_ids


def test_weights_that_do_not_fit_are_refused_and_nothing_changes(tmp_path):
    module = llama()
    backend = backend_of(module)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    with pytest.raises(RolloutError, match="1 unknown names"):
        backend.load_weights({**before, "stranger": torch.zeros(1)}, 5)
    with pytest.raises(RolloutError, match="missing ones"):
        backend.load_weights({"lm_head.weight": before["lm_head.weight"]}, 5)
    with pytest.raises(RolloutError, match="no safetensors file"):
        backend.load_weights(tmp_path, 5)
    with pytest.raises(RolloutError, match="found int"):
        backend.load_weights(3, 5)
    assert backend.health().version == 0
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_logits_that_are_not_finite_are_an_error_that_names_a_request():
    module = llama()
    with torch.no_grad():
        module.lm_head.weight.fill_(float("nan"))
    for temperature in (0.0, 1.0):
        with pytest.raises(RolloutError, match="not finite; found for 2 requests, first a"):
            backend_of(module).generate([request("a", temperature=temperature), request("b")])


def test_autocast_is_the_trainers():
    module = llama()
    half = connect(Config(), module=module, pad_token_id=0, decode=text_of, autocast=torch.bfloat16)
    (output,) = half.generate([request("a", temperature=0.0, max_tokens=4)])
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        logits = module(input_ids=torch.tensor([[1, 2, 3, *output.token_ids]])).logits[0].float()
    expected = torch.log_softmax(logits, dim=-1)
    for n, token in enumerate(output.token_ids):
        # Rounding of bfloat16 to 8 bits moves a logit of size 4 by up to 4 / 256.
        assert output.logprobs[n] == pytest.approx(expected[2 + n, token].item(), abs=0.03)


@pytest.mark.parametrize("stops", [(), (7,)])
def test_stop_ids_beyond_the_vocabulary_are_ignored(stops):
    (output,) = backend_of(llama()).generate([request("a", stop_token_ids=(-1, VOCABULARY, *stops))])
    assert len(output.token_ids) >= 1
