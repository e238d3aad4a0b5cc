"""Verification with real worker processes: hangs, crashes, junk, and a parent that is killed."""

# long: tests mirror the modules, one file each, and this module is attacked in many ways
from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from bimetal.core.catalogue import LocalCode
from bimetal.core.errors import ConfigError, UnknownNameError, VerifierError
from bimetal.core.types import Finish, Message, Prompt, PromptId, Status, Verdict
from bimetal.rewards.verifier import (
    Limits,
    VerifierPool,
    VerifyTask,
    unexpected_unknown_share,
)
from bimetal.rewards.worker_process import reduced_environment

DOMAIN = '''
import ctypes, os, subprocess, sys, time
from pathlib import Path
from pydantic import Field
from bimetal.config.options import Options
from bimetal.core.errors import DataError
from bimetal.core.types import Status, Verdict


class Config(Options):
    bonus: float = Field(default=0.0, ge=0, le=1)
    """Reward of a wrong answer."""


def verify(items, options, services):
    return [one(item, options) for item in items]


def one(item, options):
    text = item.response
    if text == "loop":
        while True:
            pass
    if text == "sleep":
        time.sleep(10_000)
    if text == "power":
        return 9 ** (9 ** 9)  # one call of C code that holds the interpreter
    if text == "exit":
        os._exit(0)
    if text == "sys.exit":
        sys.exit("left")
    if text == "segfault":
        ctypes.string_at(0)
    if text == "memory":
        hoard = [bytearray(2**25) for _ in range(10_000)]
    if text == "junk":
        print('{"task": 0, "verdicts": []}' * 1000)
        os.write(1, b"{}\\n" * 1000)
        os.write(2, b"x" * 100_000)
        subprocess.run(["echo", "junk"])
        assert sys.stdin.read() == ""
    if text == "fork" and os.fork() == 0:
        return Verdict(status=Status.CORRECT, reward=1.0)
    if text == "raise":
        raise ValueError("three is not two")
    if text == "bad row":
        raise DataError("no reference")
    if text == "nan":
        return Verdict(status=Status.WRONG, reward=float("nan"))
    if text == "two":
        return Verdict(status=Status.WRONG, reward=2.0)
    if text == "string":
        return "correct"
    if text == "env":
        return Verdict(status=Status.WRONG, reward=0.0, extracted=repr(sorted(os.environ)))
    if text == "finish":
        return Verdict(status=Status.WRONG, reward=0.0, extracted=item.finish.value)
    if text == "echo prompt":
        return Verdict(status=Status.WRONG, reward=0.0, extracted=repr(item.prompt.messages[0].content))
    if text == "pid":
        return Verdict(status=Status.WRONG, reward=0.0, extracted=str(os.getpid()))
    if text == item.prompt.reference:
        return Verdict(status=Status.CORRECT, reward=1.0, extracted=text)
    return Verdict(status=Status.WRONG, reward=options.bonus, extracted=text)
'''
NAME = "./domain.py"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "domain.py").write_text(DOMAIN)
    (tmp_path / "wrong.py").write_text(DOMAIN + "\nTIMEOUT_STATUS = Status.WRONG\n")
    return tmp_path


def open_pool(base: Path, *, workers: int = 1, **limits: float) -> VerifierPool:
    chosen = Limits(**{"time_limit_seconds": 0.4, "grace_seconds": 0.3, **limits})  # type: ignore[arg-type]
    return VerifierPool(workers, chosen.time_limit_seconds, limits=chosen, base=base, code=LocalCode.ALLOWED)


@pytest.fixture
def pool(base: Path) -> Iterator[VerifierPool]:
    with open_pool(base) as opened:
        yield opened


def task(*responses: str, name: str = NAME, reference: object = "42", **options: float) -> VerifyTask:
    prompt = Prompt(
        id=PromptId("p/1"),
        domain="p",
        messages=(Message(role="user", content="6 x 7 = ?"),),
        reference=reference,  # type: ignore[arg-type]
    )
    return VerifyTask(domain=name, prompt=prompt, responses=responses, options=options)


