"""Writes the pages that follow from the code: methods, domains, options, errors, metrics.

python scripts/generate_docs.py           write them
python scripts/generate_docs.py --check   end with code 1 if a committed page differs
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

from bimetal.cli._catalogue import Card, card_as_markdown, cards
from bimetal.config.describe import option_reference
from bimetal.config.schema import Recipe
from bimetal.core import errors
from bimetal.core.metric_names import METRICS

DOCS = Path(__file__).resolve().parent.parent / "docs"
NOTE = "<!-- Written by scripts/generate_docs.py from the code; edit the code and run it again. -->\n\n"
COMMAND = "python scripts/generate_docs.py"


def main() -> int:
    """Write the pages, or compare them with those on disk."""
    wanted = {DOCS / name: NOTE + text for name, text in pages().items()}
    stale = [path for path in sorted((DOCS / "methods").glob("*.md")) if path not in wanted]
    if "--check" in sys.argv[1:]:
        changed = [path for path, text in wanted.items() if not _is(path, text)]
        for path in [*changed, *stale]:
            print(f"{path.relative_to(DOCS.parent)}: differs from the code; run `{COMMAND}`")
        return 1 if changed or stale else 0
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in stale:
        path.unlink()
    print(f"{len(wanted)} pages written, {len(stale)} removed")
    return 0


def pages() -> dict[str, str]:
    """Every generated page: path below docs/ -> Markdown."""
    methods = cards("methods")
    return {
        "methods/index.md": _method_index(methods),
        **{f"methods/{card.name}.md": _method_page(card) for card in methods},
        "reference/domains.md": _domains(cards("domains")),
        "reference/options.md": _options(),
        "reference/errors.md": _errors(),
        "reference/metrics.md": _metrics(),
    }


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def _method_page(card: Card) -> str:
    return f"{card_as_markdown(card)}\nIn the terminal: `bimetal methods {card.name}`.\n"


def _method_index(methods: list[Card]) -> str:
    lines = ["# Methods", "", "One file each under `src/bimetal/methods/`; this is also the paper index.", ""]
    lines += ["| method | what it is | paper | evidence | needs |", "|---|---|---|---|---|"]
    lines += [
        f"| [{card.name}]({card.name}.md) | {card.summary} | {card.paper} | {', '.join(card.evidence)} "
        f"| {', '.join(card.needs)} |"
        for card in methods
    ]
    return "\n".join(lines) + "\n"


def _domains(domains: list[Card]) -> str:
    # Each card is a page of its own elsewhere; here its headings stand one level deeper.
    bodies = [card_as_markdown(card).replace("\n## ", "\n### ").replace("# ", "## ", 1) for card in domains]
    head = (
        "# Domains\n\nOne file each under `src/bimetal/domains/`; `bimetal domains NAME` prints the same.\n"
    )
    return "\n".join([head, *bodies])


def _options() -> str:
    head = "# Options\n\nEvery key a recipe may have. The options of a method, a domain, a backend or\n"
    tail = "a curriculum stand on its own page, and go into the table that names it."
    return f"{head}{tail}\n\n{option_reference(Recipe)}"


def _errors() -> str:
    parts = [
        "# Errors",
        "What went wrong is in the class; where, what was found and what to do is in the message.",
    ]
    parts.append(f"```text\n{_tree()}\n```")
    for kind in error_classes():
        parents = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
        parts.append(f"## {kind.__name__}\n\n{inspect.getdoc(kind)}\n\nDerives from {parents}.")
    return "\n\n".join(parts) + "\n"


def error_classes() -> Iterator[type[errors.BimetalError]]:
    """The classes of the tree, in the order of their file."""
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, errors.BimetalError):
            yield value


def _tree() -> str:
    """The drawing at the top of the errors' file."""
    lines = (errors.__doc__ or "").splitlines()
    first = next(number for number, line in enumerate(lines) if line.strip().startswith("BimetalError"))
    drawn = [line for line in lines[first:] if line.startswith(" ")]
    return inspect.cleandoc("\n" + "\n".join(drawn))


def _metrics() -> str:
    lines = [
        "# Metrics",
        "",
        "A part in capitals stands for any name.",
        "",
    ]
    lines += ["| metric | what it is | unit | healthy | otherwise |", "|---|---|---|---|---|"]
    for name, described in METRICS.items():
        cells = (f"`{name}`", described.meaning, described.unit, described.healthy, described.remedy)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
