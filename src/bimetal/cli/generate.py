"""`bimetal generate`: a model's answers to prompts from the terminal, a file, or a domain, with verdicts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bimetal.cli._answers import (
    TIME_LIMIT_SECONDS,
    Device,
    Domain,
    MaxTokens,
    Samples,
    Seed,
    Split,
    Suite,
    Temperature,
    TopK,
    TopP,
    recipe_of,
    split_of,
)
from bimetal.cli._console import JsonFlag, print_json, print_text
from bimetal.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from bimetal.config.schema import DomainOptions
    from bimetal.core.types import Item, Prompt, Verdict
    from bimetal.core.types import Split as SplitName
    from bimetal.evaluation.sample import Answer
    from bimetal.rollout.group import Judge
    from bimetal.studies.problems import Problems

PROMPTS_FROM_DOMAIN = 5
NOBODY = "nobody_judged"
SPLITS = ("train", "selection", "test")
TEXT_FILES = (".txt", "")
"""Endings of files that hold one prompt a line; every other file is read as data."""


def command(
    model: Annotated[
        str, typer.Argument(help="lab/nano, a model folder, a hub id, or a finished run's folder.")
    ],
    *,
    prompts: Annotated[
        str,
        typer.Option(
            "--prompts", help="A .txt with a prompt a line, or JSONL, CSV or Parquet; - is standard input."
        ),
    ] = "",
    domain: Domain = None,
    suite: Suite = "",
    problems: Annotated[
        int | None, typer.Option(min=1, help="How many prompts; 5 of each domain, or the whole file.")
    ] = None,
    split: Split = "selection",
    samples: Samples = 1,
    temperature: Temperature = 0.0,
    top_p: TopP = 1.0,
    top_k: TopK = 0,
    max_tokens: MaxTokens = None,
    seed: Seed = 0,
    device: Device = "auto",
    json: JsonFlag = False,
) -> None:
    """Answer prompts: yours at the terminal, those of a file, or a domain's own problems with verdicts.

    Example: bimetal generate lab/nano --domain lab_table; echo "47+85=?" | bimetal generate lab/nano
    """
    from bimetal.core.streams import Streams
    from bimetal.evaluation.sample import Plan, answer
    from bimetal.rollout.backend import Sampling
    from bimetal.studies.answering import judging, named, opened, with_stops
    from bimetal.studies.problems import answer_tokens, domain_tables

    subject = named(model)
    recipe = recipe_of(suite, subject.run)
    sampling = Sampling(
        temperature=temperature, top_p=top_p, top_k=top_k, max_tokens=max_tokens or answer_tokens(recipe)
    )
    plan = Plan(sampling=sampling, samples=samples, unknown_share_limit=1.0)
    tables = domain_tables(domain, recipe) if domain else {}
    found = known_problems(prompts, tables, split=split_of(split, SPLITS), count=problems)
    with ExitStack() as stack:
        judge: Judge = unjudged
        if found is not None and tables:
            judge = stack.enter_context(judging(found, workers=1, time_limit_seconds=TIME_LIMIT_SECONDS))
        answering = stack.enter_context(opened(subject, seed=seed, device=device))
        shown: list[dict[str, object]] = []
        for some in [[p for group in found.prompts.values() for p in group]] if found else typed(prompts):
            answers = answer(
                some,
                subject=answering.subject,
                judge=judge,
                streams=Streams(seed),
                plan=with_stops(plan, answering),
            )
            rows = [as_json(p, group) for p, group in zip(some, answers, strict=True)]
            shown += rows
            if not json:
                for row in rows:
                    show(row)
    if json:
        print_json(shown)


def known_problems(
    prompts: str, tables: Mapping[str, DomainOptions], *, split: SplitName, count: int | None
) -> Problems | None:
    """The prompts of a data file or of the domains; ``None`` where they are lines of text.

    Raises:
        ConfigError: Lines of text are to be judged, though they have no reference answers.
    """
    from bimetal.studies.problems import generated, read

    if prompts and prompts != "-" and Path(prompts).suffix not in TEXT_FILES:
        return read(Path(prompts), tables, count=count)
    if tables and prompts:
        raise ConfigError(
            "--domain: lines of text have no reference answers to judge by; leave --domain out, or give a "
            "JSONL file with prompts and references"
        )
    return generated(tables, split, count=count or PROMPTS_FROM_DOMAIN) if tables else None


def typed(prompts: str) -> Iterator[list[Prompt]]:
    """The lines of a text file or of standard input that are not blank; at a terminal one at a time.

    Raises:
        DataError: There are none, or the file cannot be read.
    """
    if prompts in {"", "-"} and sys.stdin.isatty():
        yield from ([prompt] for prompt in as_prompts(asked()))
        return
    if prompts in {"", "-"}:
        text = sys.stdin.read()
    else:
        try:
            text = Path(prompts).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"--prompts: {prompts} cannot be read ({error}); name a UTF-8 text file"
            ) from error
    found = list(as_prompts(text.splitlines()))
    if not found:
        raise DataError("there are no prompts; write one a line, or name a domain with --domain")
    yield found


def asked() -> Iterator[str]:
    """Lines as somebody types them, until the end of input."""
    sys.stderr.write("One prompt a line; Ctrl-D ends.\n")
    while True:
        sys.stderr.write("> ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            return
        yield line


def as_prompts(lines: Iterable[str]) -> Iterator[Prompt]:
    """Every line that is not blank as a prompt of the user."""
    from bimetal.core.types import Message, Prompt, PromptId

    for number, line in enumerate(lines, start=1):
        if line.strip():
            messages = (Message(role="user", content=line.rstrip("\r\n")),)
            yield Prompt(id=PromptId(f"line/{number}"), domain="", messages=messages)


def unjudged(groups: Sequence[Sequence[Item]]) -> list[list[Verdict]]:
    """Nobody judges: every verdict is unknown, and none is shown."""
    from bimetal.core.types import Status, Verdict

    nobody = Verdict(status=Status.UNKNOWN, reward=None, reason=NOBODY)
    return [[nobody for _ in group] for group in groups]


def as_json(prompt: Prompt, answers: Sequence[Answer]) -> dict[str, object]:
    """One prompt and its answers as plain values."""

    def row(one: Answer) -> dict[str, object]:
        found: dict[str, object] = {"text": one.text, "tokens": one.tokens, "finish": one.finish.value}
        if one.verdict.reason != NOBODY:
            found |= {
                "status": one.verdict.status.value,
                "reason": one.verdict.reason,
                "extracted": one.verdict.extracted,
            }
        return found

    return {
        "id": prompt.id,
        "messages": [{"role": m.role, "content": m.content} for m in prompt.messages],
        "reference": prompt.reference,
        "answers": [row(one) for one in answers],
    }


def show(row: Mapping[str, Any]) -> None:
    """One prompt and its answers for people."""
    print_text("\n".join(message["content"] for message in row["messages"]))
    for one in row["answers"]:
        verdict = ""
        if "status" in one:
            wanted = "" if one["status"] == "correct" else f"; reference: {row['reference']}"
            verdict = f"  [{one['status']}{wanted}]"
        cut = "  [cut off]" if one["finish"] == "length" else ""
        text = "\n".join(f"    {line}" for line in one["text"].splitlines()) or "    (empty)"
        print_text(f"{text}{verdict}{cut}")
    print_text()
