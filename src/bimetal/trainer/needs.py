"""Whether a run's data give a stage's method what it needs (design contract C8)."""

from __future__ import annotations

from collections.abc import Sequence

from bimetal.core.errors import ConfigError, DataError, unknown_name
from bimetal.core.types import GroupState, Prompt, Stream
from bimetal.objectives.method import Method, Need
from bimetal.trainer.workset import SHOWN, Workset


def check_needs(
    work: Workset, method: Method, *, where: str, group_size: int, demonstration_prompts: int
) -> None:
    """Refuse a stage whose method needs what the data lacks.

    Raises:
        ConfigError: Demonstrations, author's log-probabilities, or a usable group are missing.
        DataError: Prompts that would be judged have no reference.
    """
    main = [p for p in work.prompts.values() if p.stream is Stream.MAIN]
    drafts = [(p, method.mix(state_of(work, p, group_size))) for p in main]
    shown = any(d.prefix_fraction > 0 for _, some in drafts for d in some)
    if Need.DEMONSTRATIONS in method.needs and not shown and not demonstration_prompts:
        raise ConfigError(
            f"{where}: the method learns from demonstrations, and none would be drawn; found "
            f"{len(work.library.demonstrations)} prompts with demonstrations. Give data with demonstrations "
            f"(or, for a second stream, set {where}.demonstration_prompts above 0)"
        )
    lenders = [p for p in work.prompts.values() if work.library.of(p.id)]
    if demonstration_prompts and not lenders:
        raise ConfigError(
            f"{where}.demonstration_prompts is {demonstration_prompts}, but no prompt has a demonstration"
        )
    if Need.AUTHOR in method.needs and any(
        d.author_logprobs is None for p in lenders for d in work.library.of(p.id)
    ):
        raise ConfigError(
            f"{where}: the method needs the log-probabilities of the demonstrations' author; some rows have "
            "none (fields token_ids and author_logprobs)"
        )
    if Need.REWARD in method.needs:
        _check_references(work, [p for p, some in drafts if some], where)
    if not any(some for _, some in drafts):
        raise ConfigError(
            f"{where}: the method would draw none of the {len(main)} prompts; found no demonstrations"
        )


def check_currency(work: Workset, method: Method, *, where: str, currency: str, group_size: int) -> None:
    """Refuse a budget that this stage never spends: the stage would never end.

    Raises:
        ConfigError: The budget counts what only rollouts cost, and the method makes none.
    """
    if currency not in ("generated_tokens", "verdicts"):
        return
    main = (p for p in work.prompts.values() if p.stream is Stream.MAIN)
    writes = any(d.prefix_fraction < 1 for p in main for d in method.mix(state_of(work, p, group_size)))
    if not writes or (currency == "verdicts" and Need.REWARD not in method.needs):
        raise ConfigError(
            f"{where}: this stage spends no {currency}, which budget.currency counts, so it would never end; "
            'set budget.currency = "flops" or "trained_tokens"'
        )


def state_of(work: Workset, prompt: Prompt, size: int) -> GroupState:
    """The empty group of a prompt, as a mix sees it first."""
    return GroupState(
        prompt=prompt, visit=0, size=size, progress=0.0, demonstrations=work.library.of(prompt.id)
    )


def _check_references(work: Workset, judged: Sequence[Prompt], where: str) -> None:
    without = [p for p in judged if p.reference is None]
    if without:
        raise DataError(
            f"{where}: the method needs a reward, and {len(without)} of {len(judged)} prompts have no "
            "reference, "
            f"the first: {', '.join(p.id for p in without[:SHOWN])}. Give references, or use a method that "
            "needs none"
        )
    homeless = [p for p in judged if p.domain not in work.referees]
    if homeless:
        raise unknown_name("domain of prompt " + homeless[0].id, homeless[0].domain, work.referees)
