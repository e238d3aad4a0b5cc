"""Tests of bimetal.trainer.held_back: rows of files that are held out, and what may not stand in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.rollout.scene import RENDERING
from tests.trainer.worksets import ARITHMETIC, ROWS, recipe, work_of

from bimetal.core.catalogue import LocalCode
from bimetal.core.errors import ConfigError, DataError
from bimetal.core.types import Split
from bimetal.trainer.workset import keep_fitting, load_workset


def held_back_work(folder: Path, *, train=ROWS, selection=(), test=(), tables=None, **data):
    """Files of several uses: what is trained on, what is selected by, what is tested on."""
    sources = []
    for use, rows in (("train", train), ("selection", selection), ("test", test)):
        if rows:
            (folder / f"{use}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "ascii")
            sources.append({"path": f"{use}.jsonl", "domain": "exact_answer", "use": use})
    tables = {"exact_answer": {}} if tables is None else tables
    return load_workset(recipe(tables, sources, **data), base=folder, code=LocalCode.REFUSED)


def test_rows_of_files_can_be_held_out_and_are_never_trained_on(tmp_path):
    selection = ({"id": "s", "prompt": "2+2=?", "reference": "4"},)
    test = ({"id": "t", "prompt": "2+3=?", "reference": "5", "demonstration": "Answer: 5"},)
    work = held_back_work(tmp_path, selection=selection, test=test)
    assert set(work.prompts) == {"exact_answer/a", "exact_answer/b"}
    assert [p.id for p in work.held_out(Split.SELECTION, "exact_answer", 9)] == ["exact_answer/s"]
    assert [p.id for p in work.held_out(Split.TEST, "exact_answer", 9)] == ["exact_answer/t"]
    assert not work.library.of("exact_answer/t")
    assert any(
        "1 test rows hold demonstrations; held-out rows are never learned from" in n for n in work.notes
    )
    other = held_back_work(tmp_path, selection=({**selection[0], "reference": "5"},), test=test)
    assert work.fingerprint != other.fingerprint


def test_a_leak_is_found_whatever_the_domain_is_called(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"prompt": "1 + 1=?", "completion": "2"}\n', "ascii")
    (tmp_path / "s.jsonl").write_text('{"prompt": "1 + 1=?", "reference": "2"}\n', "ascii")
    for domain in ("", "other"):
        sources = [
            {"path": "t.jsonl", "domain": domain},
            {"path": "s.jsonl", "domain": "exact_answer", "use": "test"},
        ]
        tables = {"exact_answer": {}, "other": {"name": "exact_answer"}}
        with pytest.raises(DataError, match="the same problem is in the train data"):
            load_workset(recipe(tables, sources), base=tmp_path, code=LocalCode.REFUSED)


def test_a_row_that_says_what_a_generator_trains_on_is_a_leak(tmp_path):
    work = work_of(tmp_path, tables={"lab_arithmetic": ARITHMETIC})
    copied = next(iter(work.prompts.values())).messages[-1].content
    (tmp_path / "s.jsonl").write_text(json.dumps({"prompt": copied, "reference": {"answer": 1}}), "ascii")
    source = {"path": "s.jsonl", "domain": "lab_arithmetic", "use": "selection"}
    with pytest.raises(DataError, match="the same problem is in the train data"):
        load_workset(recipe({"lab_arithmetic": ARITHMETIC}, [source]), base=tmp_path, code=LocalCode.REFUSED)


def test_held_out_rows_stand_beside_a_generator_of_the_same_domain(tmp_path):
    rows = [{"id": "s", "prompt": "20+20=?", "reference": {"answer": 40}}]
    (tmp_path / "s.jsonl").write_text(json.dumps(rows[0]), "ascii")
    source = {"path": "s.jsonl", "domain": "lab_arithmetic", "use": "selection"}
    options = recipe({"lab_arithmetic": ARITHMETIC}, [source])
    work = load_workset(options, base=tmp_path, code=LocalCode.REFUSED)
    found = work.held_out(Split.SELECTION, "lab_arithmetic", 99)
    assert len(found) == 5
    assert found[0].id == "lab_arithmetic/s"
    assert work.held_out(Split.SELECTION, "lab_arithmetic", 1) == found[:1]


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([{"id": "s", "prompt": " 1+1=? ", "reference": "2"}], "the same problem is in the train data"),
        ([{"id": "s", "prompt": "3+3=?"}], "selection row.*has no reference"),
    ],
)
def test_a_held_out_row_that_leaks_or_cannot_be_judged_stops_the_run_or_is_set_aside(tmp_path, rows, match):
    with pytest.raises(DataError, match=f"(?s){match}"):
        held_back_work(tmp_path, selection=rows)
    fine = {"id": "f", "prompt": "4+4=?", "reference": "8"}
    work = held_back_work(tmp_path, selection=[*rows, fine], on_bad_rows="set_aside")
    assert [p.id for p in work.held_out(Split.SELECTION, "exact_answer", 9)] == ["exact_answer/f"]
    assert len(work.bad_rows) == 1


def test_a_problem_of_the_selection_rows_cannot_be_a_test_row_too(tmp_path):
    row = {"id": "s", "prompt": "3+3=?", "reference": "6"}
    with pytest.raises(DataError, match="the same problem is in the selection data; test must not hold it"):
        held_back_work(tmp_path, selection=[row], test=[{**row, "id": "t"}])


def test_held_out_rows_need_a_domain_of_the_recipe(tmp_path):
    rows = [{"id": "s", "prompt": "3+3=?", "reference": "6"}]
    (tmp_path / "s.jsonl").write_text(json.dumps(rows[0]), "ascii")
    table = {"lab_arithmetic": ARITHMETIC}
    for domain, found in (("", "''"), ("math", "'math'")):
        options = recipe(table, [{"path": "s.jsonl", "domain": domain, "use": "selection"}])
        with pytest.raises(ConfigError, match=rf"s.jsonl line 1: a selection row .* found {found}"):
            load_workset(options, base=tmp_path, code=LocalCode.REFUSED)


def test_held_out_rows_lend_no_demonstrations():
    source = {"path": "s.jsonl", "use": "test", "stream": "demonstrations"}
    with pytest.raises(ConfigError, match="held-out rows lend no demonstrations"):
        recipe({"exact_answer": {}}, [source])


def test_a_held_out_prompt_that_is_too_long_is_a_bad_row(tmp_path):
    long = {"id": "s", "prompt": "1 " * 200, "reference": "6"}
    work = held_back_work(tmp_path, selection=[long])
    limits = {"prompt_limit": 64, "response_limit": 64}
    with pytest.raises(DataError, match=r"selection\.jsonl line 1: the rendered prompt has"):
        keep_fitting(work, RENDERING, **limits, on_bad_rows="stop")
    kept = keep_fitting(work, RENDERING, **limits, on_bad_rows="set_aside")
    assert kept.held_out(Split.SELECTION, "exact_answer", 9) == []
    assert len(kept.bad_rows) == 1
