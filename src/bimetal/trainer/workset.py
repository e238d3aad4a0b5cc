"""What a run learns from: prompts by stream, their demonstrations, and who judges each domain.

Everything that can be wrong with it - too long, without reference, without demonstrations - is found
here, before a weight is touched (design contract C8).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from bimetal.config.load import validate_entry
from bimetal.config.options import Options
from bimetal.config.schema import DomainOptions, Recipe
from bimetal.core.catalogue import Entry, LocalCode, find, is_local_file, locate
from bimetal.core.errors import ConfigError, DataError
from bimetal.core.types import Demonstration, JsonValue, Prompt, PromptId, Split, Stream
from bimetal.data.corpus import BadRow, Corpus, Place
from bimetal.data.library import Library
from bimetal.data.records import load_data
from bimetal.rollout.curriculum import Candidate
from bimetal.rollout.group import Rendering
from bimetal.trainer.held_back import load_held_back

_Demonstrations = dict[PromptId, tuple[Demonstration, ...]]
_Rows = tuple[dict[PromptId, Prompt], _Demonstrations, dict[PromptId, tuple[str, float]]]

SHOWN = 3
"""How many offending rows a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Referee:
    """Who judges one domain: a catalogue entry (or local file) and the options of its ``Config``."""

    entry: str
    options: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workset:
    """All prompts of a run.

    ``pools`` maps a prompt to the pool it is drawn from and that pool's weight. ``notes`` say in words what
    was done with the data, ``bad_rows`` what was set aside, ``fingerprint`` is a hash of everything.
    ``held_back`` are the held-out rows of files; ``drawn`` keeps a domain's held-out problems once they were
    drawn.
    """

    prompts: Mapping[PromptId, Prompt]
    library: Library
    pools: Mapping[PromptId, tuple[str, float]]
    referees: Mapping[str, Referee]
    distinct: Mapping[str, int]
    bad_rows: tuple[BadRow, ...] = ()
    notes: tuple[str, ...] = ()
    fingerprint: str = ""
    domains: Mapping[str, tuple[Entry, Options]] = field(default_factory=dict)
    drawn: dict[tuple[Split, str], list[Prompt]] = field(default_factory=dict)
    places: Mapping[PromptId, Place] = field(default_factory=dict)
    held_back: Mapping[Split, tuple[Prompt, ...]] = field(default_factory=dict)

    def candidates(self, stream: Stream, keep: Callable[[Prompt], bool]) -> list[Candidate]:
        """The prompts of one stream that a curriculum may draw."""
        chosen = [(p, *self.pools[p.id]) for p in self.prompts.values() if p.stream is stream and keep(p)]
        return [
            Candidate(prompt_id=p.id, pool=pool, weight=weight, difficulty=p.difficulty)
            for p, pool, weight in chosen
        ]

    def held_out(self, split: Split, domain: str, count: int) -> list[Prompt]:
        """Up to ``count`` held-out problems of a domain: those of files, then its own generator's."""
        # Drawing a split takes as long as judging it, and every evaluation of a run asks for the same one.
        if (split, domain) not in self.drawn:
            rows = [prompt for prompt in self.held_back.get(split, ()) if prompt.domain == domain]
            self.drawn[split, domain] = [*rows, *self._generated(split, domain)]
        return self.drawn[split, domain][:count]

    def _generated(self, split: Split, domain: str) -> list[Prompt]:
        entry, options = self.domains.get(domain, (None, None))
        if entry is None or not hasattr(entry.module, "load"):
            return []
        return [_named(p, domain, self.referees[domain].entry) for p, _ in entry.module.load(options, split)]


