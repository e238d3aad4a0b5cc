"""`bimetal methods` and `bimetal domains`: lists and cards."""

from __future__ import annotations

import json

import pytest

from bimetal.cli._catalogue import card, card_as_markdown, cards
from bimetal.cli.main import main
from bimetal.core.catalogue import names


def test_every_method_has_a_card_with_sentence_paper_equation_and_needs() -> None:
    found = cards("methods")
    assert [one.name for one in found] == names("methods")
    for one in found:
        assert one.summary.endswith((".", ")")) or one.summary
        assert one.paper, one.name
        assert one.equation, one.name
        assert one.evidence, one.name
        assert one.terms, one.name
        assert one.equivalence_class, one.name


def test_every_option_of_every_entry_is_described() -> None:
    missing = [
        f"{kind}.{one.name}.{row.key}"
        for kind in ("methods", "domains", "backends", "curricula")
        for one in cards(kind)
        for row in one.options
        if not row.description
    ]
    assert missing == []


def test_what_a_method_needs_stands_in_its_card() -> None:
    assert card("methods", "sft").needs == ("demonstrations",)
    assert card("methods", "grpo").needs == ("reward",)


def test_a_variant_has_a_card_with_its_presets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods", "chord_phi", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["variants"]["chord_phi"]["weight"] == "uncertainty"


def test_the_page_has_the_equation_the_options_and_the_numbered_differences() -> None:
    page = card_as_markdown(card("methods", "grpo"))
    assert page.startswith("# grpo\n")
    assert "```text\nL = -(1/N)" in page
    assert "| `clip_high` | number | >= 0 | 0.2 |" in page
    assert "\n\n1. " in page


@pytest.mark.parametrize("kind", ["methods", "domains"])
def test_the_list_names_every_entry(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([kind]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in names(kind))
    assert main([kind, "--json"]) == 0
    assert [one["name"] for one in json.loads(capsys.readouterr().out)] == names(kind)


def test_a_card_that_is_piped_is_plain_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["domains", "lab_arithmetic"]) == 0
    assert capsys.readouterr().out.startswith("# lab_arithmetic\n")
