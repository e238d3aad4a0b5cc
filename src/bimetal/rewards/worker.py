"""The process in which verifiers run: ``python -m bimetal.rewards.worker PARENT_PID MEMORY_BYTES``.

Messages arrive on what was standard input and leave on what was standard output; both descriptors are moved
away first, so that nothing a verifier prints or reads can touch them. The process ends with its parent.
"""

from __future__ import annotations

import ctypes
import os
import queue
import resource
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import BinaryIO, cast

from bimetal.core.catalogue import Kind, Location, Source
from bimetal.core.errors import BimetalError
from bimetal.rewards.judge import Judge, judged, load_judge
from bimetal.rewards.wire import Document, decode, encode, items_of

EXIT_OUT_OF_MEMORY = 77
"""Exit status of a worker that hit its memory limit."""

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>


class _Worker:
    """Verifiers loaded so far, and the line to the parent."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._pid = os.getpid()
        self._judges: dict[str, Judge | str] = {}

    def send(self, document: Document) -> None:
        """Send one message with the processor time used so far, the base of the next task's limit."""
        if os.getpid() != self._pid:
            os._exit(0)  # a verifier forked and its child came back: it must not answer twice
        self._out.write(encode({**document, "cpu": time.process_time()}))
        self._out.flush()

    def serve(self, task: Document) -> None:
        """Judge one task; the verifier is loaded first where it is new here."""
        key = cast("str", task["verifier"])
        if key not in self._judges:
            self._load(key, task)
        judge = self._judges[key]
        if isinstance(judge, str):
            self.send({"task": task["task"], "failed": judge})
            return
        items = items_of(task)
        start = time.perf_counter()
        verdicts = judged(judge, items)
        self.send({"task": task["task"], "verdicts": verdicts, "seconds": time.perf_counter() - start})

    def _load(self, key: str, task: Document) -> None:
        self.send({"loading": key})
        try:
            judge = load_judge(
                location_of(cast("Document", task["location"])), cast("Document", task["options"])
            )
        except (BimetalError, SystemExit) as error:
            self._judges[key] = str(error) or f"{type(error).__name__} while loading"
            self.send({"loaded": key})
            return
        self._judges[key] = judge
        self.send({"loaded": key, "timeout_status": judge.timeout_status.value})


def location_document(location: Location) -> Document:
    """A catalogue location as JSON; ``location_of`` reads it."""
    return {
        "kind": location.kind,
        "name": location.name,
        "source": location.source.value,
        "module": location.module,
        "path": location.path,
        "attribute": location.attribute,
        "sha256": location.sha256,
    }


def location_of(document: Document) -> Location:
    """The location that ``location_document`` described."""
    text = cast("Mapping[str, str]", document)
    return Location(
        kind=cast("Kind", text["kind"]),
        name=text["name"],
        source=Source(text["source"]),
        module=text["module"],
        path=text["path"],
        attribute=text["attribute"],
        sha256=text["sha256"],
    )


def main(arguments: list[str]) -> None:
    """Serve messages until the parent closes the line or dies."""
    parent, memory_limit = int(arguments[0]), int(arguments[1])
    _die_with(parent)
    inbox, out = _take_over_descriptors()
    messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(inbox, messages), daemon=True).start()
    worker = _Worker(out)
    _limit_resources(memory_limit)
    worker.send({"ready": os.getpid()})
    while True:
        message = decode(messages.get())
        try:
            worker.serve(message)
        except MemoryError:
            os._exit(EXIT_OUT_OF_MEMORY)


def _receive(inbox: BinaryIO, messages: queue.SimpleQueue[bytes]) -> None:
    """Pass lines on; when the parent is gone, end the process, whatever it is doing."""
    for line in inbox:
        messages.put(line)
    os._exit(0)


def _take_over_descriptors() -> tuple[BinaryIO, BinaryIO]:
    """Move the two ends of the line out of reach, and leave the null device in their place."""
    inbox = os.fdopen(os.dup(0), "rb")
    out = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    return inbox, out


def _die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent dies, even inside a long call of C code."""
    # A Ctrl-C concerns the parent, which decides what becomes of its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)  # it died before the request


def _limit_resources(memory_limit: int) -> None:
    """No core files, and no more address space than allowed; a stricter limit of the machine stays."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = memory_limit if hard == resource.RLIM_INFINITY else min(memory_limit, hard)
    if sys.platform == "linux":  # elsewhere the limit is accepted and means nothing, or is refused
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main(sys.argv[1:])
