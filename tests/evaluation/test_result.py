"""Results go to a file and come back whole; what strangers put there is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from bimetal.core.errors import CheckpointError, ConfigError, DataError
from bimetal.core.types import Finish, Split, Status
from bimetal.evaluation.passk import Votes
from bimetal.evaluation.result import Example, SuiteResult, load, save
from bimetal.evaluation.summary import ProblemResult
from bimetal.rollout.backend import Sampling

PROBLEM = ProblemResult(
    prompt_id="math/\ud800", known=3, unknown=1, correct=1, lenient=2, unparseable=1, truncated=0, tokens=40,
    votes=(Votes(1, 1), Votes(1, 0)), problem="key",
)  # fmt: skip
RESULT = SuiteResult(
    suite="final",
    split=Split.TEST,
    label="after",
    seed=7,
    samples=4,
    sampling=Sampling(temperature=0.7, max_tokens=32, stop_token_ids=(2,), stop_strings=("\n\n",)),
    problems={"math": (PROBLEM, replace(PROBLEM, prompt_id="math/2"))},
    settings=MappingProxyType({"math": {"digits": [1, 2]}}),
    examples=(
        Example(
            domain="math", prompt_id="math/2", prompt="\x00</script>", reference="2", response="\u202e\ud800",
            status=Status.WRONG, finish=Finish.LENGTH,
        ),
    ),
)  # fmt: skip


def test_a_result_survives_the_file_whole(tmp_path: Path) -> None:
    path = save(RESULT, tmp_path, name="after_sft")
    assert path == tmp_path / "eval" / "after_sft.json"
    found = load(tmp_path, name="after_sft")
    assert found == replace(RESULT, settings={"math": {"digits": [1, 2]}})
    assert found.summary() == RESULT.summary()


def test_the_file_shows_the_summary_and_its_version() -> None:
    document = json.loads(RESULT.to_json())
    assert document["schema_version"] == 1
    assert document["summary"]["domains"]["math"]["accuracy"]["value"] == pytest.approx(1 / 3, rel=1e-12)
    assert "do not cover the training seed" in document["summary"]["covers"]


def test_a_forged_summary_is_ignored() -> None:
    document = json.loads(RESULT.to_json())
    document["summary"]["accuracy"]["value"] = 1.0
    assert SuiteResult.from_json(json.dumps(document)).summary().accuracy.value == pytest.approx(
        1 / 3, rel=1e-12
    )


def test_an_evaluation_of_another_version_is_refused() -> None:
    document = json.loads(RESULT.to_json()) | {"schema_version": 2}
    with pytest.raises(DataError, match=r"x.json: has schema version 2, this program reads 1"):
        SuiteResult.from_json(json.dumps(document), source="x.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        ("[]", "is no evaluation; found a list"),
        ('{"schema_version": 1}', "suite: "),
    ],
)
def test_what_is_no_evaluation_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        SuiteResult.from_json(text)


def test_counts_that_contradict_each_other_are_refused_with_their_place() -> None:
    document = json.loads(RESULT.to_json())
    document["problems"]["math"][1]["correct"] = 9
    with pytest.raises(DataError, match=r"problems\.math\.1.*contradict each other"):
        SuiteResult.from_json(json.dumps(document))


@pytest.mark.parametrize("name", ["../after", "", "a/b", ".hidden", "a\n"])
def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="name of an evaluation"):
        save(RESULT, tmp_path, name=name)
    with pytest.raises(ConfigError, match="name of an evaluation"):
        load(tmp_path, name=name)


def test_a_link_in_a_run_folder_is_refused(tmp_path: Path) -> None:
    outside = save(RESULT, tmp_path / "other", name="secret")
    (tmp_path / "run" / "eval").mkdir(parents=True)
    (tmp_path / "run" / "eval" / "final.json").symlink_to(outside)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "eval").symlink_to(outside.parent)
    for run, name in (("run", "final"), ("linked", "secret"), ("run", "absent")):
        with pytest.raises(CheckpointError, match="is missing or a link"):
            load(tmp_path / run, name=name)


def test_a_result_that_cannot_be_written_is_an_error_that_says_where(tmp_path: Path) -> None:
    (tmp_path / "eval").write_text("a file in the way")
    with pytest.raises(CheckpointError, match="cannot write"):
        save(RESULT, tmp_path, name="final")
