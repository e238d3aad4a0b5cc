"""Problems of an evaluation: domains with their options, held-out rows, data files."""

from __future__ import annotations

from pathlib import Path

import pytest

from bimetal.core.errors import ConfigError, DataError, UnknownNameError
from bimetal.core.types import Split
from bimetal.data.corpus import BadRow, Corpus, write_set_aside
from bimetal.studies.problems import answer_tokens, domain_tables, generated, held_out_rows, read

TABLES = """
[domain.sums]
name = "lab_arithmetic"
most_digits = 4
[domain.lab_table]
[trainer]
max_response_tokens = 96
"""


def test_domains_take_their_options_from_the_recipe_or_their_defaults(tmp_path: Path) -> None:
    recipe = tmp_path / "suite.toml"
    recipe.write_text(TABLES)
    assert list(domain_tables((), recipe)) == ["sums", "lab_table"]
    chosen = domain_tables(("sums", "lab_knights"), recipe)
    assert (chosen["sums"].name, chosen["sums"].own) == ("lab_arithmetic", {"most_digits": 4})
    assert (chosen["lab_knights"].name, chosen["lab_knights"].own) == ("lab_knights", {})


def test_the_length_of_answers_is_the_recipes(tmp_path: Path) -> None:
    recipe = tmp_path / "suite.toml"
    recipe.write_text(TABLES)
    assert (answer_tokens(recipe), answer_tokens(None)) == (96, 128)


def test_problems_carry_their_tables_name_and_respect_its_options(tmp_path: Path) -> None:
    recipe = tmp_path / "suite.toml"
    recipe.write_text(TABLES)
    found = generated(domain_tables(("sums",), recipe), Split.TEST, count=4)
    assert len(found.prompts["sums"]) == 4
    assert all(p.domain == "sums" and p.id.startswith("sums/") for p in found.prompts["sums"])
    assert found.referees["sums"].entry == "lab_arithmetic"
    assert found.options == {"sums": {"name": "lab_arithmetic", "most_digits": 4}}


def test_test_problems_are_not_training_problems() -> None:
    tables = domain_tables(("lab_arithmetic",), None)
    test, train = (
        {p.problem for p in generated(tables, split, count=200).prompts["lab_arithmetic"]}
        for split in (Split.TEST, Split.TRAIN)
    )
    assert len(test) == 200
    assert test.isdisjoint(train)


def test_a_data_file_is_read_for_its_one_domain(tmp_path: Path) -> None:
    data = tmp_path / "mine.jsonl"
    data.write_text('{"prompt": "1+1=?", "reference": "2"}\n{"prompt": "2+2=?", "reference": "4"}\n')
    found = read(data, domain_tables(("exact_answer",), None), count=1)
    assert [(p.domain, p.reference) for p in found.prompts["exact_answer"]] == [("exact_answer", "2")]
    with pytest.raises(ConfigError, match="judged by one domain; found exact_answer, lab_table"):
        read(data, domain_tables(("exact_answer", "lab_table"), None), count=1)
    data.write_text('{"prompt": "1+1=?"}\n')
    with pytest.raises(DataError, match="has no reference"):
        read(data, domain_tables(("exact_answer",), None), count=None)


def test_wrong_tables_are_refused(tmp_path: Path) -> None:
    recipe = tmp_path / "suite.toml"
    recipe.write_text("domain = 3\n")
    with pytest.raises(ConfigError, match="domain must be tables"):
        domain_tables((), recipe)
    recipe.write_text("[domain]\nlab_table = 3\n")
    with pytest.raises(ConfigError, match=r"domain\.lab_table must be a table"):
        domain_tables((), recipe)
    with pytest.raises(UnknownNameError, match="did you mean 'lab_table'"):
        generated(domain_tables(("lab_tabel",), None), Split.TEST, count=1)


HELD_OUT = """
[domain.exact_answer]
[[data.sources]]
path = "train.jsonl"
domain = "exact_answer"
[[data.sources]]
path = "test.jsonl"
domain = "exact_answer"
use = "test"
"""


def test_rows_that_a_recipe_holds_out_are_problems_of_their_split(tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text('{"id": "t", "prompt": "1+1=?", "reference": "2"}\n')
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(HELD_OUT)
    tables = domain_tables((), recipe)
    rows = held_out_rows(recipe, tables, Split.TEST)
    found = generated(tables, Split.TEST, count=9, rows=rows)
    assert [p.id for p in found.prompts["exact_answer"]] == ["exact_answer/t"]
    assert held_out_rows(recipe, tables, Split.SELECTION) == held_out_rows(None, tables, Split.TEST) == []
    assert held_out_rows(recipe, domain_tables(("lab_table",), recipe), Split.TEST) == []
    with pytest.raises(ConfigError, match=r"as a \[\[data.sources\]\] with use = \"selection\""):
        generated(tables, Split.SELECTION, count=9)


def test_rows_that_a_run_set_aside_are_left_out_again(tmp_path: Path) -> None:
    rows = (
        '{"id": "t", "prompt": "1+1=?", "reference": "2"}\n{"id": "u", "prompt": "1+2=?", "reference": "3"}\n'
    )
    (tmp_path / "test.jsonl").write_text(rows)
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(HELD_OUT)
    bad = BadRow(file="test.jsonl", row=1, unit="line", reason="too long", excerpt="")
    write_set_aside(Corpus(prompts=(), bad_rows=(bad,)), tmp_path / "data")
    found = held_out_rows(recipe, domain_tables((), recipe), Split.TEST)
    assert [p.id for p in found] == ["exact_answer/u"]
