"""What a roll-out batch looked like: rewards, verdicts, lengths, groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import stdev

from bimetal.core.errors import VerifierError
from bimetal.core.metrics import Metrics
from bimetal.core.types import Finish, Group, Origin, Status, Stream, Trace
from bimetal.objectives.advantage import UNIFORM_TOLERANCE
from bimetal.objectives.credit import MINIMUM_KNOWN


def rollout_metrics(groups: Sequence[Group]) -> Metrics:
    """Metrics of judged groups; of free rollouts where rewards are concerned."""
    found = Metrics()
    for group in groups:
        if group.prompt.stream is Stream.MAIN:
            _group(found, group)
        for trace in group.traces:
            _trace(found, trace)
    found.total("group/count", len(groups))
    return found


def unknown_share_guard(groups: Sequence[Group], *, limit: float, forget: Callable[[], None]) -> None:
    """Stop a run whose verdicts mostly say nothing, and ``forget`` them, so that resuming judges again.

    Raises:
        VerifierError: More than ``limit`` of the verdicts are unknown; names reasons and traces.
    """
    judged = [t for g in groups for t in g.traces if t.verdict is not None]
    unknown = [t for t in judged if t.verdict is not None and t.verdict.status is Status.UNKNOWN]
    if len(unknown) > limit * len(judged):
        first = [
            f"{t.id}: {t.verdict.reason} {t.verdict.detail}" for t in unknown[:3] if t.verdict is not None
        ]
        forget()
        raise VerifierError(
            f"{len(unknown)} of {len(judged)} verdicts are unknown, above trainer.unknown_share_limit "
            f"{limit}: {'; '.join(first)}. Mend the verifier or the rows, then resume"
        )


def _group(found: Metrics, group: Group) -> None:
    rewards = [t.reward for t in group.traces if t.is_known]
    if not any(t.verdict is not None for t in group.traces):
        return
    found.mean("group/too_few_known_share", float(len(rewards) < MINIMUM_KNOWN))
    if len(rewards) >= MINIMUM_KNOWN:
        found.mean("group/uniform_share", float(max(rewards) - min(rewards) <= UNIFORM_TOLERANCE))
        found.mean("group/reward_deviation", stdev(rewards))


def _trace(found: Metrics, trace: Trace) -> None:
    written = sum(len(s.token_ids) for s in trace.segments if s.origin is Origin.POLICY)
    shown = sum(len(s.token_ids) for s in trace.segments if s.origin is Origin.DEMONSTRATION)
    found.mean("tokens/demonstration_share", shown, count=shown + written)
    found.total("tokens/generated", written)
    if written:
        found.mean("rollout/length", written)
        found.largest("rollout/length_max", float(written))
        found.mean("rollout/truncated_share", float(trace.finish is Finish.LENGTH))
    verdict = trace.verdict
    if verdict is None:
        return
    found.mean("errors/share", float(verdict.status is Status.UNKNOWN))
    for status in Status:
        found.mean(f"verdict/{status.value}_share", float(verdict.status is status))
    found.mean("verdict/timeout_share", float(verdict.reason == "timeout"))
    if verdict.reward is None:
        return
    found.mean(f"verdict/{trace.domain}/correct_share", float(verdict.status is Status.CORRECT))
    if written:
        found.mean("reward/mean", verdict.reward)
        found.mean("reward/solved_share", float(verdict.status is Status.CORRECT))
