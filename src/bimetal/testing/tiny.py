"""A tiny transformer and random traces, for tests that drive the real trainer in float64."""

from __future__ import annotations

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from bimetal.core.streams import Streams
from bimetal.core.types import (
    Draft,
    Finish,
    Group,
    Message,
    Origin,
    Prompt,
    PromptId,
    Segment,
    Status,
    Stream,
    Trace,
    TraceId,
    Verdict,
)
from bimetal.trainer.policy import CausalPolicy

VOCABULARY = 23


def tiny_policy(seed: int = 0, *, dtype: torch.dtype = torch.float64, scale: float = 1.0) -> CausalPolicy:
    """A two-layer model whose weights come from a named stream; ``scale`` spreads its distributions."""
    # GPT-2, because its norms and softmax stay in float64; Llama's are float32 whatever the weights are.
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=1024,
        attn_pdrop=0.0,
        embd_pdrop=0.0,
        resid_pdrop=0.0,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel._from_config(config, attn_implementation="sdpa", dtype=dtype).eval()
    noise = Streams(seed).generator("tiny-model")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                fresh = noise.standard_normal(tuple(parameter.shape)) * scale / np.sqrt(parameter.shape[1])
                parameter.copy_(torch.from_numpy(fresh).to(dtype))
    return CausalPolicy(model)


def random_groups(
    seed: int, *, groups: int = 4, size: int = 4, longest: int = 12, demonstrations: bool = True
) -> tuple[Group, ...]:
    """Groups of free rollouts of unequal length with random rewards.

    With ``demonstrations`` the last member of every group is one, and a fifth as many groups again (at least
    one) are a single demonstration of the second stream.
    """
    noise = Streams(seed).generator("tiny-traces")
    found = [
        _group(noise, n, size, longest, demonstrations=demonstrations, stream=Stream.MAIN)
        for n in range(groups)
    ]
    if demonstrations:
        extra = max(groups // 5, 1)
        found += [
            _group(noise, groups + n, 1, longest, demonstrations=True, stream=Stream.DEMONSTRATIONS)
            for n in range(extra)
        ]
    return tuple(found)


def _group(
    noise: np.random.Generator,
    number: int,
    size: int,
    longest: int,
    *,
    demonstrations: bool,
    stream: Stream,
) -> Group:
    prompt = Prompt(
        id=PromptId(f"tiny/{number}"),
        domain="tiny",
        messages=(Message(role="user", content="?"),),
        stream=stream,
    )
    head = Segment(origin=Origin.PROMPT, token_ids=_tokens(noise, int(noise.integers(2, 6))))
    traces = []
    for member in range(size):
        shown = demonstrations and member == size - 1
        body = _tokens(noise, int(noise.integers(1, longest + 1)))
        correct = bool(shown or noise.random() < 0.5)
        segment = Segment(
            origin=Origin.DEMONSTRATION if shown else Origin.POLICY,
            token_ids=body,
            logprobs=None if shown else tuple(float(-x) for x in noise.random(len(body))),
            version=0,
        )
        traces.append(
            Trace(
                id=TraceId(f"tiny/{number}/{member}"),
                prompt_id=prompt.id,
                domain="tiny",
                visit=0,
                member=member,
                draft=Draft(prefix_fraction=1.0 if shown else 0.0),
                contexts=((head, segment),),
                finish=Finish.STOP,
                stream=stream,
                verdict=Verdict(status=Status.CORRECT if correct else Status.WRONG, reward=float(correct)),
            )
        )
    return Group(prompt=prompt, visit=0, traces=tuple(traces))


def _tokens(noise: np.random.Generator, count: int) -> tuple[int, ...]:
    return tuple(int(i) for i in noise.integers(0, VOCABULARY, count))
