"""A user's mistake ends with one message and the right exit code, before any compute (contract C8)."""

# long: one healthy run, and every way to spoil it; two files would build it twice

from __future__ import annotations

import json
import pickle
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from tests.trainer.small import save_tiny_model

from bimetal.cli.main import main

RECIPE = """
name = "mistaken"
[model]
name = "model"
[domain.exact_answer]
[[data.sources]]
path = "rows.jsonl"
domain = "exact_answer"
[budget]
currency = "optimizer_steps"
amount = 4
[trainer]
threads = 1
max_prompt_tokens = 64
max_response_tokens = 32
checkpoint_every_steps = 2
[[stage]]
method = {name = "sft"}
prompts_per_batch = 2
"""

ROWS = [
    {"id": f"r{n}", "prompt": f"{n}+1=?", "reference": str(n + 1), "demonstration": f"Answer: {n + 1}"}
    for n in range(4)
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def place(tmp_path: Path, model: Path) -> Path:
    """A folder with a recipe, its model and its data; all is well with them."""
    (tmp_path / "recipe.toml").write_text(RECIPE, "ascii")
    shutil.copytree(model, tmp_path / "model")
    write_rows(tmp_path, ROWS)
    return tmp_path


def write_rows(place: Path, rows: list[dict[str, object]]) -> None:
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "ascii")


def train(place: Path, *arguments: str) -> int:
    return main(["train", str(place / "recipe.toml"), f'output="{place / "run"}"', *arguments])


def check_refused(
    place: Path, capsys: pytest.CaptureFixture[str], message: str, *arguments: str, code: int = 2
) -> None:
    """One message with these words, this exit code, nothing on standard output, no run folder left."""
    capsys.readouterr()
    assert train(place, *arguments) == code
    found = capsys.readouterr()
    assert found.out == ""
    assert message in found.err
    assert "Traceback" not in found.err
    assert not (place / "run").exists()


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trainer.chekpoint_every_steps=3", "did you mean 'checkpoint_every_steps'?"),
        ("stage.0.method.gama=1", "gama"),
        ("stage.0.curriculum.gama=1", "stage.0.curriculum"),
        ("stage.0.method.name=gropo", "did you mean 'grpo'?"),
        ("stage.0.optimizer.learning_rate=-1", "stage.0.optimizer.learning_rate"),
        ("stage.0.optimizer.learning_rate=inf", "stage.0.optimizer.learning_rate"),
        ("budget.amount=inf", "budget.amount"),
        ("budget.amount=nan", "budget.amount"),
        ("trainer.threads=0", "trainer.threads"),
        ("trainer.max_response_tokens=200", "above the 256 positions"),
        ("model.name=./nowhere", "there is no folder './nowhere'"),
        ("data.sources.0.path=now.jsonl", "now.jsonl"),
        ("domain.exact_answer.nosuch=1", "domain.exact_answer"),
        ("backend.name=locale", "did you mean 'local'?"),
        ("backend.nosuch=1", "backend"),
    ],
)
def test_a_mistake_in_the_recipe_is_named(
    override: str, message: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refused(place, capsys, message, override)


def test_a_missing_recipe_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "recipes.toml").write_text("")
    check_refused(tmp_path, capsys, "recipe.toml: no such file; did you mean 'recipes.toml'?")


def without(column: str) -> list[dict[str, object]]:
    return [{key: value for key, value in row.items() if key != column} for row in ROWS]


