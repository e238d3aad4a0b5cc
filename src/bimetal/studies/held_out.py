"""Held-out problems of a run: which they are, and their metrics while training goes on."""

from __future__ import annotations

from collections.abc import Mapping

from bimetal.core.metrics import Metrics
from bimetal.core.streams import Streams
from bimetal.core.types import Prompt, Split
from bimetal.evaluation.result import SuiteResult
from bimetal.evaluation.sample import Plan, Subject
from bimetal.evaluation.suite import Suite, evaluate
from bimetal.rollout.backend import Sampling
from bimetal.trainer.prepare import Parts


def evaluate_held_out(parts: Parts, step: int) -> Metrics:
    """The recipe's evaluation of the policy now, as metrics; none where no domain has held-out problems."""
    options = parts.recipe.evaluation
    domains = problems_of(parts, Split(options.split), options.problems_per_domain)
    found = Metrics()
    if not domains:
        return found
    result = measured(
        parts,
        domains,
        name=f"step-{step:08d}",
        split=Split(options.split),
        samples=options.samples,
        temperature=options.temperature,
    )
    summary = result.summary()
    estimates = {"reward/held_out_mean": summary.accuracy}
    for name, domain in summary.domains.items():
        estimates[f"evaluation/{name}/accuracy"] = domain.accuracy
        estimates[f"evaluation/{name}/lenient"] = domain.lenient
        estimates |= {f"evaluation/{name}/pass_at_{k}": e for k, e in domain.pass_at.items() if k > 1}
    for name, estimate in estimates.items():
        if estimate.value is not None:
            found.mean(name, estimate.value)
    return found


def problems_of(parts: Parts, split: Split, count: int) -> dict[str, list[Prompt]]:
    """Held-out problems by domain: generated, and of files; domains without any are left out."""
    found = {name: parts.work.held_out(split, name, count) for name in parts.work.referees}
    return {name: prompts for name, prompts in found.items() if prompts}


def measured(
    parts: Parts,
    domains: Mapping[str, list[Prompt]],
    *,
    name: str,
    split: Split,
    samples: int = 1,
    temperature: float = 0.0,
) -> SuiteResult:
    """The policy's answers to these problems, judged and counted."""
    limits = parts.recipe.trainer
    sampling = Sampling(
        temperature=temperature,
        max_tokens=limits.max_response_tokens,
        stop_token_ids=parts.renderer.stop_token_ids,
    )
    return evaluate(
        Suite(name=name, domains=domains, split=split),
        subject=Subject(
            name=name,
            backend=parts.backend,
            rendering=parts.rendering,
            positions=limits.max_prompt_tokens + limits.max_response_tokens,
        ),
        judge=parts.judge,
        streams=Streams(parts.recipe.seed),
        plan=Plan(sampling=sampling, samples=samples, unknown_share_limit=limits.unknown_share_limit),
    )