def load_workset(recipe: Recipe, *, base: Path, code: LocalCode) -> Workset:
    """Load and generate everything the recipe names.

    Raises:
        ConfigError: A domain is unknown or refuses its options.
        DataError: A source cannot be read or has bad rows.
    """
    domains, referees = open_domains(recipe, base=base, code=code)
    prompts, demonstrations, pools = _generated(recipe, domains)
    learned = tuple(source for source in recipe.data.sources if source.use is Split.TRAIN)
    data = recipe.data.model_copy(update={"sources": learned})
    corpus = load_data(data, base=base) if learned else Corpus(prompts=())
    sources: dict[str, int] = {}
    for prompt in corpus.prompts:
        if prompt.id in prompts:
            raise DataError(
                f"prompt id {prompt.id!r} of {corpus.places.get(prompt.id)} is also a generated problem's"
            )
        if prompt.domain and prompt.domain not in referees:
            raise ConfigError(
                f"prompts of the data name domain {prompt.domain!r}, which has no [domain.{prompt.domain}] "
                f"table; add one (known here: {', '.join(sorted(referees)) or 'none'})"
            )
        prompts[prompt.id] = prompt
        # Draws depend on a pool's name, so it must not hold a path: a run is the same wherever its files lie.
        number = sources.setdefault(prompt.source, len(sources))
        pools[prompt.id] = f"data-{number}/{prompt.domain or 'none'}", corpus.weight_of(prompt.id)
        if found := corpus.demonstrations.get(prompt.id):
            demonstrations[prompt.id] = found
    if not prompts:
        local = [key for key, table in recipe.domain.items() if is_local_file(table.name)]
        only = f" (a local file, as [domain.{local[0]}] names, judges and makes none)" if local else ""
        raise DataError(
            f"the recipe has no prompts{only}; give a [domain.NAME] with problems or a [[data.sources]]"
        )
    whole = Corpus(prompts=tuple(prompts.values()), demonstrations=demonstrations)
    held = load_held_back(recipe.data, base=base, referees=referees, trained=prompts.values())
    return Workset(
        prompts=prompts,
        library=Library(demonstrations=demonstrations),
        pools=pools,
        referees=referees,
        distinct=_distinct(prompts.values()),
        bad_rows=(*corpus.bad_rows, *(row for c in held.values() for row in c.bad_rows)),
        notes=(*corpus.formats, *(note for c in held.values() for note in c.formats)),
        fingerprint="+".join(c.fingerprint for c in (whole, *held.values())),
        domains=domains,
        places={**{i: place for c in held.values() for i, place in c.places.items()}, **corpus.places},
        held_back={split: c.prompts for split, c in held.items()},
    )


def _generated(recipe: Recipe, domains: Mapping[str, tuple[Entry, Options]]) -> _Rows:
    """The procedural domains' prompts, their demonstrations and their pools."""
    rows: _Rows = {}, {}, {}
    prompts, demonstrations, pools = rows
    for key, (entry, options) in domains.items():
        for prompt, shown in entry.module.load(options, Split.TRAIN) if hasattr(entry.module, "load") else ():
            named = _named(prompt, key, recipe.domain[key].name)
            prompts[named.id] = named
            pools[named.id] = key, recipe.domain[key].weight
            if shown:
                demonstrations[named.id] = tuple(replace(d, prompt_id=named.id) for d in shown)
    return rows


def open_domains(
    recipe: Recipe, *, base: Path, code: LocalCode
) -> tuple[dict[str, tuple[Entry, Options]], dict[str, Referee]]:
    """Every domain table of the recipe: its module with checked options, and its referee."""
    domains: dict[str, tuple[Entry, Options]] = {}
    referees: dict[str, Referee] = {}
    for key, table in recipe.domain.items():
        referees[key] = Referee(entry=table.name, options=table.own)
        if is_local_file(table.name):
            # A user's file is never run in this process; its worker does that.
            locate("domains", table.name, base=base, code=code)
            continue
        entry = find("domains", table.name, base=base, code=code)
        domains[key] = entry, _options(entry, table, key)
    return domains, referees


