"""A suite of problems by domain, answered by one model, and counted problem by problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bimetal.core.errors import DataError
from bimetal.core.streams import Streams
from bimetal.core.types import EMPTY, Finish, JsonValue, Prompt, Split, Status
from bimetal.evaluation.passk import Votes
from bimetal.evaluation.result import Example, SuiteResult
from bimetal.evaluation.sample import Answer, Observe, Plan, Subject, answer, unobserved
from bimetal.evaluation.summary import ProblemResult
from bimetal.rollout.group import Judge

EXAMPLES_PER_DOMAIN = 3
"""Answers kept as text, of the first problems of each domain."""

MAX_EXAMPLE_CHARACTERS = 2_000
"""How much of a prompt or an answer an example keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Problems by domain: ``Suite(name="final", split=Split.TEST, domains={"lab_table": (prompt, ...)})``."""

    name: str
    domains: Mapping[str, Sequence[Prompt]]
    split: Split = Split.TEST
    settings: Mapping[str, JsonValue] = field(default_factory=lambda: EMPTY)
    """What made the problems, as the domains' options; kept with the result."""

    def __post_init__(self) -> None:
        """Refuse a suite that measures nothing, or that is not what it says.

        Raises:
            DataError: There are no domains, a domain has no problems, or a problem is another domain's.
        """
        if not self.domains:
            raise DataError(f"suite {self.name!r}: has no domains; name at least one")
        for domain, prompts in self.domains.items():
            if not prompts:
                raise DataError(
                    f"suite {self.name!r}: domain {domain!r} has no problems on the {self.split} split; "
                    "widen its difficulty, or leave it out"
                )
            foreign = next((p for p in prompts if p.domain != domain), None)
            if foreign is not None:
                raise DataError(
                    f"suite {self.name!r}: prompt {foreign.id} is of domain {foreign.domain!r} "
                    f"and stands under {domain!r}"
                )


def evaluate(
    suite: Suite,
    *,
    subject: Subject,
    judge: Judge,
    streams: Streams,
    plan: Plan,
    observe: Observe = unobserved,
) -> SuiteResult:
    """Answer every problem of the suite and count; nothing of a failed evaluation is kept.

    Args:
        suite: The problems.
        subject: Who answers.
        judge: Judges the items of any domain of the suite, a group per problem.
        streams: Named noise; the same seed pairs two models.
        plan: How each problem is answered.
        observe: Told of the progress.

    Raises:
        DataError: A prompt leaves no room for an answer, or two of a domain have the same id.
        RolloutError: The backend failed.
        VerifierError: More answers of a domain than the plan allows could not be judged.
    """
    prompts = [prompt for some in suite.domains.values() for prompt in some]
    answers = answer(prompts, subject=subject, judge=judge, streams=streams, plan=plan, observe=observe)
    rest = iter(zip(prompts, answers, strict=True))
    by_domain = {name: [next(rest) for _ in some] for name, some in suite.domains.items()}
    return SuiteResult(
        suite=suite.name,
        split=suite.split,
        label=subject.name,
        seed=streams.seed,
        samples=plan.samples,
        sampling=plan.sampling,
        problems={name: tuple(_counted(*pair) for pair in pairs) for name, pairs in by_domain.items()},
        settings=suite.settings,
        examples=tuple(
            _example(*pair) for pairs in by_domain.values() for pair in pairs[:EXAMPLES_PER_DOMAIN]
        ),
    )


def _counted(prompt: Prompt, answers: Sequence[Answer]) -> ProblemResult:
    known = [a for a in answers if a.verdict.reward is not None]
    correct = [a for a in known if a.verdict.status is Status.CORRECT]
    return ProblemResult(
        prompt_id=prompt.id,
        problem=prompt.problem,
        known=len(known),
        unknown=len(answers) - len(known),
        correct=len(correct),
        # A correct answer is one that the looser reading accepts too, whether or not the verifier says so.
        lenient=sum(
            a.verdict.status is Status.CORRECT or a.verdict.parts.get("lenient", 0.0) == 1.0 for a in known
        ),
        unparseable=sum(a.verdict.status is Status.UNPARSEABLE for a in known),
        truncated=sum(a.finish is Finish.LENGTH for a in answers),
        tokens=sum(a.tokens for a in answers),
        votes=_votes(known),
    )


def _votes(known: Sequence[Answer]) -> tuple[Votes, ...]:
    """Classes of answers that read the same, largest first; an unreadable answer does not vote."""
    classes: dict[str, list[bool]] = {}
    for one in known:
        text = one.verdict.extracted
        if text is not None and one.verdict.status is not Status.UNPARSEABLE:
            classes.setdefault(text.strip(), []).append(one.verdict.status is Status.CORRECT)
    return tuple(sorted((Votes(len(v), sum(v)) for v in classes.values()), reverse=True))


def _example(prompt: Prompt, answers: Sequence[Answer]) -> Example:
    first = answers[0]
    asked = "\n".join(message.content for message in prompt.messages)
    return Example(
        domain=prompt.domain,
        prompt_id=prompt.id,
        prompt=asked[:MAX_EXAMPLE_CHARACTERS],
        reference="" if prompt.reference is None else str(prompt.reference)[:MAX_EXAMPLE_CHARACTERS],
        response=first.text[:MAX_EXAMPLE_CHARACTERS],
        status=first.verdict.status,
        finish=first.finish,
    )
