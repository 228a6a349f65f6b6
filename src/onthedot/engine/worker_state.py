"""The record that a worker writes of itself to the series "workers"."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from onthedot.engine.config import WorkerConfig
from onthedot.engine.loop_lag import LoopLag
from onthedot.engine.turns import Turns
from onthedot.model.source_figures import SourceFigures
from onthedot.model.worker_record import MAX_RUNS, WORKERS, WorkerRecord, encode_worker_record
from onthedot.observability.process_memory import resident_bytes
from onthedot.stores.contract import SeriesEntry

_MINUTE = 60_000  # ms


@dataclass(eq=False)
class WorkerState:
    """Describes the worker as it is now."""

    config: WorkerConfig
    turns: Turns
    loop_lag: LoopLag = field(default_factory=LoopLag)

    def describe(self) -> WorkerRecord:
        runs = list(self.turns.runner.runs)
        return WorkerRecord(
            host=platform.node(),
            pid=os.getpid(),
            version=self.config.version,
            release=self.config.release,
            rss=resident_bytes(),
            loop_lag=self.loop_lag.p99(),
            clock_offset=self.turns.clock_offset,
            runs=runs[:MAX_RUNS],
            run_count=len(runs),
        )


class WorkerEntries:
    """Makes the entries of the series: one per minute and session, each in place of the one before."""

    def __init__(self, describe: Callable[[], WorkerRecord]) -> None:
        self._describe = describe
        self._key = (0, "")  # minute and session of the last entry
        self._written = 0  # ms
        self._done = 0  # in this minute
        self._failed = 0

    def is_due(self, now: int) -> bool:
        """An idle worker writes once per minute, so that its death would be noticed."""
        return now - self._written >= _MINUTE

    def is_known(self, session: str) -> bool:
        """There is an entry of this session."""
        return self._key[1] == session

    def next(
        self, now: int, session: str, ended: Mapping[str, SourceFigures], *, is_closed: bool = False
    ) -> SeriesEntry:
        """now: of the store, in ms; ended: what was counted since the entry before."""
        key = (now // _MINUTE * _MINUTE, session)
        if key != self._key:
            self._key = key
            self._done = 0
            self._failed = 0
        self._written = now
        for figures in ended.values():
            self._done += figures.succeeded + figures.failed + figures.cancelled
            self._failed += figures.failed
        record = self._describe()
        record.written = now
        record.done = self._done
        record.failed = self._failed
        record.is_closed = is_closed
        return SeriesEntry(WORKERS, key[0], session, encode_worker_record(record))
