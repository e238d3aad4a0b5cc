"""The audit of a model: its chat template, its loss mask, and generation against training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import torch

from bimetal.config.schema import Recipe
from bimetal.core.batch import Batch
from bimetal.core.catalogue import LocalCode
from bimetal.core.types import (
    Credit,
    Draft,
    Finish,
    Origin,
    PromptId,
    Segment,
    Signals,
    Trace,
    TraceId,
)
from bimetal.data.chat import Renderer
from bimetal.data.collate import Row, collate
from bimetal.rollout.backend import Request, Sampling
from bimetal.testing.audit import Finding, finding_of
from bimetal.testing.faults import NO_FAULT, Fault
from bimetal.trainer.prepare import Parts, load_parts

PROBES = 4
"""Prompts of the run that a model is tried with."""

AUDITED_TOKENS = 16
"""Tokens written per prompt, at most, to compare generation and training."""

MISMATCH, MISMATCH_HALF = 1e-3, 0.1
"""Nats that rounding may put between two ways to compute a log-probability, in float32 and in bfloat16."""


def audit_recipe(recipe: Recipe, fault: Fault = NO_FAULT, *, base: Path) -> Iterator[Finding]:
    """The model of a recipe, loaded as a run would load it.

    Raises:
        ConfigError: The recipe cannot work.
    """
    parts = load_parts(recipe, base=base, code=LocalCode.REFUSED)
    with closing(parts.pool):
        yield from audit_model(parts, fault)


def audit_model(parts: Parts, fault: Fault = NO_FAULT) -> Iterator[Finding]:
    """A recipe's model: its chat template, the loss mask, and generation against training."""
    renderer, name = fault.renderer(parts.renderer), parts.model.name
    yield finding_of(name, "chat template", lambda: _template_fault(renderer, parts))
    yield finding_of(name, "response mask", lambda: _response_fault(renderer, parts))
    yield finding_of(name, "generation against training", lambda: _mismatch(parts))


def _template_fault(renderer: Renderer, parts: Parts) -> str:
    """Whether prompts of this run are the ids that the tokenizer's own template gives them."""
    tokenizer = renderer.tokenizer
    for prompt in list(parts.work.prompts.values())[:PROBES]:
        chat = [{"role": m.role, "content": m.content} for m in prompt.messages]
        text = str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True))
        own = tuple(tokenizer(text, add_special_tokens=False)["input_ids"])
        found = renderer.prompt_ids(prompt.messages)
        if found == own:
            continue
        if found[1:] == own and found[0] == own[0]:
            return (
                f"prompt {prompt.id} begins twice with {tokenizer.decode([own[0]])!r}. This is the fault "
                "'double-bos'"
            )
        place = next((i for i, (a, b) in enumerate(zip(found, own, strict=False)) if a != b), len(own))
        return (
            f"prompt {prompt.id} is not what the tokenizer's own template writes, from token {place} on: "
            f"{tokenizer.decode(list(found[place : place + 5]))!r}, not "
            f"{tokenizer.decode(list(own[place : place + 5]))!r}. This is the fault 'template-drift'"
        )
    return ""


def _response_fault(renderer: Renderer, parts: Parts) -> str:
    """Whether the tokens that carry loss are those of the response, end of turn included, and no others."""
    text = "Answer: 12"
    prompt = next(iter(parts.work.prompts.values()))
    response = renderer.response_ids(text)
    batch = _batch_of(renderer.prompt_ids(prompt.messages), response, [0.0] * len(response))
    marked = tuple(batch.targets[batch.mask].tolist())
    if marked != response or renderer.text_of(marked).strip() != text:
        return f"loss falls on {renderer.text_of(marked)!r}, not on the response {text!r}"
    return "" if marked[-1] in renderer.stop_token_ids else "no loss falls on the end of the response"


def _mismatch(parts: Parts) -> str:
    """How far the engine's log-probabilities of its own tokens are from the trainer's."""
    prompts = list(parts.work.prompts.values())[:PROBES]
    requests = [
        Request(
            id=f"audit-{n}",
            context_ids=parts.renderer.prompt_ids(prompt.messages),
            key=n,
            sampling=Sampling(
                temperature=1.0, max_tokens=AUDITED_TOKENS, stop_token_ids=parts.renderer.stop_token_ids
            ),
        )
        for n, prompt in enumerate(prompts)
    ]
    worst = 0.0
    for request, output in zip(requests, parts.backend.generate(requests), strict=True):
        said = output.logprobs
        batch = _batch_of(request.context_ids, output.token_ids, said)
        with torch.no_grad():
            trained = parts.policy(batch.to(next(parts.policy.parameters()).device), {}).logprobs.cpu()
        apart = trained[batch.mask].double() - torch.tensor(said, dtype=torch.float64)
        worst = max(worst, float(apart.abs().max()))
    limit = MISMATCH if parts.policy.autocast is None else MISMATCH_HALF
    if worst <= limit:
        return ""
    return (
        f"the engine and the trainer give a token log-probabilities that differ by {worst:.3g} nats; at most "
        f"{limit:g} is rounding. Look at template, precision, temperature and attention of the two"
    )


def _batch_of(prompt: Sequence[int], response: Sequence[int], logprobs: Sequence[float]) -> Batch:
    segments = (
        Segment(origin=Origin.PROMPT, token_ids=tuple(prompt)),
        Segment(origin=Origin.POLICY, token_ids=tuple(response), logprobs=tuple(logprobs)),
    )
    trace = Trace(
        id=TraceId("audit"),
        prompt_id=PromptId("audit"),
        domain="audit",
        visit=0,
        member=0,
        draft=Draft(),
        contexts=(segments,),
        finish=Finish.STOP,
    )
    row = Row(trace=trace, credit=Credit(trace_id=trace.id), group=0)
    return collate([row], terms=(), signals=Signals())