def summary(verdicts: Sequence[Verdict]) -> list[tuple[str, float | None, str]]:
    return [(v.status.value, v.reward, v.reason) for v in verdicts]


RIGHT = ("correct", 1.0, "ok")
WRONG = ("wrong", 0.0, "ok")


def test_every_response_has_one_verdict_in_order_over_tasks_and_workers(base: Path) -> None:
    tasks = [task(*(("42" if (i + m) % 3 == 0 else "41") for m in range(4))) for i in range(100)]
    with open_pool(base, workers=2) as pool:
        found = pool.verify(tasks)
        assert len(pool.worker_pids) == 2
    assert summary(found) == [RIGHT if (i + m) % 3 == 0 else WRONG for i in range(100) for m in range(4)]
    assert all(v.seconds > 0 and v.verifier == NAME for v in found)


def test_options_reach_the_domain(pool: VerifierPool) -> None:
    found = pool.verify([task("41"), task("41", bonus=0.25)])
    assert [v.reward for v in found] == [0.0, 0.25]


def test_how_a_response_ended_reaches_the_domain(pool: VerifierPool) -> None:
    cut = task("finish", "finish")
    cut = VerifyTask(
        domain=cut.domain, prompt=cut.prompt, responses=cut.responses, finishes=(Finish.STOP, Finish.LENGTH)
    )
    assert [v.extracted for v in pool.verify([cut])] == ["stop", "length"]


@pytest.mark.parametrize("hang", ["loop", "power", "sleep"])
def test_only_the_answer_that_hangs_pays(pool: VerifierPool, hang: str) -> None:
    found = pool.verify([task("42", hang, "41"), task("42")])
    assert summary(found) == [RIGHT, ("unparseable", 0.0, "timeout"), WRONG, RIGHT]
    # The check alone took at least the 0.4 s of its limit, and its third of the group's 0.4 s came before.
    assert found[1].seconds > 0.5


def test_a_domain_whose_answers_are_programs_calls_a_hang_wrong(pool: VerifierPool) -> None:
    assert summary(pool.verify([task("loop", name="./wrong.py")])) == [("wrong", 0.0, "timeout")]


@pytest.mark.parametrize("end", ["exit", "segfault"])
def test_an_answer_that_kills_its_worker_is_unknown_after_a_second_try(pool: VerifierPool, end: str) -> None:
    found = pool.verify([task("42", end, "41")])
    assert summary(found) == [RIGHT, ("unknown", None, "infra_error"), WRONG]
    assert "ended 2 times" in found[1].detail


def test_an_answer_that_needs_too_much_memory_is_unknown(base: Path) -> None:
    with open_pool(base, memory_bytes=2**29, time_limit_seconds=5.0) as pool:
        found = pool.verify([task("memory", "42")])
    assert summary(found) == [("unknown", None, "infra_error"), RIGHT]
    assert "out of memory" in found[0].detail


def test_what_a_verifier_prints_reads_or_forks_cannot_touch_the_protocol(pool: VerifierPool) -> None:
    assert summary(pool.verify([task("junk", "42"), task("fork"), task("42")])) == [
        WRONG,
        RIGHT,
        WRONG,
        RIGHT,
    ]


@pytest.mark.parametrize(
    ("response", "message"),
    [
        ("raise", "verify p/1: ValueError: three is not two"),
        ("sys.exit", "SystemExit: left"),
        ("nan", "reward must be in [0, 1]; got nan"),
        ("two", "reward must be in [0, 1]; got 2.0"),
        ("string", "expected a Verdict; got str"),
    ],
)
def test_a_verifier_that_breaks_is_unknown_and_never_wrong(
    pool: VerifierPool, response: str, message: str
) -> None:
    found = pool.verify([task("42", response, "41")])
    assert summary(found) == [RIGHT, ("unknown", None, "verifier_error"), WRONG]
    assert message in found[1].detail


def test_a_row_that_the_verifier_refuses_is_a_bad_row(pool: VerifierPool) -> None:
    assert summary(pool.verify([task("bad row")])) == [("unknown", None, "bad_row")]


