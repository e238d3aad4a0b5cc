"""Tests of bimetal.trainer.workset: what is wrong with the data is found before anything is computed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.rollout.scene import RENDERING

from bimetal.config.load import resolve
from bimetal.core.catalogue import LocalCode
from bimetal.core.errors import ConfigError, DataError, UnknownNameError
from bimetal.core.types import Split, Stream
from bimetal.methods import grpo, sft
from bimetal.objectives.method import RunShape
from bimetal.trainer.needs import check_currency, check_needs, state_of
from bimetal.trainer.workset import keep_fitting, load_workset

SHAPE = RunShape(max_response_tokens=16, group_size=4)
SFT, GRPO = sft.build(sft.Config(), SHAPE), grpo.build(grpo.Config(), SHAPE)
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


def held_back_work(folder: Path, *, train=ROWS, selection=(), test=(), tables=None, **data):
    """Files of several uses: what is trained on, what is selected by, what is tested on."""
    sources = []
    for use, rows in (("train", train), ("selection", selection), ("test", test)):
        if rows:
            (folder / f"{use}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "ascii")
            sources.append({"path": f"{use}.jsonl", "domain": "exact_answer", "use": use})
    tables = {"exact_answer": {}} if tables is None else tables
    return load_workset(recipe(tables, sources, **data), base=folder, code=LocalCode.REFUSED)


def work_of(folder: Path, *, tables=None, rows=(), code=LocalCode.REFUSED, **source):
    """The prompts of these domains and of one file with these rows."""
    sources = []
    if rows:
        (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "ascii")
        sources = [{"path": "rows.jsonl", "domain": "exact_answer", **source}]
    tables = {"exact_answer": {}} if tables is None else tables
    return load_workset(recipe(tables, sources), base=folder, code=code)


def needs(work, method, **changes):
    rules = {"where": "stage.0", "group_size": 4, "demonstration_prompts": 0} | changes
    check_needs(work, method, **rules)


def test_prompts_of_domains_and_files_come_together_with_pools_and_weights(tmp_path):
    tables = {"exact_answer": {}, "lab_arithmetic": {**ARITHMETIC, "weight": 3.0}}
    work = work_of(tmp_path, tables=tables, rows=ROWS, weight=0.5)
    found = work.candidates(Stream.MAIN, lambda prompt: True)
    pools = {c.pool: c.weight for c in found}
    assert len(found) == 8
    assert pools.pop("lab_arithmetic") == 3.0
    assert list(pools.values()) == [0.5]
    assert work.distinct == {"lab_arithmetic": 6, "exact_answer": 2}
    assert [d.text for d in work.library.of("exact_answer/a")] == ["Answer: 2"]


def test_pools_are_named_alike_wherever_the_files_lie(tmp_path):
    found = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        rows = tmp_path / name / "rows.jsonl"
        rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS), "ascii")
        source = {"path": str(rows), "domain": "exact_answer"}
        work = load_workset(recipe({"exact_answer": {}}, [source]), base=tmp_path, code=LocalCode.REFUSED)
        found.append((work.pools, work.prompts.keys()))
    assert found[0] == found[1]


def test_one_domain_may_come_twice_under_names_of_its_own(tmp_path):
    easy = {**ARITHMETIC, "name": "lab_arithmetic"}
    work = work_of(tmp_path, tables={"easy": easy, "lab_arithmetic": ARITHMETIC})
    assert {p.id.partition("/")[0] for p in work.prompts.values()} == {"easy", "lab_arithmetic"}
    assert work.distinct == {"easy": 6, "lab_arithmetic": 6}
    assert all(d.prompt_id == name for name in work.prompts for d in work.library.of(name))
    assert [p.domain for p in work.held_out(Split.TEST, "easy", 3)] == ["easy"] * 3


def test_held_out_problems_are_never_trained_on(tmp_path):
    work = work_of(tmp_path, tables={"lab_arithmetic": ARITHMETIC})
    trained = {p.problem for p in work.prompts.values()}
    for split, count in ((Split.SELECTION, 4), (Split.TEST, 5)):
        held_out = work.held_out(split, "lab_arithmetic", 99)
        assert len(held_out) == count
        assert trained.isdisjoint(p.problem for p in held_out)
    assert work_of(tmp_path, rows=ROWS).held_out(Split.TEST, "exact_answer", 9) == []


def test_the_fingerprint_is_of_everything(tmp_path):
    first = work_of(tmp_path, rows=ROWS).fingerprint
    assert work_of(tmp_path, rows=ROWS).fingerprint == first
    changed = ({**ROWS[0], "demonstration": "Answer: 3"}, ROWS[1])
    assert work_of(tmp_path, rows=changed).fingerprint != first
    assert work_of(tmp_path, rows=ROWS[::-1]).fingerprint != first


def test_a_domain_of_a_row_needs_a_table(tmp_path):
    with pytest.raises(ConfigError, match=r"name domain 'math', which has no \[domain.math\] table"):
        work_of(tmp_path, rows=[{**ROWS[0], "domain": "math"}], domain="")


def test_a_local_reward_file_may_judge_rows_if_it_is_allowed(tmp_path):
    (tmp_path / "mine.py").write_text("raise SystemExit('never run in this process')\n", "ascii")
    rows = [{**ROWS[0], "domain": "mine"}]
    local = {"mine": {"name": "./mine.py:score"}}
    work = work_of(tmp_path, rows=rows, tables=local, code=LocalCode.ALLOWED, domain="")
    assert work.referees["mine"].entry == "./mine.py:score"
    with pytest.raises(ConfigError, match="pass --allow-code"):
        work_of(tmp_path, rows=rows, tables=local, domain="")


def test_without_prompts_there_is_nothing_to_do(tmp_path):
    with pytest.raises(DataError, match="the recipe has no prompts"):
        work_of(tmp_path)


def test_imitation_needs_demonstrations(tmp_path):
    needs(work_of(tmp_path, rows=ROWS), SFT)
    with pytest.raises(ConfigError, match="none would be drawn; found 0 prompts with demonstrations"):
        needs(work_of(tmp_path, rows=ROWS[1:]), SFT)


def test_a_second_stream_needs_somebody_who_lends(tmp_path):
    with pytest.raises(ConfigError, match=r"demonstration_prompts is 2, but no prompt has a demonstration"):
        needs(work_of(tmp_path, rows=ROWS[1:]), GRPO, demonstration_prompts=2)


def test_a_reward_needs_references_and_imitation_does_not(tmp_path):
    rows = [{"id": "a", "prompt": "1+1=?", "demonstration": "2"}, *ROWS[1:]]
    work = work_of(tmp_path, rows=rows)
    needs(work, SFT)
    with pytest.raises(DataError, match=r"1 of 2 prompts have no reference, the first: exact_answer/a\."):
        needs(work, GRPO)


def test_a_reward_needs_a_domain_that_judges(tmp_path):
    with pytest.raises(UnknownNameError, match="domain of prompt "):
        needs(work_of(tmp_path, rows=ROWS, domain=""), GRPO)


def test_a_mix_sees_an_empty_group_first(tmp_path):
    work = work_of(tmp_path, rows=ROWS)
    state = state_of(work, work.prompts["exact_answer/a"], 4)
    assert (state.size, state.visit, state.progress, state.traces) == (4, 0, 0.0, ())
    assert [d.text for d in state.demonstrations] == ["Answer: 2"]


def kept(work, *, prompt=100, response=100, on_bad_rows="stop"):
    return keep_fitting(
        work, RENDERING, prompt_limit=prompt, response_limit=response, on_bad_rows=on_bad_rows
    )


@pytest.mark.parametrize(("limits", "reason"), [
    ({"prompt": 4}, "rows.jsonl line 1: the rendered prompt has 5 tokens; the limit is 4"),
    ({"response": 9}, "rows.jsonl line 1: a demonstration has 10 tokens; the limit is 9"),
])  # fmt: skip
def test_what_is_too_long_stops_the_run_and_names_the_row(tmp_path, limits, reason):
    with pytest.raises(DataError, match=reason):
        kept(work_of(tmp_path, rows=ROWS[:1]), **limits)
    exact = {name: limit + 1 for name, limit in limits.items()}
    assert kept(work_of(tmp_path, rows=ROWS[:1]), **exact).bad_rows == ()


def test_what_is_too_long_may_be_set_aside_with_its_reason(tmp_path):
    long = {"id": "c", "prompt": "9" * 50, "reference": "9", "demonstration": "9"}
    work = kept(work_of(tmp_path, rows=(*ROWS, long)), prompt=20, response=9, on_bad_rows="set_aside")
    assert list(work.prompts) == ["exact_answer/a", "exact_answer/b"]
    assert work.library.demonstrations == {}
    assert {row.row: row.reason for row in work.bad_rows} == {
        1: "a demonstration has 10 tokens; the limit is 9",
        3: "the rendered prompt has 50 tokens; the limit is 20",
    }


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


def test_a_local_file_alone_is_said_to_make_no_problems(tmp_path):
    (tmp_path / "mine.py").write_text("def score(prompts, completions, **columns):\n    return []\n", "ascii")
    with pytest.raises(DataError, match=r"a local file, as \[domain.mine\] names, judges and makes none"):
        work_of(tmp_path, tables={"mine": {"name": "./mine.py:score"}}, code=LocalCode.ALLOWED)


def test_a_budget_that_a_stage_never_spends_is_refused(tmp_path):
    work = work_of(tmp_path, tables={"lab_arithmetic": ARITHMETIC})
    for currency in ("generated_tokens", "verdicts"):
        with pytest.raises(ConfigError, match=f"stage.0: this stage spends no {currency}"):
            check_currency(work, SFT, where="stage.0", currency=currency, group_size=4)
        check_currency(work, GRPO, where="stage.0", currency=currency, group_size=4)
    check_currency(work, SFT, where="stage.0", currency="trained_tokens", group_size=4)


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
