"""The view of a run in a terminal: a bar with budget, tokens/s, reward and ETA, or plain lines in a log."""

from __future__ import annotations

import contextlib
import sys
from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bimetal.cli._console import printable
from bimetal.trainer.report import Line

QUIET_SECONDS = 10.0
"""Without a terminal, a line is written this often."""


class ProgressSink:
    """Follows a run on standard error, so that standard output stays for results."""

    def __init__(self, name: str, *, start: float = 0.0) -> None:
        """Begin at this share of the budget."""
        self._console = Console(file=sys.stderr, highlight=False)
        self._last = 0.0
        self._tokens = 0.0
        self._clock = perf_counter()
        self._rate = 0.0
        self._reward: float | None = None
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} % of budget"),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[news]}"),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=False,
        )
        self._task = self._bar.add_task(printable(name), total=1.0, news="")
        self._bar.update(self._task, completed=start)
        self._bar.start()

    def line(self, line: Line) -> None:
        """One step's metrics."""
        reward = line.metrics.get("reward/mean")
        if reward is not None:
            self._reward = reward if self._reward is None else 0.8 * self._reward + 0.2 * reward
        progress = line.metrics.get("budget/progress")
        if progress is None:
            return
        news = self._news(line)
        self._bar.update(self._task, completed=progress, news=news)
        now = perf_counter()
        if not self._console.is_terminal and now - self._last > QUIET_SECONDS:
            self._last = now
            self._say(f"{progress:5.1%} of budget, {news}")

    def note(self, text: str) -> None:
        """A sentence for people."""
        self._say(printable(text))

    def close(self) -> None:
        """Stop the bar."""
        self._bar.stop()

    def _say(self, text: str) -> None:
        # Whoever reads along may go away; the run does not end for that.
        with contextlib.suppress(OSError, ValueError):
            self._console.print(text, markup=False)

    def _news(self, line: Line) -> str:
        tokens = sum(line.metrics.get(f"budget/{kind}_tokens") or 0.0 for kind in ("generated", "trained"))
        now = perf_counter()
        if self._tokens and now > self._clock:
            fresh = (tokens - self._tokens) / (now - self._clock)
            self._rate = fresh if not self._rate else 0.8 * self._rate + 0.2 * fresh
        self._tokens, self._clock = tokens, now
        parts = [f"{line.stage} step {line.step}", f"{self._rate:,.0f} tokens/s"]
        if self._reward is not None:
            parts.append(f"reward {self._reward:.3f}")
        nll = line.metrics.get("imitation/nll")
        if nll is not None:
            parts.append(f"nll {nll:.3f}")
        return ", ".join(parts)
