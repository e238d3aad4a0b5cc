"""SmolLM2-135M-Instruct for real: converted, rendered, generating, agreeing with itself."""

from __future__ import annotations

import pytest
import torch

from bimetal.backends.local import Config, connect
from bimetal.core.errors import ConfigError
from bimetal.core.types import Finish, Message
from bimetal.data.chat import Renderer
from bimetal.rollout.backend import Request, Sampling
from bimetal.trainer.embedded import is_intact, load_embedded, smollm2_folder

pytestmark = [pytest.mark.smollm2, pytest.mark.slow]


@pytest.fixture(scope="module")
def smollm2():
    try:
        return load_embedded("lab/smollm2", seed=0)
    except ConfigError as error:
        pytest.skip(f"lab/smollm2 cannot be made: {error}")


def test_the_converted_folder_is_whole_and_plain(smollm2):
    model, _ = smollm2
    assert is_intact(smollm2_folder())
    assert not hasattr(model.config, "quantization_config")
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert 130e6 < sum(p.numel() for p in model.parameters()) < 140e6


def test_prompts_are_the_templates_and_responses_end_where_they_should(smollm2):
    _, tokenizer = smollm2
    renderer = Renderer(tokenizer)
    renderer.check(roles=["system", "user", "assistant"])
    text = "What is 17 + 25?"
    expected = tokenizer.apply_chat_template([{"role": "user", "content": text}], add_generation_prompt=True)
    assert renderer.prompt_ids([Message(role="user", content=text)]) == tuple(expected["input_ids"])
    ids = renderer.response_ids("It is <|im_end|> 42.\n")
    assert ids[-1] == tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert ids.count(ids[-1]) == 1
    assert renderer.text_of(ids) == "It is <|im_end|> 42.\n"


def test_it_answers_and_its_logprobs_are_those_of_a_plain_forward(smollm2):
    model, tokenizer = smollm2
    renderer = Renderer(tokenizer)
    backend = connect(Config(), module=model, pad_token_id=0, decode=renderer.text_of)
    questions = ("What is the capital of France?", "Say hello.", "Name one planet. Answer in one word.")
    requests = [
        Request(
            id=question,
            context_ids=renderer.prompt_ids([Message(role="user", content=question)]),
            key=7,
            sampling=Sampling(temperature=t, max_tokens=24, stop_token_ids=renderer.stop_token_ids),
        )
        for question, t in zip(questions, (0.0, 0.7, 1.0), strict=True)
    ]
    outputs = backend.generate(requests)
    assert "Paris" in renderer.text_of(outputs[0].token_ids)
    for request, output in zip(requests, outputs, strict=True):
        assert output.finish in {Finish.STOP, Finish.LENGTH}
        ids = [*request.context_ids, *output.token_ids]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0].float()
        scaled = torch.log_softmax(logits / (request.sampling.temperature or 1.0), dim=-1)
        first = len(request.context_ids) - 1
        expected = [scaled[first + n, token].item() for n, token in enumerate(output.token_ids)]
        assert list(output.logprobs) == pytest.approx(expected, abs=1e-4)
