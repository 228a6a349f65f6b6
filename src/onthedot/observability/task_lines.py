"""Lines about single tasks: up to a hundred per second and source, and one line per second about the others."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from onthedot.clock.protocol import Clock, Timer
from onthedot.forks import register_fork_hooks

_INTERVAL = 1000.0  # ms
MAX_LINES = 100  # of one kind, per source and interval

LineKind: TypeAlias = Literal["queued", "done", "cancelled", "sleep", "wait"]


@dataclass
class _Interval:
    """The lines of one kind about one source."""

    written: int = 0
    others: int = 0  # tasks without a line of their own
    failed: int = 0  # these have one, an ERROR
    durations: list[float] = field(default_factory=list[float])  # ms, of the others

    def summary(self, kind: LineKind, source: str) -> str:
        noun = "task" if self.others == 1 else "tasks"
        text = f"[{kind}] {self.others} more {noun} from {source}"
        if kind == "done":
            self.durations.sort()
            p50 = self.durations[self.others * 50 // 100]
            p95 = self.durations[self.others * 95 // 100]
            text += f": {self.failed} failed, p50 {p50:.1f} ms, p95 {p95:.1f} ms"
        return text


class TaskLines:
    """Decides which tasks get a line of their own. A line per task would cost as much as the task.

    Threads and event loops share it. Lines are written outside of the lock: a handler may do anything.

    worker: the current session, a field of the lines
    """

    def __init__(self, log: logging.LoggerAdapter[logging.Logger], clock: Clock, worker: Callable[[], str]) -> None:
        self._log = log
        self._clock = clock
        self._worker = worker
        self._lock = threading.Lock()
        self._intervals: dict[tuple[LineKind, str], _Interval] = {}
        self._until = 0.0  # ms: the end of the interval, the same for all sources
        self._timer: Timer | None = None
        self._timer_loop: asyncio.AbstractEventLoop | None = None
        register_fork_hooks(self)

    def after_fork(self) -> None:
        """The timer and the tasks are the parent's, and one of its threads may have held the lock."""
        self._lock = threading.Lock()
        self._timer = None
        self._intervals = {}

    def admit(self, kind: LineKind, source: str, count: int, durations: Sequence[float] = ()) -> int:
        """Returns for how many of these tasks the caller writes a line; the others are in the next summary.

        durations: of all of them, in ms
        """
        with self._lock:
            summaries = self._begin_interval()
            interval = self._intervals.setdefault((kind, source), _Interval())
            admitted = min(count, MAX_LINES - interval.written)
            interval.written += admitted
            interval.others += count - admitted
            interval.durations += durations[admitted:]
            if admitted < count:
                self._start_timer()
        self._write(summaries)
        return admitted

    def add_failures(self, source: str, count: int) -> None:
        """Counts tasks that have failed, for the summary of their source."""
        with self._lock:
            summaries = self._begin_interval()
            self._intervals.setdefault(("done", source), _Interval()).failed += count
        self._write(summaries)

    def flush(self) -> None:
        """Writes the summaries now. Called before the end of an event loop, which its timer does not survive."""
        with self._lock:
            if self._timer is not None and self._timer_loop is asyncio._get_running_loop():
                self._timer.cancel()
                self._timer = None
            summaries = self._take_summaries()
        self._write(summaries)

    def _begin_interval(self) -> list[tuple[str, str]]:
        """Returns the summaries of the last interval if it has ended."""
        now = self._clock.now()
        if now < self._until:
            return []
        self._until = now + _INTERVAL
        return self._take_summaries()

    def _take_summaries(self) -> list[tuple[str, str]]:
        ended = self._intervals
        self._intervals = {}
        return [(source, each.summary(kind, source)) for (kind, source), each in ended.items() if each.others]

    def _start_timer(self) -> None:
        """So that the last interval of a burst is reported, too. Without an event loop, the next line does it."""
        loop = asyncio._get_running_loop()
        is_pending = self._timer is not None and self._timer_loop is not None and not self._timer_loop.is_closed()
        if loop is not None and not is_pending:
            self._timer = self._clock.call_later(max(0.0, self._until - self._clock.now()), self._on_timer)
            self._timer_loop = loop

    def _on_timer(self) -> None:
        with self._lock:
            self._timer = None
            self._until = 0.0
            summaries = self._take_summaries()
        self._write(summaries)

    def _write(self, summaries: Sequence[tuple[str, str]]) -> None:
        for source, text in summaries:
            self._log.info("%s", text, extra={"source": source, "worker": self._worker()})
