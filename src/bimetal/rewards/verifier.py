"""Verdicts from processes that can be killed (design contract C5): the only way to a verifier.

Verifiers see text that a model wrote and may hang, crash or run out of memory on it; so none runs here.
``VerifierPool`` keeps worker processes, sends them groups, and kills those that exceed their limit.
"""

from __future__ import annotations

import json
import math
import selectors
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import cast

from bimetal.core.catalogue import LocalCode, Location, locate
from bimetal.core.errors import ConfigError, VerifierError
from bimetal.core.metrics import Metric
from bimetal.core.types import EMPTY, Finish, JsonValue, Message, Prompt, PromptId, Status, Verdict
from bimetal.rewards.dispatch import Dispatch, Unit
from bimetal.rewards.lane import Lane, Limits
from bimetal.rewards.wire import Document, encode, prompt_document
from bimetal.rewards.worker import location_document

_MAX_UNITS_PER_MESSAGE = 32
_POLL_SECONDS = 0.02
_FAILED_STARTS_ALLOWED = 3
_LOAD_DEATHS_ALLOWED = 2
_BROKEN_REASONS = frozenset({"bad_row", "verifier_error", "infra_error"})


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyTask:
    """The responses of one group, and who judges them.

    ``VerifyTask(domain="lab_arithmetic", prompt=prompt, responses=("... Answer: 42", "Answer: 41"))``

    ``domain`` is a name of the catalogue or a local file such as ``"./my_reward.py:score"``; ``options`` are
    those of its ``Config``. ``finishes`` says how each response ended; empty means that all stopped.
    """

    domain: str
    prompt: Prompt
    responses: tuple[str, ...]
    finishes: tuple[Finish, ...] = ()
    options: Mapping[str, JsonValue] = field(default_factory=lambda: EMPTY)

    def __post_init__(self) -> None:
        """Refuse finishes that do not match the responses."""
        if self.finishes and len(self.finishes) != len(self.responses):
            raise ValueError(f"got {len(self.finishes)} finishes for {len(self.responses)} responses")


