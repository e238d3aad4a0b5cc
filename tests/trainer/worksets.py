"""Small sets of prompts: of a generator, of files, or of both."""

from __future__ import annotations

import json
from pathlib import Path

from bimetal.config.load import resolve
from bimetal.core.catalogue import LocalCode
from bimetal.trainer.workset import load_workset

ARITHMETIC = {"count": {"train": 6, "selection": 4, "test": 5}, "least_digits": 2, "most_digits": 2}
ROWS = (
    {"id": "a", "prompt": "1+1=?", "reference": "2", "demonstration": "Answer: 2"},
    {"id": "b", "prompt": "1+2=?", "reference": "3"},
)


def recipe(domain, sources=(), **data):
    return resolve(
        {
            "name": "w", "model": {"name": "lab/nano"}, "domain": domain, "budget": {"amount": 10},
            "data": {"sources": list(sources), **data}, "stage": [{"method": {"name": "sft"}}],
        }
    )  # fmt: skip


def work_of(folder: Path, *, tables=None, rows=(), code=LocalCode.REFUSED, **source):
    """The prompts of these domains and of one file with these rows."""
    sources = []
    if rows:
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "ascii")
        sources = [{"path": "rows.jsonl", "domain": "exact_answer", **source}]
    tables = {"exact_answer": {}} if tables is None else tables
    return load_workset(recipe(tables, sources), base=folder, code=code)
