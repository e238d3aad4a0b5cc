"""From the counts of each problem to the numbers that are reported, each with its interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

from bimetal.evaluation.intervals import COVERS, LEVEL, Estimate, average, bounded_mean, mean_estimate
from bimetal.evaluation.passk import Votes, maj_at_k, pass_at_k, sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemResult:
    """The answers to one problem, counted.

    ``ProblemResult(prompt_id="lab_table/17", known=4, unknown=0, correct=1, lenient=2, unparseable=1,
    truncated=1, tokens=96, votes=(Votes(2, 0), Votes(1, 1)))``

    ``known`` answers have a verdict; ``unknown`` ones could not be judged and count nowhere else but in
    ``truncated`` and ``tokens``, which are over all answers.
    """

    prompt_id: str
    known: int
    unknown: int
    correct: int
    lenient: int
    unparseable: int
    truncated: int
    tokens: int
    votes: tuple[Votes, ...]
    problem: str = ""

    def __post_init__(self) -> None:
        """Refuse counts that contradict each other.

        Raises:
            ValueError: They do.
        """
        fits = (
            0 <= self.correct <= self.lenient <= self.known
            and 0 <= self.unparseable <= self.known - self.correct
            and self.unknown >= 0
            and 0 <= self.truncated <= self.answers
            and self.tokens >= 0
            and sum(vote.size for vote in self.votes) <= self.known
            and all(0 <= vote.correct <= vote.size and vote.size > 0 for vote in self.votes)
        )
        if not fits:
            raise ValueError(f"the counts of problem {self.prompt_id!r} contradict each other: {self}")

    @property
    def answers(self) -> int:
        """All answers, judged or not."""
        return self.known + self.unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainSummary:
    """What is reported of one domain, all of it over problems.

    ``accuracy`` is strict: what earns a reward. ``lenient`` accepts an answer in any wording, so
    ``lenient`` minus ``accuracy`` is what the format costs. ``n`` counts problems with a known answer.
    ``pass_at`` and ``maj_at`` are over the problems with at least k known answers; ``maj_at`` is empty
    where the domain's verifier extracts no answers that could vote.
    """

    n: int
    accuracy: Estimate
    lenient: Estimate
    unparseable: Estimate
    truncated: Estimate
    unknown: Estimate
    tokens: Estimate
    pass_at: Mapping[int, Estimate]
    maj_at: Mapping[int, Estimate]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """All domains, and their average, in which each domain weighs the same."""

    domains: Mapping[str, DomainSummary]
    accuracy: Estimate
    lenient: Estimate

    def to_json(self) -> dict[str, object]:
        """The summary as plain values."""
        plain: dict[str, object] = asdict(self)
        return plain | {"level": LEVEL, "covers": covers_sentence()}


def summarized(problems: Mapping[str, Sequence[ProblemResult]], *, samples: int, max_tokens: int) -> Summary:
    """The numbers of every domain and their average.

    Args:
        problems: Counts by domain.
        samples: Answers per problem; pass@k and maj@k are reported for k up to this number.
        max_tokens: Most tokens of an answer, the range of its length.
    """
    domains = {name: _domain(some, samples=samples, max_tokens=max_tokens) for name, some in problems.items()}
    return Summary(
        domains=domains,
        accuracy=average([d.accuracy for d in domains.values()]),
        lenient=average([d.lenient for d in domains.values()]),
    )


def covers_sentence() -> str:
    """What the intervals of one run mean, for every place that shows one."""
    return (
        f"{LEVEL:.0%} intervals over {COVERS}: how far a number could move with other problems of the same "
        "kind. They do not cover the training seed: another seed may give another model."
    )


def _domain(problems: Sequence[ProblemResult], *, samples: int, max_tokens: int) -> DomainSummary:
    known = [p for p in problems if p.known]

    def over(some: Sequence[ProblemResult], score: Callable[[ProblemResult], float]) -> Estimate:
        return mean_estimate([score(p) for p in some])

    # Readable answers of which nothing was extracted (programs) cannot vote; unreadable ones do not.
    votes = any(p.votes for p in problems) or all(p.unparseable == p.known for p in known)
    enough = {k: [p for p in known if p.known >= k] for k in sizes(samples)}
    return DomainSummary(
        n=len(known),
        accuracy=over(known, lambda p: p.correct / p.known),
        lenient=over(known, lambda p: p.lenient / p.known),
        unparseable=over(known, lambda p: p.unparseable / p.known),
        truncated=over(problems, lambda p: p.truncated / p.answers),
        unknown=over(problems, lambda p: p.unknown / p.answers),
        tokens=bounded_mean([p.tokens / p.answers for p in problems], low=0.0, high=float(max_tokens)),
        pass_at={
            k: mean_estimate([pass_at_k(p.known, p.correct, k=k) for p in some]) for k, some in enough.items()
        },
        maj_at={
            k: mean_estimate([maj_at_k(p.votes, p.known, k=k) for p in some]) for k, some in enough.items()
        }
        if votes
        else {},
    )
