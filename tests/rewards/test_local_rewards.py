"""Reward functions from a user's file, in the signatures of TRL and verl and our own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest

from bimetal.core.catalogue import LocalCode
from bimetal.core.errors import ConfigError
from bimetal.core.types import Item, Message, Prompt, PromptId, Status, Verdict
from bimetal.rewards.local import (
    LocalOptions,
    Signature,
    adapted,
    function_of,
    signature_of,
    verdict_of_reward,
)
from bimetal.rewards.verifier import VerifierPool, VerifyTask

PROMPT = Prompt(
    id=PromptId("p/1"),
    domain="arithmetic",
    messages=(Message(role="user", content="6 x 7 = ?"),),
    reference="42",
    source="school",
    meta={"grade": 3, "extra_info": {"index": 5}},
)


def items(*responses: str) -> list[Item]:
    return [Item(prompt=PROMPT, response=response) for response in responses]


def module_of(source: str) -> ModuleType:
    module = ModuleType("user_file")
    module.__file__ = "user_file.py"
    exec(source, module.__dict__)
    return module


def judged_in_a_worker(folder: Path, source: str, *responses: str, name: str = "") -> list[Verdict]:
    (folder / "my_reward.py").write_text(source)
    domain = f"./my_reward.py:{name}" if name else "./my_reward.py"
    with VerifierPool(1, 5.0, base=folder, code=LocalCode.ALLOWED) as pool:
        pool.prepare(domain)
        return pool.verify([VerifyTask(domain=domain, prompt=PROMPT, responses=responses)])


def rewards(verdicts: Sequence[Verdict]) -> list[float | None]:
    return [v.reward for v in verdicts]


def test_a_trl_function_runs_in_a_worker_with_its_columns(tmp_path: Path) -> None:
    source = (
        "def score(prompts, completions, grade, answer, **columns):\n"
        "    assert prompts == ['6 x 7 = ?'] * 3 and grade == [3, 3, 3] and answer == ['42'] * 3\n"
        "    assert columns['reference'] == ['42'] * 3\n"
        "    return [1.0 if c == '42' else None if c == '' else 0.25 for c in completions]\n"
    )
    found = judged_in_a_worker(tmp_path, source, "42", "41", "", name="score")
    assert rewards(found) == [1.0, 0.25, None]
    assert [v.status for v in found] == [Status.CORRECT, Status.WRONG, Status.UNKNOWN]
    assert found[2].reason == "declined"


def test_a_verl_function_runs_in_a_worker(tmp_path: Path) -> None:
    source = (
        "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n"
        "    assert (data_source, extra_info) == ('school', {'index': 5})\n"
        "    return {'score': float(solution_str == ground_truth), 'length': len(solution_str), 'n': 'x'}\n"
    )
    found = judged_in_a_worker(tmp_path, source, "42", "411")
    assert rewards(found) == [1.0, 0.0]
    assert [dict(v.parts) for v in found] == [{"length": 2.0}, {"length": 3.0}]


def test_a_function_of_our_own_signature_runs_in_a_worker(tmp_path: Path) -> None:
    source = (
        "from bimetal.core.types import Status, Verdict\n"
        "def verify(items, options, services):\n"
        "    return [Verdict(status=Status.WRONG, reward=0.5, extracted=i.response) for i in items]\n"
    )
    assert [v.extracted for v in judged_in_a_worker(tmp_path, source, "a", "b")] == ["a", "b"]


def test_trl_completions_are_messages_where_the_option_says_so() -> None:
    def score(prompts: object, completions: list[list[dict[str, str]]]) -> list[float]:
        assert prompts == [[{"role": "user", "content": "6 x 7 = ?"}]]
        assert completions[0][0]["role"] == "assistant"
        return [float(c[0]["content"] == "42") for c in completions]

    assert rewards(adapted(score, LocalOptions(completions="messages"))(items("42"))) == [1.0]


def test_a_column_of_the_data_comes_before_the_reference() -> None:
    prompt = Prompt(id=PromptId("p"), domain="d", messages=(), reference="1", meta={"solution": "2"})

    def score(completions: list[str], solution: list[str], reference: list[str]) -> list[float]:
        assert (solution, reference) == (["2"], ["1"])
        return [0.0 for _ in completions]

    assert rewards(adapted(score, LocalOptions())([Item(prompt=prompt, response="x")])) == [0.0]


def test_a_verl_function_may_return_a_plain_number() -> None:
    def score(solution_str: str, ground_truth: str) -> bool:
        return solution_str == ground_truth

    assert rewards(adapted(score, LocalOptions())(items("42", "4"))) == [1.0, 0.0]


def test_a_verl_dict_without_a_score_is_an_error() -> None:
    source = "def f(solution_str, ground_truth): return {'acc': 1}"
    with pytest.raises(KeyError, match=r"no 'score'; it has .*acc"):
        adapted(module_of(source).f, LocalOptions())(items("42"))


@pytest.mark.parametrize("returned", [0.5, "1", {"score": 1}, None])
def test_a_trl_function_must_return_a_list(returned: object) -> None:
    source = f"def f(completions): return {returned!r}"
    with pytest.raises(TypeError, match="one reward per completion"):
        adapted(module_of(source).f, LocalOptions())(items("42"))


def test_a_required_parameter_that_the_row_lacks_is_named() -> None:
    def score(completions: list[str], tests: list[str]) -> list[float]:
        return [0.0 for _ in zip(completions, tests, strict=True)]

    with pytest.raises(ConfigError, match=r"requires tests; the row offers completions, extra_info, grade"):
        adapted(score, LocalOptions())(items("42"))


@pytest.mark.parametrize(
    ("reward", "status", "value"),
    [
        (1, Status.CORRECT, 1.0),
        (True, Status.CORRECT, 1.0),
        (0, Status.WRONG, 0.0),
        (0.999, Status.WRONG, 0.999),
        (None, Status.UNKNOWN, None),
    ],
)
def test_a_reward_becomes_a_verdict(reward: object, status: Status, value: float | None) -> None:
    found = verdict_of_reward(reward)
    assert (found.status, found.reward) == (status, value)


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (2.0, r"2.0, outside [0, 1]; rescale"),
        (-0.5, r"-0.5, outside [0, 1]; rescale"),
        (float("nan"), "a finite number"),
        (float("inf"), "a finite number"),
        ("1.0", "a finite number"),
        ([1.0], "a finite number"),
    ],
)
def test_a_reward_that_is_none_is_unknown_with_advice(reward: object, message: str) -> None:
    found = verdict_of_reward(reward)
    assert (found.status, found.reward, found.reason) == (Status.UNKNOWN, None, "verifier_error")
    assert message in found.detail


@pytest.mark.parametrize(
    ("source", "signature"),
    [
        ("def f(items, options, services): ...", Signature.OURS),
        ("def f(completions, **kwargs): ...", Signature.TRL),
        ("def f(prompts, completions, completion_ids=None): ...", Signature.TRL),
        ("def f(data_source, solution_str, ground_truth, extra_info=None): ...", Signature.VERL),
        ("def f(solution_str, ground_truth, **kwargs): ...", Signature.VERL),
    ],
)
def test_the_signature_is_read_off_the_parameters(source: str, signature: Signature) -> None:
    assert signature_of(function_of(module_of(source), "f")) is signature


def test_an_unknown_signature_is_explained_by_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"f\(response, truth\) has no known signature; write one of"):
        signature_of(function_of(module_of("def f(response, truth): ..."), "f"))


def test_a_coroutine_is_refused() -> None:
    with pytest.raises(ConfigError, match="coroutine"):
        signature_of(function_of(module_of("async def f(completions): ..."), "f"))


def test_the_function_of_a_file_is_the_usual_or_the_only_one() -> None:
    two = module_of("def other(x): ...\ndef score(completions): ...")
    assert function_of(two, "").__name__ == "score"
    one = module_of("from os.path import join\ndef _hidden(): ...\ndef mine(completions): ...")
    assert function_of(one, "").__name__ == "mine"


@pytest.mark.parametrize(("source", "name"), [("def a(): ...\ndef b(): ...", ""), ("x = 1", "x"), ("", "y")])
def test_a_file_without_the_function_says_what_it_holds(source: str, name: str) -> None:
    with pytest.raises(ConfigError, match=r"user_file.py: no .*; it holds .*file.py:score"):
        function_of(module_of(source), name)