class VerifierPool:
    """Worker processes that judge groups; every call gives one verdict per response, in order.

    Calls from several threads wait for each other. Close the pool, or use it in a ``with`` statement.
    """

    def __init__(
        self,
        workers: int,
        time_limit_seconds: int | float,
        *,
        limits: Limits | None = None,
        base: Path | None = None,
        code: LocalCode = LocalCode.REFUSED,
    ) -> None:
        """Prepare places for workers; processes start with the first call.

        Args:
            workers: How many processes judge at a time.
            time_limit_seconds: The limit of one check, in processor seconds (see ``Limits``).
            limits: All limits, where the defaults do not fit; its time limit must then be the same.
            base: The folder of local files; the current folder unless stated.
            code: Whether local files may be run.

        Raises:
            ConfigError: A number is out of range.
        """
        if workers < 1:
            raise ConfigError(f"workers must be at least 1; got {workers}")
        self._limits = limits or Limits(time_limit_seconds=time_limit_seconds)
        if self._limits.time_limit_seconds != time_limit_seconds:
            raise ConfigError("limits.time_limit_seconds and time_limit_seconds differ; give one number")
        self._base = base or Path.cwd()
        self._code = code
        self._locations: dict[str, Location] = {}
        self._timeout_status: dict[str, Status] = {}
        self._load_deaths: dict[str, int] = {}
        self._failed_starts = 0
        self._lock = threading.Lock()
        selector = selectors.DefaultSelector()
        spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="verifier-spawner")
        self._selector: selectors.BaseSelector = selector
        self._lanes = [Lane(self._limits, selector, spawner) for _ in range(workers)]
        self._close = weakref.finalize(self, _shut_down, self._lanes, spawner, selector)

    def __enter__(self) -> VerifierPool:
        """The pool itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the pool."""
        self.close()

    def close(self) -> None:
        """Kill every worker; closing twice is allowed."""
        self._close()

    @property
    def worker_pids(self) -> tuple[int, ...]:
        """Process ids of the workers that run now."""
        return tuple(lane.pid for lane in self._lanes if lane.pid is not None)

    def prepare(self, domain: str, options: Mapping[str, JsonValue] = EMPTY) -> None:
        """Load a verifier in a worker, so that mistakes show before any compute.

        Raises:
            ConfigError: It is unknown, not permitted, cannot be imported, or refuses the options.
        """
        prompt = Prompt(id=PromptId("prepare"), domain=domain, messages=(Message(role="user", content=""),))
        dispatch = self._run([VerifyTask(domain=domain, prompt=prompt, responses=(), options=options)])
        for message in dispatch.load_failures.values():
            raise ConfigError(message)

    def verify(self, tasks: Sequence[VerifyTask]) -> list[Verdict]:
        """Judge every response of every task: exactly one verdict each, in order.

        Raises:
            ConfigError: A verifier is unknown or not permitted.
            VerifierError: No worker can be started.
        """
        return [verdict for verdicts in self._run(tasks).results() for verdict in verdicts]

    def _run(self, tasks: Sequence[VerifyTask]) -> Dispatch:
        if not self._close.alive:
            raise VerifierError("this pool of verifiers is closed; open another")
        with self._lock:
            units = [
                Unit(
                    task=number,
                    verifier=self._key(task),
                    name=task.domain,
                    members=tuple(range(len(task.responses))),
                )
                for number, task in enumerate(tasks)
            ]
            dispatch = Dispatch(units)
            try:
                while not dispatch.is_done:
                    self._advance(dispatch, tasks)
            except BaseException:
                # Interrupted in the middle: answers still on their way must not reach the next call.
                for lane in self._lanes:
                    lane.stop()
                raise
        return dispatch

    def _key(self, task: VerifyTask) -> str:
        """What this verifier with these options is called in messages."""
        if task.domain not in self._locations:
            self._locations[task.domain] = locate("domains", task.domain, base=self._base, code=self._code)
        try:
            return json.dumps([task.domain, task.options], sort_keys=True, default=dict)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"options of domain {task.domain!r} are not JSON: {error}") from error

    def _advance(self, dispatch: Dispatch, tasks: Sequence[VerifyTask]) -> None:
        """Hand out work, wait a moment for answers, and look for workers that are late."""
        share = math.ceil(dispatch.waiting / (4 * len(self._lanes)))
        for lane in self._lanes:
            if not lane.units and dispatch.waiting:
                self._assign(lane, dispatch, tasks=tasks, count=min(share, _MAX_UNITS_PER_MESSAGE))
        for key, mask in self._selector.select(_POLL_SECONDS):
            lane = cast("Lane", key.data)
            if mask & selectors.EVENT_WRITE:
                lane.flush()
            if mask & selectors.EVENT_READ:
                self._listen(lane, dispatch)
        for lane in self._lanes:
            if lane.is_late() and not self._listen(lane, dispatch):
                self._end(lane, dispatch, is_timeout=True)

    def _assign(self, lane: Lane, dispatch: Dispatch, *, tasks: Sequence[VerifyTask], count: int) -> None:
        units: list[Unit] = []
        lines: list[bytes] = []
        for unit in dispatch.take(count):
            if self._load_deaths.get(unit.verifier, 0) >= _LOAD_DEATHS_ALLOWED:
                dispatch.fail_to_load(unit, f"importing {unit.name!r} hangs or ends its process")
                continue
            try:
                lines.append(encode(self._document(unit, tasks[unit.task])))
            except (TypeError, ValueError) as error:
                dispatch.set_aside(unit, f"the row cannot be written as JSON: {error}")
                continue
            units.append(unit)
        if units:
            lane.assign(units, lines)

    def _document(self, unit: Unit, task: VerifyTask) -> Document:
        finishes = task.finishes or (Finish.STOP,) * len(task.responses)
        return {
            "task": unit.task,
            "verifier": unit.verifier,
            "location": location_document(self._locations[task.domain]),
            "options": task.options,
            "prompt": prompt_document(task.prompt),
            "responses": [task.responses[m] for m in unit.members],
            "finishes": [finishes[m].value for m in unit.members],
        }

    def _listen(self, lane: Lane, dispatch: Dispatch) -> bool:
        """Take what a worker says; whether it said anything, or is gone."""
        messages, alive = lane.receive()
        for message in messages:
            if "ready" in message:
                lane.is_ready, self._failed_starts = True, 0
            elif "loading" in message:
                lane.loading = cast("str", message["loading"])
            elif "loaded" in message:
                status = cast("str", message.get("timeout_status", Status.UNPARSEABLE.value))
                self._timeout_status[lane.loading], lane.loading = Status(status), ""
            else:
                dispatch.succeed(lane.units.popleft(), message)
        if not alive:
            self._end(lane, dispatch, is_timeout=False)
        return bool(messages) or not alive

    def _end(self, lane: Lane, dispatch: Dispatch, *, is_timeout: bool) -> None:
        """End a worker that is late or gone, and blame what it was doing."""
        units, was_ready, loading, seconds = list(lane.units), lane.is_ready, lane.loading, lane.seconds
        ending = lane.stop()
        if not was_ready or loading or not units:
            dispatch.put_back(units)
            if loading:
                self._load_deaths[loading] = self._load_deaths.get(loading, 0) + 1
            elif not was_ready:
                self._note_failed_start(ending)
            return
        dispatch.put_back(units[1:])
        if is_timeout:
            dispatch.time_out(units[0], seconds=seconds, status=self._timeout_status[units[0].verifier])
        else:
            dispatch.die(units[0], seconds=seconds, ending=ending)

    def _note_failed_start(self, ending: str) -> None:
        self._failed_starts += 1
        if self._failed_starts >= _FAILED_STARTS_ALLOWED:
            raise VerifierError(
                f"verification workers do not start: {ending}; "
                "check that python -m bimetal.rewards.worker can be run, and the free memory"
            )


def unexpected_unknown_share(verdicts: Iterable[Verdict]) -> Metric:
    """Verdicts that are unknown because a row, a verifier or a service broke, of all verdicts.

    A run stops when the value passes its limit. A reward function that declined to judge is not counted.
    """
    seen = list(verdicts)
    broken = [v for v in seen if v.status is Status.UNKNOWN and v.reason in _BROKEN_REASONS]
    return Metric(len(broken), len(seen))


def _shut_down(lanes: Sequence[Lane], spawner: Executor, selector: selectors.BaseSelector) -> None:
    """Kill all workers; the thread that started them ends after them, because its end kills them too."""
    for lane in lanes:
        lane.stop()
    spawner.shutdown()
    selector.close()
