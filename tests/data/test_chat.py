"""Tests of bimetal.data.chat, with tokenizers that are built here and with that of lab/nano."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from bimetal.core.errors import ConfigError, DataError
from bimetal.core.types import Message
from bimetal.data.chat import Renderer
from bimetal.trainer.embedded import nano_tokenizer

CHATML = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL = ("<|im_start|>", "<|im_end|>", "<s>")


def tokenizer_with(template=CHATML, eos="<|im_end|>"):
    """A byte-level BPE that has merged newlines, words and brackets, as real ones have."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    corpus = ["assistant\n\n\n user answer <| |> im_end im_start <s> the answer is"] * 20
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(corpus, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, eos_token=eos, additional_special_tokens=[s for s in SPECIAL if s != eos]
    )
    tokenizer.chat_template = template
    return tokenizer


def user(text):
    return Message(role="user", content=text)


def template_ids(tokenizer, messages):
    chat = [{"role": m.role, "content": m.content} for m in messages]
    return tuple(tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=True)["input_ids"])


TOKENIZERS = {"chatml": cache(tokenizer_with), "nano": cache(nano_tokenizer)}
SPELLED = st.lists(st.sampled_from(["<|im_end|>", "<|end|>", "<", "|", "a", "\ue000"])).map("".join)
# No angle bracket, so that no control token is spelled; surrogates cannot be encoded by any tokenizer.
PLAIN = st.text(st.characters(exclude_characters="<", exclude_categories=["Cs"]), max_size=40)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(contents=st.lists(PLAIN, min_size=1, max_size=4))
def test_prompt_ids_are_the_templates(name, contents):
    tokenizer = TOKENIZERS[name]()
    messages = [Message(role=("user", "assistant")[n % 2], content=c) for n, c in enumerate(contents)]
    assert Renderer(tokenizer).prompt_ids(messages) == template_ids(tokenizer, messages)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=PLAIN)
def test_prompt_and_response_together_are_the_templates_conversation(name, text):
    tokenizer = TOKENIZERS[name]()
    renderer = Renderer(tokenizer)
    chat = [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": text}]
    whole = tuple(tokenizer.apply_chat_template(chat, tokenize=True)["input_ids"])
    ids = renderer.prompt_ids([user("1+1")]) + renderer.response_ids(text)
    if name == "chatml" and text.startswith("\n"):
        # The template's own ids merge the newline before the seam with those behind it; the policy's
        # cannot, because the prompt stands before it writes. The text is the same.
        assert tokenizer.decode(ids) == tokenizer.decode(whole[:-1])
    else:
        # What the template writes behind the end of the turn ("\n" in ChatML) is dropped.
        assert ids == whole[: len(ids)]
        assert len(whole) - len(ids) == {"chatml": 1, "nano": 0}[name]


@pytest.mark.parametrize("name", TOKENIZERS)
@given(text=st.text(max_size=40) | SPELLED)
def test_any_text_survives_the_way_to_ids_and_back(name, text):
    renderer = Renderer(TOKENIZERS[name]())
    ids = renderer.response_ids(text)
    expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert renderer.text_of(ids) == expected
    # The only control token is the one that the template writes.
    specials = set(renderer.tokenizer.all_special_ids)
    assert [i for i in ids if i in specials] == [renderer.end_of_turn_id]


def test_a_control_token_in_a_prompt_is_plain_text_and_the_rest_is_the_templates():
    tokenizer = tokenizer_with()
    renderer = Renderer(tokenizer)
    text = "say <|im_end|> twice: <|im_end|>"
    ids = renderer.prompt_ids([user(text)])
    template = template_ids(tokenizer, [user(text)])
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    # Three of them by the template, of which two come from the text; one is left.
    assert (template.count(end), ids.count(end)) == (3, 1)
    assert tokenizer.decode(ids) == tokenizer.decode(template)
    spelled = tuple(tokenizer("<|im_end|>", add_special_tokens=False, split_special_tokens=True)["input_ids"])
    expected = []
    for place, token in enumerate(template):
        from_text = token == end and template[:place].count(end) < 2
        expected += spelled if from_text else (token,)
    assert ids == tuple(expected)


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("a\ud800b", "a\ufffdb"),
        ("\udc00", "\ufffd"),
        ("end\ud83d", "end\ufffd"),
        # Two halves that belong together are the character.
        ("\ud83d\ude00", "\U0001f600"),
        ("nul\x00nul", "nul\x00nul"),
        ("\u202eright to left", "\u202eright to left"),
        ("\ufeffmark", "\ufeffmark"),
    ],
)
@pytest.mark.parametrize("name", TOKENIZERS)
def test_hostile_characters_are_rendered(name, text, rendered):
    renderer = Renderer(TOKENIZERS[name]())
    assert renderer.text_of(renderer.response_ids(text)) == rendered
    assert rendered in renderer.text_of(renderer.prompt_ids([user(text)]))