def keep_fitting(
    work: Workset,
    rendering: Rendering,
    *,
    prompt_limit: int,
    response_limit: int,
    on_bad_rows: str,
) -> Workset:
    """The prompts and demonstrations that fit the run's token limits; the others are among its bad rows.

    Raises:
        DataError: Some do not, and ``on_bad_rows`` is "stop".
    """
    bad: list[BadRow] = []
    prompts: dict[PromptId, Prompt] = {}
    kept: dict[PromptId, tuple[Demonstration, ...]] = {}
    overhead = len(rendering.prompt_ids(next(iter(work.prompts.values())).messages[-1:]))
    for prompt in work.prompts.values():
        reason = _too_long_prompt(prompt, rendering, prompt_limit, overhead)
        if reason:
            bad.append(_bad(prompt, reason, work.places.get(prompt.id)))
            continue
        prompts[prompt.id] = prompt
        fitting = []
        for demonstration in work.library.of(prompt.id):
            reason = _too_long_response(demonstration, rendering, response_limit)
            if reason:
                bad.append(_bad(prompt, reason, work.places.get(prompt.id)))
            else:
                fitting.append(demonstration)
        if fitting:
            kept[prompt.id] = tuple(fitting)
    held_back: dict[Split, tuple[Prompt, ...]] = {}
    for split, rows in work.held_back.items():
        faults = {p.id: _too_long_prompt(p, rendering, prompt_limit, overhead) for p in rows}
        bad += [_bad(p, faults[p.id], work.places.get(p.id)) for p in rows if faults[p.id]]
        held_back[split] = tuple(p for p in rows if not faults[p.id])
    if bad and on_bad_rows == "stop":
        shown = "\n".join(f"  {row.file} {row.unit} {row.row}: {row.reason}" for row in bad[:SHOWN])
        raise DataError(
            f"{len(bad)} prompts or demonstrations are too long, the first:\n{shown}\nraise "
            "trainer.max_prompt_tokens "
            'or trainer.max_response_tokens, or set data.on_bad_rows = "set_aside"'
        )
    return replace(
        work,
        prompts=prompts,
        library=Library(demonstrations=kept),
        bad_rows=(*work.bad_rows, *bad),
        held_back=held_back,
    )


def _options(entry: Entry, table: DomainOptions, key: str) -> Options:
    own = {**entry.options, **table.own}
    return validate_entry("domain", own, config_class=entry.module.Config, path=f"domain.{key}")


def _named(prompt: Prompt, key: str, entry: str) -> Prompt:
    """The prompt under its table's name, which may differ from the entry's."""
    if key == entry:
        return prompt
    return replace(prompt, domain=key, id=PromptId(f"{key}/{prompt.id.removeprefix(entry + '/')}"))


def _too_long_prompt(prompt: Prompt, rendering: Rendering, limit: int, overhead: int) -> str:
    # A token is at least a byte, so a prompt of few bytes need not be rendered to be known as short.
    size = sum(len(m.content.encode("utf-8", "surrogatepass")) + len(m.role) for m in prompt.messages)
    if size + (overhead + 8) * len(prompt.messages) <= limit:
        return ""
    count = len(rendering.prompt_ids(prompt.messages))
    return "" if count <= limit else f"the rendered prompt has {count} tokens; the limit is {limit}"


def _too_long_response(demonstration: Demonstration, rendering: Rendering, limit: int) -> str:
    if (
        demonstration.token_ids is None
        and len(demonstration.text.encode("utf-8", "surrogatepass")) + 1 <= limit
    ):
        return ""
    ids = demonstration.token_ids or rendering.response_ids(demonstration.text)
    return "" if len(ids) <= limit else f"a demonstration has {len(ids)} tokens; the limit is {limit}"


def _bad(prompt: Prompt, reason: str, place: Place | None) -> BadRow:
    # A generated problem stands nowhere but under its id.
    place = place or Place(file=prompt.id, unit="prompt", number=0)
    excerpt = ascii(prompt.messages[-1].content[:120])
    return BadRow(file=place.file, row=place.number, unit=place.unit, reason=reason, excerpt=excerpt)


def _distinct(prompts: Iterable[Prompt]) -> dict[str, int]:
    found: dict[str, set[str]] = {}
    for prompt in prompts:
        found.setdefault(prompt.domain, set()).add(prompt.problem or prompt.id)
    return {domain: len(keys) for domain, keys in found.items()}
