"""Does what the data calls right pass its own verifier? The check at load time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bimetal.core.types import Item, Prompt, PromptId, Status, Verdict
from bimetal.data.corpus import BadRow, Corpus

Verify = Callable[[Sequence[Item]], Sequence[Verdict]]
"""What a domain offers: verdicts of the items of one prompt, in order."""

Kind = Literal["reference", "demonstration"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A response that should be right and was not judged so.

    ``Failure(prompt_id="math/3", kind="demonstration", index=0, verdict=Verdict(...))``; ``index`` counts
    the prompt's demonstrations and is 0 for the reference.
    """

    prompt_id: PromptId
    kind: Kind
    index: int
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCheck:
    """What `check_references` found: ``ReferenceCheck(references=98, demonstrations=120, failures=())``."""

    references: int
    demonstrations: int
    failures: tuple[Failure, ...]


def reference_not_written(_prompt: Prompt) -> str | None:
    """For domains that cannot write their reference as a response: only demonstrations are checked."""
    return None


def check_references(
    corpus: Corpus,
    verify: Verify,
    *,
    write_reference: Callable[[Prompt], str | None] = reference_not_written,
) -> ReferenceCheck:
    """Judge each prompt's reference, written as a response, and its demonstrations.

    Prompts without a reference have nothing to be judged by and are skipped.

    Args:
        corpus: What was loaded.
        verify: The domain's verifier.
        write_reference: A full-marks response from a prompt's reference, or ``None`` where there is none.
    """
    counts: dict[Kind, int] = {"reference": 0, "demonstration": 0}
    failures: list[Failure] = []
    for prompt in corpus.prompts:
        if prompt.reference is None:
            continue
        claims = _claims(corpus, prompt, write_reference(prompt))
        verdicts = (
            verify([Item(prompt=prompt, response=response) for _, _, response in claims]) if claims else ()
        )
        for (kind, index, _), verdict in zip(claims, verdicts, strict=True):
            counts[kind] += 1
            if verdict.status is not Status.CORRECT:
                failures.append(Failure(prompt_id=prompt.id, kind=kind, index=index, verdict=verdict))
    return ReferenceCheck(
        references=counts["reference"], demonstrations=counts["demonstration"], failures=tuple(failures)
    )


def _claims(corpus: Corpus, prompt: Prompt, written: str | None) -> list[tuple[Kind, int, str]]:
    claims: list[tuple[Kind, int, str]] = [] if written is None else [("reference", 0, written)]
    demonstrations = corpus.demonstrations.get(prompt.id, ())
    for index, one in enumerate(demonstrations):
        claims.append(("demonstration", index, one.text))
    return claims


def set_failures_aside(corpus: Corpus, check: ReferenceCheck, *, kinds: Sequence[Kind]) -> Corpus:
    """The corpus without the prompts whose reference failed and without the demonstrations that failed.

    Args:
        corpus: What was checked.
        check: What `check_references` found in it.
        kinds: Which failures count: a flawed demonstration may be wanted, a flawed reference hardly ever.
    """
    counted = [failure for failure in check.failures if failure.kind in kinds]
    gone = {failure.prompt_id for failure in counted if failure.kind == "reference"}
    flawed = {(failure.prompt_id, failure.index) for failure in counted if failure.kind == "demonstration"}
    kept = {
        name: tuple(one for index, one in enumerate(all_of_it) if (name, index) not in flawed)
        for name, all_of_it in corpus.demonstrations.items()
        if name not in gone
    }
    return replace(
        corpus,
        prompts=tuple(prompt for prompt in corpus.prompts if prompt.id not in gone),
        demonstrations={name: some for name, some in kept.items() if some},
        bad_rows=corpus.bad_rows + tuple(_bad_row(corpus, failure) for failure in counted),
    )


def _bad_row(corpus: Corpus, failure: Failure) -> BadRow:
    place = corpus.places.get(failure.prompt_id)
    verdict = failure.verdict
    what = "reference" if failure.kind == "reference" else f"demonstration {failure.index}"
    return BadRow(
        file=place.file if place else failure.prompt_id,
        row=place.number if place else 0,
        unit=place.unit if place else "row",
        reason=f"its own {what} is judged {verdict.status.value} ({verdict.reason}); correct it",
        excerpt=ascii(verdict.extracted or "")[:500],
    )
