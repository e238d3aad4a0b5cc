"""One place for a verification worker: the process that fills it, its queue of work, and its clock."""

from __future__ import annotations

import math
import selectors
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import cast

from bimetal.core.errors import ConfigError
from bimetal.rewards.dispatch import Unit
from bimetal.rewards.wire import Document
from bimetal.rewards.worker_process import WorkerProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a check may use before its worker is killed.

    A check exceeds its limit when the worker has used ``time_limit_seconds`` of processor time on it, or
    when ``grace_seconds`` more have passed on the wall: so a busy machine does not make honest answers late,
    and sleeping does not pay. A group is given the limit as a whole first, then each item alone.
    ``load_seconds`` is for starting a worker and for importing a verifier, which no answer is blamed for.
    """

    time_limit_seconds: int | float
    grace_seconds: int | float = 5.0
    load_seconds: int | float = 120.0
    memory_bytes: int = 4 * 2**30
    recycle_after: int = 10_000

    def __post_init__(self) -> None:
        """Refuse limits that cannot work."""
        for name in ("time_limit_seconds", "load_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} must be above 0 and finite; got {getattr(self, name)}")
        if not 0 <= self.grace_seconds < math.inf:
            raise ConfigError(f"grace_seconds must be 0 or more and finite; got {self.grace_seconds}")
        if self.memory_bytes < 2**28 or self.recycle_after < 1:
            raise ConfigError(
                "memory_bytes must be at least 256 MiB, recycle_after at least 1; "
                f"got {self.memory_bytes} and {self.recycle_after}"
            )


class Lane:
    """A worker that is started when there is work and replaced when it is spent."""

    def __init__(self, limits: Limits, selector: selectors.BaseSelector, spawner: Executor) -> None:
        """An empty place; ``selector`` will hold the pipes of its processes, with the lane as data."""
        self._limits = limits
        self._selector = selector
        self._spawner = spawner
        self._process: WorkerProcess | None = None
        self._served = 0
        self._since = 0.0
        self._cpu_base = 0.0
        self.units: deque[Unit] = deque()
        """What it was given and has not answered; the first one is being judged."""
        self.is_ready = False
        """Whether the process has come up."""
        self.loading = ""
        """Key of the verifier that it is importing now."""

    @property
    def pid(self) -> int | None:
        """The process id, where a process runs."""
        return self._process.pid if self._process else None

    @property
    def seconds(self) -> float:
        """Wall time since the worker was last heard of, or was given work."""
        return time.monotonic() - self._since

    def assign(self, units: Sequence[Unit], lines: Sequence[bytes]) -> None:
        """Send work to an idle worker, one line per unit; a spent worker is replaced first."""
        if self._served >= self._limits.recycle_after:
            self.stop()
        if self._process is None:
            self._process = WorkerProcess(self._spawner, memory_limit_bytes=self._limits.memory_bytes)
            self._selector.register(self._process.readable, selectors.EVENT_READ, self)
        self._since = time.monotonic()
        self._served += len(units)
        self.units.extend(units)
        self._process.send(b"".join(lines))
        if self._process.has_unsent:
            self._selector.register(self._process.writable, selectors.EVENT_WRITE, self)

    def flush(self) -> None:
        """Send more of what did not fit into the pipe."""
        if self._process is None:
            return
        self._process.flush()
        if not self._process.has_unsent:
            self._selector.unregister(self._process.writable)

    def receive(self) -> tuple[list[Document], bool]:
        """The messages that have arrived, and whether the worker is still there; each restarts its clock."""
        if self._process is None:
            return [], True
        messages, alive = self._process.receive()
        if messages:
            self._since = time.monotonic()
            self._cpu_base = cast("float", messages[-1].get("cpu", self._cpu_base))
        return messages, alive

    def is_late(self) -> bool:
        """Whether what it does now has exceeded its limit."""
        if self._process is None or not self.units:
            return False
        wall = self.seconds
        if not self.is_ready or self.loading:
            return wall >= self._limits.load_seconds
        limit = self._limits.time_limit_seconds
        if wall < limit:
            return False
        cpu = self._process.cpu_seconds()
        # Where the system does not tell the processor time, the wall decides alone.
        return cpu is None or cpu - self._cpu_base >= limit or wall >= limit + self._limits.grace_seconds

    def stop(self) -> str:
        """Kill the process and forget its work; say how it ended."""
        process, self._process = self._process, None
        self.units.clear()
        self.is_ready, self.loading, self._served, self._cpu_base = False, "", 0, 0.0
        if process is None:
            return ""
        self._selector.unregister(process.readable)
        if process.has_unsent:
            self._selector.unregister(process.writable)
        return process.kill()
