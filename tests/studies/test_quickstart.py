"""The main job, whole but tiny: real training, the control, four evaluations, and the files it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bimetal.core.budget import Currency
from bimetal.evaluation.result import load
from bimetal.studies.quickstart import Quickstart, control_recipe, packaged_recipe, quickstart
from bimetal.studies.runs import Outcome

COUNT = "count={train=20,selection=8,test=8}"
TINY = (
    *(f"domain.lab_{name}.{COUNT}" for name in ("arithmetic", "countdown", "knights", "registers", "table")),
    "budget.amount=3e10",
    "evaluation.problems_per_domain=2",
    "trainer.max_response_tokens=40",
    "trainer.threads=1",
    "stage.0.prompts_per_batch=8",
    "stage.1.prompts_per_batch=2",
    "stage.1.group_size=2",
    "stage.1.demonstration_prompts=4",
)
DOMAINS = {"lab_arithmetic", "lab_countdown", "lab_knights", "lab_registers", "lab_table"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Quickstart:
    return quickstart(tmp_path_factory.mktemp("runs") / "quickstart", overrides=TINY, problems=4)


def test_the_summary_has_every_number_that_is_promised(made: Quickstart) -> None:
    document = json.loads((made.folder / "summary.json").read_text(encoding="ascii"))
    assert document == json.loads(json.dumps(made.summary))
    assert {"model", "method", "train_seconds", "generated_tokens", "trained_tokens"} <= set(document)
    assert document["model"] == "lab/nano"
    assert document["method"] == "chord"
    assert set(document["distinct_problems"]) == DOMAINS
    assert set(document["domains"]) == DOMAINS
    for one in document["domains"].values():
        assert one["n"] == 4
        assert {"before", "after_sft", "after", "sft_same_budget"} <= set(one)
        for difference in (one["diff_vs_sft"], one["diff_vs_control"]):
            low, high = difference["ci"]
            assert low <= difference["value"] <= high


def test_train_seconds_are_those_of_the_two_stages_alone(made: Quickstart) -> None:
    lines = [
        json.loads(text) for text in (made.folder / "metrics.jsonl").read_text(encoding="ascii").splitlines()
    ]
    spent = max(line["times"].get("budget/wall_seconds", 0.0) for line in lines)
    assert made.summary["train_seconds"] == spent


def test_the_control_spends_what_the_whole_run_spent(made: Quickstart) -> None:
    main, control = (
        json.loads((folder / "metrics.jsonl").read_text(encoding="ascii").splitlines()[-2])["metrics"][
            "budget/flops"
        ]
        for folder in (made.folder, made.folder / "control")
    )
    assert made.summary["flops"] == main
    # A run stops at the first batch that reaches its budget.
    assert control >= main


def test_the_four_models_answered_the_same_problems(made: Quickstart) -> None:
    asked = [
        [p.prompt_id for problems in load(made.folder, name=name).problems.values() for p in problems]
        for name in ("before", "after_sft", "after", "sft_same_budget")
    ]
    assert all(one == asked[0] for one in asked)
    assert len(asked[0]) == 20


def test_report_picture_and_models_are_there(made: Quickstart) -> None:
    page = (made.folder / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "after hybrid" in page
    assert (made.folder / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    for folder in ("model", "stages/sft", "control/model"):
        assert (made.folder / folder / "model.safetensors").is_file()


def test_a_second_call_goes_on_where_the_first_one_was(made: Quickstart) -> None:
    again = quickstart(made.folder, overrides=TINY, problems=4)
    assert again.summary["domains"] == made.summary["domains"]
    assert again.summary["flops"] == made.summary["flops"]


def test_the_control_is_the_first_stage_alone_with_the_whole_budget(tmp_path: Path) -> None:
    recipe = packaged_recipe(tmp_path, ())
    spent = dict.fromkeys(Currency, 0) | {Currency.FLOPS: 12345}
    control = control_recipe(
        recipe, Outcome(folder=tmp_path, finished=True, step=1, progress=1.0, spent=spent)
    )
    assert [stage.method.name for stage in control.stage] == ["sft"]
    assert control.stage[0].share == 1.0
    assert control.stage[0].optimizer.schedule == recipe.stage[-1].optimizer.schedule
    assert control.stage[0].optimizer.learning_rate == recipe.stage[0].optimizer.learning_rate
    assert control.budget.amount == 12345
    assert control.seed == recipe.seed
    assert control.model == recipe.model
