"""Whatever a model writes, a run goes on: empty, endless, NUL bytes, lone surrogates, right-to-left marks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from tests.trainer.small import weights_hash
from transformers import LlamaConfig, LlamaForCausalLM

from bimetal.cli.main import main
from bimetal.trainer.embedded import nano_tokenizer
from bimetal.trainer.models import save_model

ENDLESS = "a" * 100_000
MARKS = "\u202e\u2066\u200f12\x1b[2J\r\x85\u2028"
SPOKEN = (ENDLESS, "\x00\x00", MARKS, "\ufffe\U0010ffff")
"""Texts that one token each stands for, so that a short answer can say them."""

RECIPE = """
name = "hostile"
[model]
name = "model"
[domain.lab_arithmetic]
count = {{train = 8, selection = 4, test = 4}}
least_digits = 2
most_digits = 2
[domain.mine]
name = "./hostile.py:verify"
[[data.sources]]
path = "rows.jsonl"
domain = "mine"
[budget]
currency = "optimizer_steps"
amount = 4
[trainer]
threads = 1
max_prompt_tokens = 120
max_response_tokens = 64
checkpoint_every_steps = 2
unknown_share_limit = 1.0
[evaluation]
every_steps = 2
problems_per_domain = 2
[[stage]]
method = {{name = "luffy"}}
prompts_per_batch = 8
group_size = 5
[backend]
name = "scripted"
default = {{token_ids = [{end}]}}
{replies}
"""

HOSTILE_REWARD = r'''"""A reward function that says the worst things about its answers."""

from bimetal.core.types import Status, Verdict

WORST = "\ud800\x00\u202e" + "b" * 100_000


def verify(items, options, services):
    found = []
    for number, item in enumerate(items):
        right = number % 2 == 0
        found.append(
            Verdict(
                status=Status.CORRECT if right else Status.UNPARSEABLE,
                reward=float(right),
                reason=WORST,
                extracted=item.response or WORST,
                detail=WORST,
                parts={WORST[:8]: 0.5},
            )
        )
    return found
'''


def save_speaking_model(folder: Path) -> dict[str, int]:
    """A tiny model whose tokenizer has a token for each hostile text; text -> id, and the end of a turn."""
    tokenizer = nano_tokenizer()
    tokenizer.add_tokens(list(SPOKEN))
    ids = {text: tokenizer.convert_tokens_to_ids(text) for text in SPOKEN}
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=256, bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        save_model(LlamaForCausalLM(config).eval(), tokenizer, folder)
    return ids | {"end": int(tokenizer.eos_token_id)}


def reply(pattern: str, ids: Sequence[int]) -> str:
    return f'[[backend.replies]]\nrequest = "{pattern}"\ntoken_ids = {list(ids)}\nlogprob = -1.0\n'


HOSTILE_TEXTS = ("", "\ud800 alone", "a\x00b", MARKS, "x" * 40, "\ufffe\U0010ffff")


def write_inputs(folder: Path) -> Path:
    """Hostile prompts, demonstrations and ids, a hostile reward, and a script of hostile answers."""
    ids = save_speaking_model(folder / "model")
    end = ids.pop("end")
    rows = [
        {
            "id": f"row/{n}/{text}",
            "prompt": text or "?",
            "reference": text,
            "demonstrations": [{"text": text or ".", "author": text}],
            "meta": {text: text},
        }
        for n, text in enumerate(HOSTILE_TEXTS)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "ascii")
    (folder / "hostile.py").write_text(HOSTILE_REWARD, "ascii")
    answers = [[ids[ENDLESS], end], [end], [ids["\x00\x00"], ids[MARKS]], [ids["\ufffe\U0010ffff"]] * 70]
    replies = "".join(reply(f"*.{n}", answer) for n, answer in enumerate(answers))
    path = folder / "recipe.toml"
    path.write_text(RECIPE.format(end=end, replies=replies), "ascii")
    return path


def traces_of(run: Path) -> list[dict[str, object]]:
    return [row for path in sorted((run / "traces").iterdir()) for row in pq.read_table(path).to_pylist()]


@pytest.mark.slow
def test_hostile_texts_pass_through_a_whole_run_and_its_resumption(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    recipe = write_inputs(tmp_path)
    assert main(["train", str(recipe), f'output="{run}"', "--allow-code"]) == 0, capsys.readouterr().err
    shown = capsys.readouterr()
    assert "finished after 4 steps" in shown.out
    assert not set(shown.out + shown.err) & set("\x00\x1b\u202e")
    rows = traces_of(run)
    texts = {str(row["text"]) for row in rows}
    assert {ENDLESS, "", "\x00\x00" + MARKS} <= texts
    assert any("\\ud800" in str(row["prompt_id"]) for row in rows)
    assert any("\\ud800" in str(row["detail"]) for row in rows)
    assert {row["finish"] for row in rows} == {"stop", "length"}
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text("ascii").splitlines()]
    steps = [line for line in lines if "budget/progress" in line["metrics"]]
    assert [line["step"] for line in steps] == [1, 2, 3, 4]
    assert all(line["metrics"]["gradient/norm"] is not None for line in steps)
    before = weights_hash(run)
    assert main(["resume", str(run), "--allow-code"]) == 0
    assert weights_hash(run) == before
    assert main(["resume", str(run), "--allow-code", "--budget", "6"]) == 0


@pytest.mark.slow
def test_imitating_hostile_demonstrations_changes_the_model_and_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    recipe = write_inputs(tmp_path)
    changes = ["stage.0.method.name=sft", f'output="{run}"', "--allow-code", "--json"]
    assert main(["train", str(recipe), *changes]) == 0, capsys.readouterr().err
    assert json.loads(capsys.readouterr().out)["finished"]
    assert any(row["prompt"] == "a\x00b" for row in traces_of(run))
