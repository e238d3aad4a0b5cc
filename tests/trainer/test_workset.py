"""Tests of bimetal.trainer.workset: what is wrong with the data is found before anything is computed."""

from __future__ import annotations

import json

import pytest
from tests.rollout.scene import RENDERING
from tests.trainer.worksets import ARITHMETIC, ROWS, recipe, work_of

from bimetal.core.catalogue import LocalCode
from bimetal.core.errors import ConfigError, DataError, UnknownNameError
from bimetal.core.types import Split, Stream
from bimetal.methods import grpo, sft
from bimetal.objectives.method import RunShape
from bimetal.trainer.needs import check_currency, check_needs, state_of
from bimetal.trainer.workset import keep_fitting, load_workset

SHAPE = RunShape(max_response_tokens=16, group_size=4)
SFT, GRPO = sft.build(sft.Config(), SHAPE), grpo.build(grpo.Config(), SHAPE)


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