def test_a_row_that_is_no_json_is_a_bad_row_and_spares_the_others(pool: VerifierPool) -> None:
    assert summary(pool.verify([task("42", reference=10**5000), task("42")])) == [
        ("unknown", None, "bad_row"),
        RIGHT,
    ]


@pytest.mark.parametrize("returned", ["[]", "[v, v]", "None", "3"])
def test_a_wrong_number_of_verdicts_is_unknown(base: Path, returned: str) -> None:
    body = (
        "from bimetal.core.types import Status, Verdict\nv = Verdict(status=Status.CORRECT, reward=1.0)\n"
        f"def verify(items, options, services):\n    return {returned}\n"
    )
    (base / "count.py").write_text(body)
    with open_pool(base) as pool:
        found = pool.verify([task("a", "b", "c", name="./count.py")])
    assert summary(found) == [("unknown", None, "verifier_error")] * 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\x00",
        "a\x00b\n\r\u2028",
        "\ud800",
        "\udfff\ud83d\ude00",
        "\u202e\u200f",
        "x" * 100_000,
        "{" * 5000,
    ],
)
def test_garbage_arrives_as_it_was_sent(pool: VerifierPool, text: str) -> None:
    (alike,) = pool.verify([task(text, reference=text)])
    assert summary([alike]) == [RIGHT]
    assert alike.extracted == text[:4000]


def test_answers_larger_than_a_pipe_do_not_block(pool: VerifierPool) -> None:
    # 64 responses of 100 kB are a hundred times what a pipe holds.
    assert summary(pool.verify([task(*("y" * 100_000 for _ in range(16))) for _ in range(4)])) == [WRONG] * 64


def test_nothing_to_do_is_no_verdicts(pool: VerifierPool) -> None:
    assert pool.verify([]) == []
    assert pool.verify([task()]) == []


def test_a_worker_is_replaced_after_its_share_of_work(base: Path) -> None:
    with open_pool(base, recycle_after=2) as pool:
        pids = [pool.verify([task("pid")])[0].extracted for _ in range(5)]
    assert pids[0] == pids[1] and pids[2] == pids[3]
    assert len(set(pids)) == 3


def test_credentials_do_not_reach_a_worker() -> None:
    given = {"HF_TOKEN": "a", "OPENAI_API_KEY": "b", "My_Secret": "c", "DB_PASSWORD": "d", "HOME": "/home/a"}
    kept = reduced_environment(given)
    assert given.keys() & kept.keys() == {"HOME"}
    assert kept["PYTHONHASHSEED"] == "0"