BAD_DATA = {
    "missing column": (without("prompt"), "prompt"),
    "empty data set": ([], "rows.jsonl"),
    "duplicate ids": ([*ROWS, ROWS[0]], "already stands at"),
    "long prompt": (
        [*ROWS, {"id": "long", "prompt": "7" * 100, "reference": "1"}], "line 5: the rendered prompt has",
    ),
    "long demonstration": (
        [*ROWS, {"id": "long", "prompt": "7", "demonstration": "1" * 100}], "line 5: a demonstration has",
    ),
    "unknown domain": ([{**ROWS[0], "domain": "nosuch"}], "nosuch"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_is_named_with_its_place(case: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, message = BAD_DATA[case]
    write_rows(place, rows)
    check_refused(place, capsys, message, *(["data.sources.0.domain=''"] if case == "unknown domain" else []))


def test_a_method_that_learns_from_demonstrations_needs_some(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(place, without("demonstration"))
    check_refused(place, capsys, "the method learns from demonstrations, and none would be drawn")


def test_a_method_that_needs_a_reward_needs_references(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(place, without("reference"))
    check_refused(place, capsys, "4 of 4 prompts have no reference", "stage.0.method.name=grpo")


def test_rows_set_aside_may_not_leave_a_stage_without_what_it_needs(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(place, [{**row, "demonstration": "1" * 100} for row in ROWS])
    check_refused(place, capsys, "none would be drawn", 'data.on_bad_rows="set_aside"')


def test_rows_may_be_set_aside_and_the_run_goes_on(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(place, [*ROWS, {"id": "long", "prompt": "7" * 100, "reference": "1"}])
    assert train(place, 'data.on_bad_rows="set_aside"') == 0, capsys.readouterr().err
    (row,) = (place / "run" / "data" / "bad_rows.jsonl").read_text("ascii").splitlines()
    assert (json.loads(row)["row"], "the rendered prompt has" in row) == (5, True)


def test_a_mistake_in_a_later_stage_is_found_before_the_first_begins(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = '\n[[stage]]\nname = "later"\nshare = 0.5\nmethod = {name = "grpo"}\ncurriculum = {nosuch = 1}\n'
    path = place / "recipe.toml"
    path.write_text(path.read_text("ascii").replace("[[stage]]", "[[stage]]\nshare = 0.5") + later, "ascii")
    check_refused(place, capsys, "stage.1.curriculum")


def edited(path: Path, change: Callable[[dict[str, object]], object]) -> None:
    document = json.loads(path.read_text("utf-8"))
    change(document)
    path.write_text(json.dumps(document), "utf-8")


def test_a_tokenizer_without_an_end_token_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edited(place / "model" / "tokenizer_config.json", lambda config: config.pop("eos_token"))
    check_refused(place, capsys, "there is no end-of-text token")


def test_a_tokenizer_without_a_template_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "model" / "chat_template.jinja").unlink()
    check_refused(place, capsys, "there is no chat template")


def test_a_model_folder_without_weights_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "model" / "model.safetensors").unlink()
    check_refused(place, capsys, "model has no weights; found no *.safetensors file")


def test_a_model_folder_with_pickled_weights_is_refused(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "model" / "model.safetensors").rename(place / "model" / "pytorch_model.bin")
    check_refused(place, capsys, "holds its weights as pickles")


def test_local_code_needs_permission(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marker = place / "ran"
    (place / "mine.py").write_text(f"open({str(marker)!r}, 'w').close()\n", "ascii")
    check_refused(place, capsys, "pass --allow-code to permit it", "domain.exact_answer.name=./mine.py:score")
    assert not marker.exists()


def test_a_folder_that_is_not_empty_is_not_written_into(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "run").mkdir()
    (place / "run" / "notes.txt").write_text("mine")
    assert train(place) == 2
    assert "is not empty; continue it with `bimetal resume" in capsys.readouterr().err
    assert [path.name for path in (place / "run").iterdir()] == ["notes.txt"]


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file may become larger: what a full disk is to a program (Python turns the signal into an error)."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.fixture
def run(place: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """A finished run of 4 steps with checkpoints at 2 and 4."""
    assert train(place) == 0
    capsys.readouterr()
    return place / "run"


def test_a_disk_that_fills_up_leaves_the_earlier_checkpoint_and_says_what_to_do(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {p.name: p.read_bytes() for p in (run / "checkpoints" / "step-00000004").iterdir()}
    # Weights are 16 * (vocabulary + ...) * 4 bytes; metrics and journal are far smaller than 20 kB.
    with files_of_at_most(20_000):
        assert main(["resume", str(run), "--budget", "6"]) == 1
    message = capsys.readouterr().err
    assert "cannot write" in message
    assert "free space" in message
    assert "Traceback" not in message
    assert {p.name: p.read_bytes() for p in (run / "checkpoints" / "step-00000004").iterdir()} == before
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == ["step-00000002", "step-00000004"]
    assert main(["resume", str(run)]) == 0
    assert "finished after 6 steps" in capsys.readouterr().out


class Pickled:
    """Unpickling this writes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.marker,))


def with_listing(step: Path, **files: str) -> None:
    edited(step / "files.json", lambda listing: listing["files"].update(files))  # type: ignore[attr-defined]


def crafted_path(run: Path, step: Path) -> None:
    with_listing(step, **{"../../../secret.json": "0" * 64})


def crafted_absolute_path(run: Path, step: Path) -> None:
    with_listing(step, **{"/etc/hostname": "0" * 64})


def crafted_pickle(run: Path, step: Path) -> None:
    (step / "policy.safetensors").write_bytes(pickle.dumps(Pickled(run.parent / "ran")))


def crafted_extra_pickle(run: Path, step: Path) -> None:
    (step / "optimizer.pt").write_bytes(pickle.dumps(Pickled(run.parent / "ran")))


def crafted_deep_state(run: Path, step: Path) -> None:
    (step / "state.json").write_text("[" * 200_000, "ascii")


CRAFTED = {
    "path": (crafted_path, "names a file '../../../secret.json'"),
    "absolute path": (crafted_absolute_path, "names a file '/etc/hostname'"),
    "pickle": (crafted_pickle, "its checksum is not the one it was saved with"),
    "extra pickle": (crafted_extra_pickle, "holds files its list does not name: optimizer.pt"),
    "deep state": (crafted_deep_state, "its checksum is not the one it was saved with"),
}


@pytest.mark.parametrize("case", CRAFTED)
def test_a_crafted_checkpoint_is_refused_and_nothing_of_it_runs(
    case: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, message = CRAFTED[case]
    for step in (run / "checkpoints").iterdir():
        change(run, step)
    assert main(["resume", str(run)]) == 1
    found = capsys.readouterr().err
    assert "no intact checkpoint" in found
    assert message in found
    assert not (run.parent / "ran").exists()


def linked_journal(run: Path, victim: Path) -> None:
    (run / "journal" / "batch-00000004.jsonl").symlink_to(victim)


def linked_temporary(run: Path, victim: Path) -> None:
    (run / ".recipe.toml.part").symlink_to(victim)


def linked_folder(run: Path, victim: Path) -> None:
    shutil.move(run / "traces", run.parent / "elsewhere")
    (run / "traces").symlink_to(run.parent / "elsewhere")


@pytest.mark.parametrize("change", [linked_journal, linked_temporary, linked_folder])
def test_a_run_folder_with_links_is_refused_and_nothing_outside_is_touched(
    change: Callable[[Path, Path], None], run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = run.parent / "victim"
    victim.write_text("precious")
    change(run, victim)
    assert main(["resume", str(run), "--budget", "6"]) == 1
    assert "is a link or a device" in capsys.readouterr().err
    assert victim.read_text() == "precious"


def test_a_run_folder_whose_recipe_names_code_needs_permission(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "evil.py").write_text(f"open({str(run.parent / 'ran')!r}, 'w').close()\n", "ascii")
    path = run / "recipe.toml"
    text = path.read_text("utf-8")
    assert text.count('name = "exact_answer"') == 1
    path.write_text(text.replace('name = "exact_answer"', 'name = "./evil.py:score"'), "utf-8")
    assert main(["resume", str(run)]) in {1, 2}
    assert "allow-code" in capsys.readouterr().err
    assert not (run.parent / "ran").exists()


def saved_again(step: Path, **changes: object) -> None:
    """A checkpoint whose state was changed by somebody who knows checksums."""
    from bimetal.core.files import sha256_of

    edited(step / "state.json", lambda state: state.update(changes))
    with_listing(step, **{"state.json": sha256_of(step / "state.json")})


DOES_NOT_FIT = "checkpoint of step 4 does not fit this recipe"


@pytest.mark.parametrize(("changes", "message"), [
    ({"position": {}}, DOES_NOT_FIT), ({"position": None}, DOES_NOT_FIT), ({"visits": []}, DOES_NOT_FIT),
    ({"budget": {"currency": "optimizer_steps"}}, DOES_NOT_FIT), ({"ledger": 3}, DOES_NOT_FIT),
    ({"stage": {"main": {"drawn": {"x": 1}}}}, "the state is of pools ['x']"),
])  # fmt: skip
def test_a_state_that_does_not_fit_is_an_error_and_no_traceback(
    changes: dict[str, object], message: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved_again(run / "checkpoints" / "step-00000004", **changes)
    assert main(["resume", str(run)]) == 1
    assert message in capsys.readouterr().err


def test_weights_of_another_shape_are_an_error_and_no_traceback(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from bimetal.core.files import sha256_of

    step = run / "checkpoints" / "step-00000004"
    weights = load_file(step / "policy.safetensors")
    save_file({name: value[..., :1].clone() for name, value in weights.items()}, step / "policy.safetensors")
    with_listing(step, **{"policy.safetensors": sha256_of(step / "policy.safetensors")})
    assert main(["resume", str(run)]) == 1
    assert "the checkpoint's parameters are not the model's" in capsys.readouterr().err


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resume", str(tmp_path)]) == 2
    assert "is no run folder; found no file recipe.toml in it" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"format": 9}', "[" * 100_000])
def test_a_damaged_manifest_is_refused(content: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "manifest.json").write_text(content, "ascii")
    assert main(["resume", str(run)]) == 1
    assert "manifest.json: " in capsys.readouterr().err
