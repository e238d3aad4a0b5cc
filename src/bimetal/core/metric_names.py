"""Every metric a run writes: what it is, in which unit, what healthy looks like, what to do otherwise.

A name may be a pattern: a part in capitals, such as ``NAME`` in ``term/NAME/loss``, stands for any name.
"""

# ruff: noqa: E501 - one row of a table is one line, or it cannot be read as a table

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bimetal.core.errors import UnknownNameError, unknown_name


@dataclass(frozen=True, slots=True)
class Description:
    """What a person needs to read one metric.

    ``Description("Mean reward of known traces.", "reward in [0, 1]", "rises", "look at the traces")``
    """

    meaning: str
    unit: str
    healthy: str
    remedy: str


_TABLE: tuple[tuple[str, str, str, str, str], ...] = (
    # rewards and verdicts
    ("reward/mean", "Mean reward of the rollouts with a known verdict.", "reward in [0, 1]", "rises over tens of steps", "flat at 0: warm up with demonstrations or draw easier prompts; flat at 1: draw harder ones"),
    ("reward/solved_share", "Rollouts judged correct, of those with a known verdict.", "share", "rises; between 0.2 and 0.8 teaches most", "as reward/mean"),
    ("reward/held_out_mean", "Mean reward on the selection split.", "reward in [0, 1]", "rises with reward/mean", "falls while reward/mean rises: the policy games the training verifier; read traces, tighten the verifier"),
    ("verdict/STATUS_share", "Verdicts of one status, of all verdicts.", "share", "unparseable falls early, unknown stays below 0.02", "unparseable stays high: the format is not learned, warm up with demonstrations"),
    ("verdict/DOMAIN/correct_share", "Verdicts that are correct, of the known ones of the domain.", "share", "rises", "one domain stays at 0: its prompts are too hard or its format is unknown to the policy"),
    ("verdict/DOMAIN/wrong_share", "Verdicts that are wrong, of the known ones of the domain.", "share", "falls", "as verdict/DOMAIN/correct_share"),
    ("verdict/DOMAIN/unparseable_share", "Verdicts without a readable answer, of the known ones of the domain.", "share", "falls early", "warm up with demonstrations in the required format"),
    ("verdict/DOMAIN/unknown_share", "Verdicts that are unknown, of all of the domain.", "share", "below 0.02", "read the verdicts' detail: a row, the verifier or a service is broken"),
    ("verdict/timeout_share", "Verdicts with reason timeout, of all verdicts.", "share", "near 0", "read those answers; raise the verifier's time limit if they are honest work"),
    ("errors/share", "Verdicts that are unknown because a row, the verifier or a service broke.", "share", "below 0.02", "the run stops above its limit; read the verdicts' detail"),
    ("evaluation/DOMAIN/accuracy", "Held-out problems answered correctly in the required form.", "share", "rises", "as reward/mean"),
    ("evaluation/DOMAIN/lenient", "Held-out problems whose answer is right wherever it stands in the response.", "share", "above accuracy at first, equal to it later", "stays above accuracy: the format is not learned"),
    ("evaluation/DOMAIN/pass_at_K", "Chance that one of that many answers to a held-out problem is correct (unbiased).", "share", "above accuracy", "equal to accuracy: the policy no longer explores"),
    # groups
    ("group/uniform_share", "Groups whose known rewards are all equal, so that relative credit is 0.", "share", "below 0.5", "draw prompts nearer to the policy's ability, or use larger groups"),
    ("group/too_few_known_share", "Groups with fewer than two known verdicts, so that relative credit is 0.", "share", "near 0", "see errors/share"),
    ("group/count", "Groups in the roll-out batch.", "groups", "as the recipe says", "fewer: the data ran out or groups were refused"),
    ("group/reward_deviation", "Standard deviation of the known rewards within a group.", "reward", "above 0.1", "as group/uniform_share"),
    # policy
    ("policy/entropy", "Entropy of the policy's next-token distribution on rollout tokens.", "nats per token", "falls slowly", "collapses: lower the learning rate, raise the upper clip, add demonstrations or an entropy term"),
    ("policy/divergence_from_old", "Divergence of the policy from the weights that started the roll-out batch (k3).", "nats per token", "below 0.05", "fewer updates per roll-out batch, or a lower learning rate"),
    ("policy/divergence_from_reference", "Divergence of the policy from the reference (k3).", "nats per token", "grows slowly", "grows fast: lower the learning rate or raise the divergence coefficient"),
    ("policy/sampler_mismatch", "Mean absolute difference of the trainer's and the sampler's log-probabilities.", "nats per token", "below 0.01, below 1e-4 for the local backend", "compare template, dtype and temperature of both sides"),
    ("critic/value", "Mean of the critic's values over member tokens.", "reward", "follows reward/mean", "far from reward/mean: warm the critic up"),
    ("critic/squared_error", "Squared error of the critic's values, unclipped.", "reward squared", "falls", "raise the critic's learning rate or warm it up"),
    ("imitation/nll", "Negative log-likelihood of demonstration tokens, unweighted.", "nats per token", "falls", "rises on held-out data: fewer visits per demonstration"),
    ("diversity/flexible_share", "Demonstration positions whose likeliest tokens hold less than the threshold.", "share", "about 0.3, where the authors calibrate", "near 0 or 1: move the threshold"),
    # ratios and gates
    ("gate/closed_share", "Rollout tokens whose gradient the gate stops.", "share", "0 at the first update, 0.001 to 0.2 after", "high: fewer updates per roll-out batch; always 0 with several updates: the learning rate is too low"),
    ("ratio/mean", "Mean of the importance ratio over member tokens.", "ratio", "near 1", "far from 1: the rollouts are too old"),
    ("ratio/max", "Largest importance ratio.", "ratio", "below 10", "as ratio/mean"),
    ("ratio/min", "Smallest importance ratio.", "ratio", "above 0.1", "as ratio/mean"),
    ("correction/mean", "Mean of the detached weight that corrects for who wrote the token.", "ratio", "near 1", "far from 1: sampler and trainer disagree, see policy/sampler_mismatch, or the rollouts are too old"),
    ("preference/margin", "Gain of the preferred response on the other, both measured against the reference.", "nats", "rises from 0", "stays at 0: the pairs say nothing the policy can learn; explodes: raise beta or lower the learning rate"),
    ("preference/accuracy", "Pairs whose preferred response gained on the other.", "share", "rises above 0.5", "as preference/margin"),
    # terms
    ("term/NAME/loss", "The term's part of the loss, without its coefficient.", "as the term", "falls for imitation; has no direction for policy gradients", "not finite: the run stops and names the traces"),
    ("term/NAME/tokens", "Member tokens of the term in the step.", "tokens", "above 0", "0: no trace was routed to the term; check demonstrations and credit"),
    ("term/NAME/coefficient", "The term's coefficient at this step.", "number", "follows its schedule", "see controller/NAME"),
    ("term/NAME/gradient_norm", "Norm of the term's own gradient, where asked for.", "norm", "same order for all terms", "one term dominates: lower its coefficient"),
    # gradient and optimizer
    ("gradient/norm", "Norm of the whole gradient before clipping.", "norm", "steady", "spikes: lower the learning rate, look at the step's traces"),
    ("gradient/clipped_share", "Steps whose gradient was shortened by clipping.", "share", "below 0.2", "lower the learning rate or raise the clipping norm"),
    ("gradient/share_demonstrations", "Norm of the demonstrations' gradient over the sum of both sources' norms.", "share", "what the method intends", "near 1 or 0: one source does nothing; change the coefficients"),
    ("gradient/share_rollouts", "Norm of the rollouts' gradient over the sum of both sources' norms.", "share", "what the method intends", "as gradient/share_demonstrations"),
    ("gradient/cosine_demonstrations_rollouts", "Cosine between the two sources' gradients.", "cosine in [-1, 1]", "above -0.2", "strongly negative: the sources pull apart; stages or projection may do better"),
    ("optimizer/learning_rate", "Learning rate of the step.", "rate", "follows its schedule", "check warm-up and the budget that drives the schedule"),
    ("gradient/critic_norm", "As gradient/norm, of the critic.", "norm", "steady", "as gradient/norm"),
    ("optimizer/critic_learning_rate", "As optimizer/learning_rate, of the critic.", "rate", "follows its schedule", "as optimizer/learning_rate"),
    ("optimizer/update_norm", "Norm of the change of the parameters in the step.", "norm", "steady", "as gradient/norm"),
    ("controller/NAME", "Value of a controller.", "number", "moves as its rule says", "stuck at a bound: widen the bound or its target"),
    # rollouts and tokens
    ("rollout/length", "Tokens the policy wrote per rollout.", "tokens", "steady or slowly rising", "explodes: look for repetition; shrinks to a few: the reward pays for short answers"),
    ("rollout/length_max", "Longest rollout.", "tokens", "below the limit", "see rollout/truncated_share"),
    ("rollout/truncated_share", "Rollouts that ended at the token limit.", "share", "below 0.1", "raise the limit, or check that the policy has learned to stop"),
    ("rollout/staleness", "Versions between the weights that wrote a rollout and those it trains.", "versions", "0 unless asynchronous", "lower the maximum staleness"),
    ("rollout/tokens_per_second", "Tokens written per second of generation.", "tokens per second", "steady", "reported only; drives nothing"),
    ("tokens/demonstration_share", "Demonstration tokens, of all trained tokens of the step.", "share", "what the method intends", "check the mix"),
    ("tokens/generated", "Tokens generated for the step, discarded ones included.", "tokens", "steady", "grows: see rollout/length"),
    ("tokens/trained", "Response tokens in the step.", "tokens", "steady", "0: every trace was left out"),
    ("tokens/padding_share", "Positions of the micro-batches that hold no token.", "share", "below 0.3", "allow larger micro-batches, which sort better"),
    # budget, data, time, alarms
    ("budget/CURRENCY", "Spent so far in one currency, discarded work included.", "the currency's unit", "grows", "reported only, but for the currency of the budget"),
    ("budget/progress", "Share of the run's budget that is spent.", "share in [0, 1]", "reaches 1", "stands still: nothing is generated or trained"),
    ("budget/stage_progress", "Share of the stage's budget that is spent.", "share in [0, 1]", "reaches 1", "as budget/progress"),
    ("curriculum/NAME", "A number the curriculum reports.", "as the curriculum", "see its page", "see its page"),
    ("data/epoch", "How often the average prompt was drawn.", "visits", "below 10", "many visits: expect memorization; add prompts"),
    ("data/set_aside_rows", "Rows of the data that could not be used.", "rows", "0", "read the file of rows set aside"),
    ("time/NAME_seconds", "Wall time of one part of the step.", "seconds", "steady", "reported only; drives nothing"),
    ("memory/peak_bytes", "Largest memory in use.", "bytes", "flat", "grows: lower the micro-batch budget"),
    ("alarm/NAME", "1 in a step where the alarm rang, else 0.", "share of steps", "0", "read the alarm's message in the log"),
)  # fmt: skip

METRICS: Mapping[str, Description] = MappingProxyType({name: Description(*rest) for name, *rest in _TABLE})
"""Name or pattern -> description, in the order of the reference page."""


def describe(name: str) -> Description:
    """The description of a metric, or of the pattern that it fits; an exact name comes first.

    >>> describe("term/imitation/loss").unit
    'as the term'

    Raises:
        UnknownNameError: The metric is not documented here.
    """
    if name in METRICS:
        return METRICS[name]
    for pattern, description in METRICS.items():
        if _fits(name, pattern):
            return description
    raise unknown_name("metric", name, METRICS)


def is_documented(name: str) -> bool:
    """Whether the table describes this metric.

    >>> is_documented("reward/mean"), is_documented("reward/median")
    (True, False)
    """
    try:
        describe(name)
    except UnknownNameError:
        return False
    return True


def _fits(name: str, pattern: str) -> bool:
    parts, wanted = name.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(_part_fits(p, w) for p, w in zip(parts, wanted, strict=True))


def _part_fits(part: str, wanted: str) -> bool:
    """A pattern's part is a literal, or a name in capitals with a literal ending."""
    ending = wanted.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    if ending == wanted:
        return part == wanted
    return part.endswith(ending) and len(part) > len(ending)
