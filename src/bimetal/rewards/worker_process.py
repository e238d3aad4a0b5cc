"""The parent's end of one verification worker: start it, talk to it without ever blocking, kill it whole."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path

from bimetal.core.errors import VerifierError
from bimetal.rewards.wire import Document, decode
from bimetal.rewards.worker import EXIT_OUT_OF_MEMORY

MAX_LINE_BYTES = 64 * 2**20
"""The longest message a worker may send; more is taken for a broken worker."""

_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|COOKIE|AUTH", re.IGNORECASE)


def reduced_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """What a worker may know of the environment: no credentials, and nothing that makes verdicts differ.

    >>> reduced_environment({"HF_TOKEN": "x", "HOME": "/home/a"})["HOME"]
    '/home/a'
    """
    kept = {name: value for name, value in environment.items() if not _SECRET.search(name)}
    fixed = {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8", "OMP_NUM_THREADS": "1"}
    path = os.pathsep.join(folder for folder in sys.path if folder)
    return {**kept, **fixed, "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONPATH": path}


class WorkerProcess:
    """One worker; its two pipes are registered with the pool's selector."""

    def __init__(self, spawner: Executor, *, memory_limit_bytes: int) -> None:
        """Start it, without waiting until it is ready.

        The kernel's notice of a dead parent is tied to the thread that started the process, so all are
        started by ``spawner``'s one thread, which lives as long as the pool.
        """
        command = [sys.executable, "-P", "-X", "utf8", "-m", "bimetal.rewards.worker"]
        self._process: subprocess.Popen[bytes] = spawner.submit(
            subprocess.Popen[bytes],
            [*command, str(os.getpid()), str(memory_limit_bytes)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=reduced_environment(os.environ),
            start_new_session=True,
        ).result()
        if not (self._process.stdin and self._process.stdout and self._process.stderr):
            raise VerifierError("a verification worker started without pipes; this is a bug")
        self._stdin, self._stdout, self._stderr = (
            self._process.stdin,
            self._process.stdout,
            self._process.stderr,
        )
        for pipe in (self._stdin, self._stdout, self._stderr):
            os.set_blocking(pipe.fileno(), False)
        self._outgoing = bytearray()
        self._incoming = bytearray()
        self._ended = ""

    @property
    def pid(self) -> int:
        """The process id, which is also that of its process group."""
        return self._process.pid

    @property
    def readable(self) -> int:
        """The descriptor on which messages arrive."""
        return self._stdout.fileno()

    @property
    def writable(self) -> int:
        """The descriptor on which messages leave."""
        return self._stdin.fileno()

    @property
    def has_unsent(self) -> bool:
        """Whether a part of a message still waits to be written."""
        return bool(self._outgoing)

    def send(self, line: bytes) -> None:
        """Write as much as the pipe takes now; ``flush`` writes the rest."""
        self._outgoing += line
        self.flush()

    def flush(self) -> None:
        """Write more of what waits; a worker that is gone is noticed by ``receive``."""
        try:
            while self._outgoing:
                written = os.write(self.writable, memoryview(self._outgoing)[: 2**16])
                del self._outgoing[:written]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._outgoing.clear()

    def receive(self) -> tuple[list[Document], bool]:
        """The messages that have arrived, and whether the worker is still there."""
        alive = True
        try:
            while chunk := os.read(self.readable, 2**16):
                self._incoming += chunk
                if len(self._incoming) > MAX_LINE_BYTES:
                    alive = False
                    break
            else:
                alive = False
        except BlockingIOError:
            pass
        *lines, rest = self._incoming.split(b"\n")
        self._incoming = bytearray(rest)
        messages: list[Document] = []
        for line in lines:
            try:
                messages.append(decode(bytes(line)))
            except ValueError:
                return messages, False
        return messages, alive

    def cpu_seconds(self) -> float | None:
        """Processor time it has used; ``None`` where the system does not tell."""
        try:
            # The name of the program, in parentheses, may hold spaces; user and system time follow it.
            fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> str:
        """End the whole process group, and say how the worker ended: by itself, or killed here."""
        if self._ended:
            return self._ended
        # The group is killed before the process is waited for: until then its id cannot be another's.
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self._process.kill()
        status = self._process.wait()
        self._ended = _ending(status)
        try:
            said = os.read(self._stderr.fileno(), 2**16).decode("utf-8", "replace").strip()
        except BlockingIOError:
            said = ""
        if said:
            self._ended += f": {said.splitlines()[-1]}"
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()
        return self._ended


def _ending(status: int) -> str:
    if status == EXIT_OUT_OF_MEMORY:
        return "out of memory"
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit status {status}"
