"""Records that workers write of themselves: with figures, once per minute while they are idle, and at the end."""

from __future__ import annotations

import asyncio
import os
import time
from random import Random
from typing import Any

import pytest

from onthedot import App
from onthedot.clock.manual import ManualClock
from onthedot.engine import loop_lag
from onthedot.engine.figure_writer import FigureWriter
from onthedot.engine.loop_lag import LoopLag
from onthedot.engine.worker_state import WorkerEntries
from onthedot.model.worker_record import WORKERS, WorkerRecord, decode_worker_record
from onthedot.observability.events import Observer
from onthedot.observability.meter import Meter
from onthedot.observability.process_memory import resident_bytes
from onthedot.operations.figure_records import read_all
from onthedot.stores.contract import Completed, Ended, Lease, Outcome, SeriesEntry
from onthedot.stores.memory import MemoryStore
from tests.support.waits import SOON, until
from tests.unit.engine.test_figure_writer import Started

MINUTE = 60_000
END = 2**52


class CountingStore(MemoryStore):
    writes = 0

    async def write_series(self, *args: Any, **options: Any) -> bool:
        self.writes += 1
        return await super().write_series(*args, **options)


class Node:
    """A worker that counts and writes, and runs nothing."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.clock.advance(MINUTE - self.clock.now() % MINUTE)
        self.store = CountingStore(self.clock)
        self.meter = Meter()
        self.session = "w1"
        self.runs = ["a", "b"]
        workers = WorkerEntries(lambda: WorkerRecord(host="app-1", pid=7, runs=self.runs))
        self.writer = FigureWriter(
            self.store, self.meter, self.clock, Random(1), Observer(), lambda: self.session, workers
        )

    def count(self, succeeded: int, failed: int = 0) -> None:
        lease = Lease("u", 1, "w")
        outcomes: list[Outcome] = [Completed(lease)] * succeeded + [Ended(lease, "failed", b"")] * failed
        runs = [Started("email", self.clock.now()) for _ in outcomes]
        settled = list(zip(outcomes, runs, strict=True))
        self.meter.tasks_settled(settled, ["ok"] * len(runs), self.clock.now())

    async def advance(self, seconds: float) -> None:
        for _ in range(int(seconds * 2)):
            self.clock.advance(500)
            await self.writer.write_if_due()

    async def entries(self) -> list[SeriesEntry]:
        return await read_all(self.store, WORKERS, 0, END)

    async def records(self) -> list[WorkerRecord]:
        return [decode_worker_record(entry.data) for entry in await self.entries()]


async def test_record_is_written_with_the_figures_in_one_call() -> None:
    node = Node()
    await node.writer.write()  # of a worker that has just started
    node.store.writes = 0
    node.count(3, 1)
    await node.advance(13)
    assert node.store.writes == 1
    (record,) = await node.records()
    assert (record.done, record.failed, record.host, record.pid, record.runs) == (4, 1, "app-1", 7, ["a", "b"])
    assert 0 <= node.clock.now() - record.written <= 13_000
    assert not record.is_closed


async def test_record_of_a_minute_is_cumulative_and_the_next_one_begins_at_zero() -> None:
    node = Node()
    for _ in range(3):
        node.count(2)
        await node.writer.write()
    assert [record.done for record in await node.records()] == [6]
    node.clock.advance(MINUTE)
    node.count(5)
    await node.writer.write()
    assert [record.done for record in await node.records()] == [6, 5]


async def test_idle_worker_writes_once_per_minute() -> None:
    node = Node()
    await node.advance(300)
    entries = await node.entries()
    assert 4 <= len(entries) <= 6
    assert {entry.writer for entry in entries} == {"w1"}


async def test_new_session_has_records_of_its_own() -> None:
    node = Node()
    node.count(2)
    await node.writer.write()
    node.session = "w2"
    node.count(3)
    await node.writer.write()
    assert [(entry.writer, decode_worker_record(entry.data).done) for entry in await node.entries()] == [
        ("w1", 2),
        ("w2", 3),
    ]


async def test_worker_that_stops_says_so_if_it_has_written_before() -> None:
    node = Node()
    node.count(1)
    await node.writer.write()
    await node.writer.write(is_last=True)
    (record,) = await node.records()
    assert (record.done, record.is_closed) == (1, True)


def test_record_that_cannot_be_read_is_empty() -> None:
    assert decode_worker_record(b"{") == WorkerRecord()


async def test_worker_describes_its_process_and_its_runs() -> None:
    app: App[Any] = App("shop", store="memory://", stop_timeout=0)
    started = asyncio.Event()

    @app.task
    async def block() -> None:
        started.set()
        await asyncio.sleep(SOON)

    async with app.running():
        task = await block.enqueue()
        await asyncio.wait_for(started.wait(), SOON)
        worker = app.runtime.worker
        assert worker is not None
        state = worker.state
        assert state is not None
        await until(lambda: state.describe().loop_lag is not None)
        record = state.describe()
        assert (record.runs, record.run_count, record.pid) == ([task.uuid], 1, os.getpid())
        assert record.clock_offset is not None
        assert abs(record.clock_offset) < 1000
        assert (record.rss is None) == (resident_bytes() is None)
        assert record.rss is None or record.rss > 2**20


# -- the lag of the event loop


def test_lag_is_that_of_the_slowest_timers() -> None:
    lag = LoopLag()
    assert lag.p99() is None
    for number in range(100):
        lag.note(number / 1000 / 10)
    assert lag.p99() == pytest.approx(9.8)


def test_blocked_loop_counts_for_every_timer_that_it_delayed() -> None:
    lag = LoopLag()
    for _ in range(100):
        lag.note(0.0)
    lag.note(5.2)  # once, in a minute of good timers
    assert lag.p99() == pytest.approx(4700, abs=1)


async def test_lag_of_a_running_loop_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_lag, "INTERVAL", 0.01)
    lag = LoopLag()
    lag.start()
    await until(lambda: lag.p99() is not None)
    time.sleep(0.2)  # noqa: ASYNC251 - a task that blocks the loop
    await until(lambda: (lag.p99() or 0) > 150)
    lag.stop()