def test_the_environment_of_a_worker_is_the_reduced_one(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    with open_pool(base) as pool:
        (found,) = pool.verify([task("env")])
    assert found.extracted is not None and "'HOME'" in found.extracted and "KEY" not in found.extracted


def test_local_code_needs_permission(base: Path) -> None:
    with VerifierPool(1, 1.0, base=base) as pool, pytest.raises(ConfigError, match="--allow-code"):
        pool.verify([task("42")])


def test_an_unknown_domain_is_an_error(pool: VerifierPool) -> None:
    with pytest.raises(UnknownNameError, match="unknown domain 'no_such_domain'"):
        pool.verify([task("42", name="no_such_domain")])


def test_prepare_says_what_is_wrong_with_options(pool: VerifierPool) -> None:
    pool.prepare(NAME, {"bonus": 0.5})
    with pytest.raises(ConfigError, match=r"bonus: .*less than or equal to 1, got 3.*options are: bonus"):
        pool.prepare(NAME, {"bonus": 3})
    with pytest.raises(ConfigError, match="bonos"):
        pool.prepare(NAME, {"bonos": 0})


def test_a_file_that_cannot_be_run_is_unknown_in_verify_and_an_error_in_prepare(base: Path) -> None:
    (base / "broken.py").write_text("1 / 0\n")
    with open_pool(base) as pool:
        assert summary(pool.verify([task("42", name="./broken.py")])) == [("unknown", None, "verifier_error")]
        with pytest.raises(ConfigError, match="ZeroDivisionError"):
            pool.prepare("./broken.py")


@pytest.mark.parametrize("body", ["while True: pass", "import os; os._exit(1)"])
def test_an_import_that_hangs_or_dies_is_reported_and_not_repeated_for_ever(base: Path, body: str) -> None:
    (base / "stuck.py").write_text(body)
    with open_pool(base, load_seconds=1.0) as pool:
        found = pool.verify([task("42", "41", name="./stuck.py"), task("42")])
    assert summary(found) == [("unknown", None, "verifier_error")] * 2 + [RIGHT]


def test_a_file_that_changes_during_the_run_is_refused(base: Path) -> None:
    with open_pool(base, recycle_after=1) as pool:
        assert summary(pool.verify([task("42")])) == [RIGHT]
        (base / "domain.py").write_text(DOMAIN + "\n# changed\n")
        (found,) = pool.verify([task("42")])
    assert summary([found]) == [("unknown", None, "verifier_error")]
    assert "changed" in found.detail


def test_closing_twice_is_allowed_and_leaves_no_process(base: Path) -> None:
    pool = open_pool(base)
    pool.verify([task("42")])
    (pid,) = pool.worker_pids
    pool.close()
    pool.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(VerifierError, match="closed"):
        pool.verify([task("42")])


PROGRAM = """
import signal
import sys
from pathlib import Path
from bimetal.core.catalogue import LocalCode
from bimetal.core.types import Message, Prompt
from bimetal.rewards.verifier import VerifierPool, VerifyTask

# A program that a shell starts in the background is born deaf to Ctrl-C, and so are its children.
signal.signal(signal.SIGINT, signal.default_int_handler)
with VerifierPool(1, 1000.0, base=Path(sys.argv[1]), code=LocalCode.ALLOWED) as pool:
    prompt = Prompt(id="p", domain="p", messages=(Message(role="user", content="q"),), reference="42")
    pool.verify([VerifyTask(domain="./domain.py", prompt=prompt, responses=("42",))])
    print(*pool.worker_pids, flush=True)
    pool.verify([VerifyTask(domain="./domain.py", prompt=prompt, responses=(sys.argv[2],))])
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="watching another's child needs pidfd_open")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("hang", ["loop", "power", "sleep"])
def test_no_worker_outlives_its_parent(base: Path, how: signal.Signals, hang: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(base), hang],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        watch = os.pidfd_open(worker)
        try:
            parent.send_signal(how)
            ended, _, _ = select.select([watch], [], [], 30)
        finally:
            os.close(watch)
            parent.kill()
    assert ended


def test_the_share_of_unexpected_unknowns_leaves_out_what_a_function_declined() -> None:
    def unknown(reason: str) -> Verdict:
        return Verdict(status=Status.UNKNOWN, reward=None, reason=reason)

    good = Verdict(status=Status.CORRECT, reward=1.0)
    seen = [good, unknown("verifier_error"), unknown("declined"), unknown("infra_error"), unknown("bad_row")]
    assert unexpected_unknown_share(seen).value == 3 / 5
    assert unexpected_unknown_share([]).value is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"time_limit_seconds": 0.0},
        {"time_limit_seconds": float("inf")},
        {"grace_seconds": -1.0},
        {"load_seconds": 0.0},
        {"memory_bytes": 1},
        {"recycle_after": 0},
    ],
)
def test_limits_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Limits(**{"time_limit_seconds": 1.0, **wrong})  # type: ignore[arg-type]


def test_a_pool_needs_a_worker_and_one_limit() -> None:
    with pytest.raises(ConfigError, match="workers"):
        VerifierPool(0, 1.0)
    with pytest.raises(ConfigError, match="differ"):
        VerifierPool(1, 1.0, limits=Limits(time_limit_seconds=2.0))


def test_finishes_must_match_responses() -> None:
    plain = task("a", "b")
    with pytest.raises(ValueError, match="1 finishes for 2 responses"):
        VerifyTask(domain="x", prompt=plain.prompt, responses=plain.responses, finishes=(Finish.STOP,))
