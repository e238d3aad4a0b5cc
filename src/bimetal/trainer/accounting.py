"""What a roll-out batch and its updates cost, counted from tokens alone (design contract C6).

Counts do not depend on how a batch was cut or padded: they are of real tokens. The model is asked for
its shape once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import nn

from bimetal.core.budget import Currency, FlopModel
from bimetal.core.types import Group, Origin, Trace
from bimetal.trainer.policy import CausalPolicy
from bimetal.trainer.signals import Passes

Cost = dict[Currency, int | float]


def flop_model(policy: CausalPolicy) -> FlopModel:
    """The cost model of this policy, read from its modules and config."""
    base = policy.base
    config = base.config.get_text_config()
    backbone = getattr(base, base.base_model_prefix)
    head: Any = base.get_output_embeddings()
    matrices = sum(
        p.numel()
        for module in backbone.modules()
        if not isinstance(module, nn.Embedding)
        for p in module.parameters(recurse=False)
        if p.dim() == 2
    )
    heads = int(config.num_attention_heads)
    width = int(getattr(config, "head_dim", None) or int(config.hidden_size) // heads) * heads
    return FlopModel(
        matrix_parameters=matrices,
        layers=int(config.num_hidden_layers),
        attention_width=width,
        hidden=int(config.hidden_size),
        vocabulary=int(head.weight.shape[0]),
    )


def rollout_cost(model: FlopModel, groups: Sequence[Group]) -> Cost:
    """Generation and judging, discarded work included; each answer reads its own prompt."""
    cost: Cost = {
        Currency.GENERATED_TOKENS: 0,
        Currency.FLOPS: 0,
        Currency.VERDICTS: 0,
        Currency.VERIFIER_SECONDS: 0.0,
    }
    for trace in (t for g in groups for t in g.traces):
        before, written = _written(trace)
        if written:
            cost[Currency.GENERATED_TOKENS] += written
            cost[Currency.FLOPS] += model.generation(before, new_tokens=[written])
        if trace.verdict is not None:
            cost[Currency.VERDICTS] += 1
            cost[Currency.VERIFIER_SECONDS] += trace.verdict.seconds
    return cost


def pass_cost(model: FlopModel, passes: Passes) -> Cost:
    """Forward passes before the update: old policy, reference, critic."""
    cost: Cost = {Currency.FORWARD_TOKENS: 0, Currency.FLOPS: 0}
    for traces, logits in ((passes.old, True), (passes.reference, True), (passes.values, False)):
        for trace in traces:
            length = _length(trace)
            cost[Currency.FORWARD_TOKENS] += length
            cost[Currency.FLOPS] += model.forward(length, logits=trace.response_length if logits else 0)
    return cost


def update_cost(model: FlopModel, traces: Sequence[Trace], *, passes: Mapping[str, int]) -> Cost:
    """One optimizer step over these traces.

    Args:
        model: The policy's shape; a critic has the same without a head.
        traces: Those that went through the models.
        passes: Forward-and-backward passes of each role: 1 for a plain step.
    """
    cost: Cost = {Currency.TRAINED_TOKENS: 0, Currency.FLOPS: 0, Currency.OPTIMIZER_STEPS: 1}
    for trace in traces:
        cost[Currency.TRAINED_TOKENS] += trace.response_length
        for role, times in passes.items():
            logits = trace.response_length if role == "policy" else 0
            cost[Currency.FLOPS] += times * model.training(_length(trace), logits=logits)
    return cost


def _length(trace: Trace) -> int:
    """Tokens the model reads: all but the last, which is only predicted."""
    return sum(len(s.token_ids) for s in trace.segments) - 1


def _written(trace: Trace) -> tuple[int, int]:
    """Tokens before the policy's own, and how many it wrote."""
    written = sum(len(s.token_ids) for s in trace.segments if s.origin is Origin.POLICY)
    return sum(len(s.token_ids) for s in trace.segments) - written, written
