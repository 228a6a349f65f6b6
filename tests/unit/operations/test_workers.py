"""Workers as an operator sees them: speed, memory, the tasks that they run, and what dead ones left."""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pytest

from onthedot import App
from onthedot.clock.epoch import from_ms
from onthedot.clock.manual import ManualClock
from onthedot.model.worker_record import WORKERS, WorkerRecord, encode_worker_record
from onthedot.operations import Operations
from onthedot.operations.workers import LostTasks, WorkerInfo
from onthedot.stores.contract import NewTask, SeriesEntry, Store
from onthedot.stores.memory import MemoryStore
from tests.contract.steps import LEASE, Worker, add, task, tasks
from tests.support.app_stores import AppStore

MINUTE = 60_000
INFO = b'{"host": "app-1", "pid": 7, "sources": ["a"], "concurrency": {"async": 5}}'


class Shop:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.clock.advance(MINUTE - self.clock.now() % MINUTE + 30_000)
        self.store = MemoryStore(self.clock)
        self.operations = Operations(self.store, "test", self.clock)

    async def write(self, session: str, ago: int = 0, *, age: int = 0, **fields: Any) -> None:
        """ago: minutes; age: ms of the record."""
        await write(self.store, int(self.clock.now()), session, ago, age=age, **fields)

    async def only(self) -> WorkerInfo:
        (found,) = await self.operations.workers(with_dead=True)
        return found


async def write(store: Store, now: int, session: str, ago: int = 0, *, age: int = 0, **fields: Any) -> None:
    at = (now // MINUTE - ago) * MINUTE
    written = now - age if ago == 0 else at + MINUTE - 1
    record = WorkerRecord(host="app-1", pid=7, written=written, **fields)
    await store.write_series([SeriesEntry(WORKERS, at, session, encode_worker_record(record))])


@pytest.fixture
def shop() -> Shop:
    return Shop()


async def test_live_worker_has_what_it_has_written(shop: Shop) -> None:
    await shop.store.heartbeat("w1", INFO, LEASE)
    assert (await shop.only()).done_per_minute is None, "it has written nothing"
    await shop.write("w1", 2, done=100)
    await shop.write("w1", 1, done=60)
    await shop.write("w1", rss=5000, loop_lag=4.5, clock_offset=-3.0, done=20, age=5_000)
    found = await shop.only()
    assert (found.rss, found.loop_lag, found.clock_offset, found.alive) == (5000, 4.5, -3.0, True)
    assert found.done == (0, 0, 0, 0, 0, 0, 0, 100, 60, 20)
    assert found.done_per_minute == 55.0  # 20 in 25 s, and 35 s of the minute before
    assert found.seen == from_ms(shop.clock.now() - 5_000)
    assert found.lost is None


async def test_speed_of_a_worker_that_is_silent_is_zero(shop: Shop) -> None:
    await shop.store.heartbeat("w1", INFO, LEASE)
    await shop.write("w1", 4, done=100)
    found = await shop.only()
    assert (found.done_per_minute, found.done[-5]) == (0.0, 100)


async def test_longest_runs_of_a_worker_are_named(shop: Shop) -> None:
    await shop.store.heartbeat("w1", INFO, LEASE)
    worker = Worker(shop.store, "w1")
    began = from_ms(shop.clock.now())
    body = msgspec.json.encode({"args": {}, "label": "order 17 for acme"})
    await shop.store.add([NewTask("old", "a", body)])
    await worker.runs("a")
    for number in range(4):
        shop.clock.advance(1000)
        await add(shop.store, task("a", f"t{number}"))
        await worker.runs("a")
    found = await shop.only()
    assert found.running == 5
    assert [each.uuid for each in found.longest] == ["old", "t0", "t1"]
    assert (found.longest[0].label, found.longest[0].started) == ("order 17 for acme", began)
    listed = await shop.operations.tasks_of_worker("w1", 4)
    assert [info.uuid for info in listed] == ["old", "t0", "t1", "t2"]
    assert await shop.operations.tasks_of_worker("w2", 4) == []


async def test_dead_worker_stays_for_ten_minutes(shop: Shop) -> None:
    await shop.write("w1", done=3, release="r7", rss=5000)
    assert await shop.operations.workers() == []
    found = await shop.only()
    assert (found.id, found.host, found.pid, found.release, found.alive) == ("w1", "app-1", 7, "r7", False)
    assert found.lost == LostTasks()
    shop.clock.advance(9 * MINUTE)
    assert (await shop.only()).seen == found.seen
    shop.clock.advance(2 * MINUTE)
    assert await shop.operations.workers(with_dead=True) == []


async def test_worker_that_has_stopped_is_not_dead(shop: Shop) -> None:
    await shop.write("w1", 1, done=3)
    await shop.write("w1", done=3, is_closed=True)
    assert await shop.operations.workers(with_dead=True) == []


async def test_last_dead_worker_comes_first_after_the_live_ones(shop: Shop) -> None:
    await shop.write("w1", age=9_000)
    await shop.write("w2", age=2_000)
    await shop.store.heartbeat("w3", INFO, LEASE)
    assert [each.id for each in await shop.operations.workers(with_dead=True)] == ["w3", "w2", "w1"]


async def test_tasks_of_a_dead_worker_are_counted_by_what_became_of_them(app_store: AppStore) -> None:
    app: App[Any] = App(app_store.name, store=app_store.url)
    async with app:
        store = app.runtime.store
        operations = Operations(store, "test")
        dead = Worker(store, "w1")
        other = Worker(store, "w2")
        await store.heartbeat("w1", INFO, LEASE)
        await store.heartbeat("w2", INFO, LEASE)
        await add(store, *tasks(4), task("a", "last", max_crashes=0))
        runs = await dead.runs("a")
        assert len(runs) == 5
        await dead.settle(dead.done(runs[0]))
        now = time.time_ns() // 1_000_000
        await write(store, now, "w1", runs=[*runs, "gone"], run_count=6)
        assert [each.id for each in await operations.workers(with_dead=True)] == ["w1", "w2"]
        await dead.crash()

        async def lost() -> LostTasks | None:
            (found,) = [each for each in await operations.workers(with_dead=True) if not each.alive]
            return found.lost

        assert await lost() == LostTasks(requeued=3, failed=1)
        again = await other.runs("a")
        await other.settle(*[other.done(uuid) for uuid in again])
        assert await lost() == LostTasks(requeued=3, failed=1)
        await store.close_session("w2")