def test_a_long_text_without_spaces_is_rendered():
    renderer = Renderer(nano_tokenizer())
    assert renderer.text_of(renderer.response_ids("x" * 100_000)) == "x" * 100_000


@given(ids=st.lists(st.integers(-5, 1000), max_size=30))
def test_any_ids_have_a_text(ids):
    assert isinstance(Renderer(nano_tokenizer()).text_of(ids), str)


def test_stop_ids_are_those_of_text_turn_and_generation_config():
    tokenizer = tokenizer_with(eos="<s>")
    renderer = Renderer(tokenizer, stop_token_ids=[77])
    end_of_turn, eos = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<s>"])
    assert renderer.end_of_turn_id == end_of_turn
    assert set(renderer.stop_token_ids) == {end_of_turn, eos, 77}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_sound_tokenizers_pass_the_check(name):
    Renderer(TOKENIZERS[name]()).check(roles=["user", "system", "assistant"])


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (lambda: tokenizer_with(template=None), "no chat template; found .*; use an instruct model"),
        (lambda: tokenizer_with(eos=None), "no end-of-text token.*set eos_token"),
        (
            lambda: tokenizer_with(CHATML.replace("'<|im_start|>assistant\n'", "'<s>'")),
            "lacks the prefix property; found .* use a template",
        ),
        (
            lambda: tokenizer_with("{% for m in messages %}{{ m['content'] + '\n' }}{% endfor %}"),
            "writes no end-of-turn token; found .* behind the response",
        ),
        (
            lambda: tokenizer_with(
                "{% if messages|length > 1 %}{{ raise_exception('one only') }}{% endif %}x"
            ),
            "refuses messages with roles .user, assistant.: one only",
        ),
    ],
)
def test_a_tokenizer_that_cannot_be_trained_with_is_refused(tokenizer, message):
    with pytest.raises(ConfigError, match=message):
        Renderer(tokenizer()).check()


def test_a_role_the_template_refuses_is_named():
    with pytest.raises(ConfigError, match=r"refuses the role 'tool'.*unknown role tool"):
        Renderer(nano_tokenizer()).check(roles=["user", "tool"])
    with pytest.raises(DataError, match=r"refuses messages with roles .tool.: unknown role tool"):
        Renderer(nano_tokenizer()).prompt_ids([Message(role="tool", content="4")])


def test_a_prompt_without_messages_is_an_error():
    with pytest.raises(DataError, match="no messages"):
        Renderer(nano_tokenizer()).prompt_ids([])


def test_a_template_that_writes_before_the_response_is_followed():
    thinking = CHATML.replace(
        "m['content']", "('<think></think>' + m['content'] if m['role'] == 'assistant' else m['content'])"
    )
    renderer = Renderer(tokenizer_with(thinking))
    renderer.check()
    assert renderer.text_of(renderer.response_ids("4")) == "<think></think>4"


def test_no_private_use_character_left_for_marks_is_an_error():
    every = "".join(map(chr, range(0xE000, 0xF900)))
    with pytest.raises(DataError, match="private-use"):
        Renderer(nano_tokenizer()).response_ids(every + "<|end|>")


def test_a_template_that_cuts_or_changes_a_response_is_refused():
    thinking = CHATML.replace("m['content']", "(m['content'].split('</think>')[-1])")
    assert thinking != CHATML
    renderer = Renderer(tokenizer_with(thinking))
    assert renderer.text_of(renderer.response_ids("plain")) == "plain"
    with pytest.raises(DataError, match="does not write the response as it stands"):
        renderer.response_ids("<think>one and one</think>2")
    shouting = Renderer(tokenizer_with(CHATML.replace("m['content']", "(m['content'] | upper)")))
    with pytest.raises(ConfigError, match="does not write an assistant's message as it stands"):
        shouting.check()
