"""Held-out problems from files: rows of sources whose ``use`` is not training."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from bimetal.config.data import DataOptions
from bimetal.core.errors import ConfigError, DataError
from bimetal.core.types import Prompt, Split
from bimetal.data.corpus import BadRow, Corpus
from bimetal.data.records import load_data
from bimetal.data.rows import said_key

HELD_BACK = (Split.SELECTION, Split.TEST)


def load_held_back(
    options: DataOptions, *, base: Path, referees: Collection[str], trained: Iterable[Prompt]
) -> dict[Split, Corpus]:
    """The rows of every held-out split that have a domain to judge them, a reference, and no leak.

    Args:
        options: The ``[data]`` section.
        base: The recipe's folder.
        referees: Domains that can judge.
        trained: What is learned from. A problem that stands there, or in an earlier split, is a leak,
            whatever its domain is called: the same words, or the same key.

    Raises:
        ConfigError: Rows name no domain, or one that the recipe has no table for.
        DataError: A source cannot be read, rows have no reference, or a problem stands in two splits, and
            bad rows stop the run.
    """
    seen = {key: "train" for prompt in trained for key in _keys(prompt)}
    found: dict[Split, Corpus] = {}
    for split in HELD_BACK:
        sources = tuple(s for s in options.sources if s.use is split)
        if not sources:
            continue
        corpus = load_data(options.model_copy(update={"sources": sources}), base=base)
        _check_judged(corpus, split, referees)
        found[split] = _without_leaks(corpus, split, seen=seen, on_bad_rows=options.on_bad_rows)
        seen |= {key: split.value for prompt in found[split].prompts for key in _keys(prompt)}
    return found


def _check_judged(corpus: Corpus, split: Split, referees: Collection[str]) -> None:
    for prompt in corpus.prompts:
        if prompt.domain not in referees:
            raise ConfigError(
                f"{corpus.places[prompt.id]}: a {split.value} row is judged by a domain; found "
                f"{prompt.domain!r}. Set the source's `domain` to a [domain.NAME] table of the recipe (known "
                f"here: {', '.join(sorted(referees)) or 'none'})"
            )


def _without_leaks(corpus: Corpus, split: Split, *, seen: Mapping[str, str], on_bad_rows: str) -> Corpus:
    bad: list[BadRow] = []
    kept: list[Prompt] = []
    for prompt in corpus.prompts:
        reason = _fault(prompt, split, seen)
        if not reason:
            kept.append(prompt)
            continue
        place = corpus.places[prompt.id]
        excerpt = ascii(prompt.messages[-1].content[:120])
        bad.append(BadRow(file=place.file, row=place.number, unit=place.unit, reason=reason, excerpt=excerpt))
    if bad and (on_bad_rows == "stop" or not kept):
        lines = "\n".join(f"  {row.file} {row.unit} {row.row}: {row.reason}" for row in bad[:5])
        raise DataError(
            f"{len(bad)} {split.value} rows cannot measure anything:\n{lines}\nTake them out of the file, or "
            'set data.on_bad_rows = "set_aside" to have them left out of the evaluation'
        )
    notes = list(corpus.formats)
    if lent := sum(1 for p in kept if corpus.demonstrations.get(p.id)):
        notes.append(f"{lent} {split.value} rows hold demonstrations; held-out rows are never learned from")
    return Corpus(
        prompts=tuple(kept),
        bad_rows=(*corpus.bad_rows, *bad),
        formats=tuple(notes),
        places=corpus.places,
    )


def _keys(prompt: Prompt) -> set[str]:
    """What a problem is known by: its key, and what its messages say, which a generator's key is not."""
    return {prompt.problem, said_key(prompt.messages)} - {""}


def _fault(prompt: Prompt, split: Split, seen: Mapping[str, str]) -> str:
    if prompt.reference is None:
        return "it has no reference to be judged by"
    other = next((seen[key] for key in sorted(_keys(prompt)) if key in seen), None)
    return "" if other is None else f"the same problem is in the {other} data; {split.value} must not hold it"
