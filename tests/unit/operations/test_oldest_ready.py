"""The age of the task that runs next, of a store and of each source."""

from __future__ import annotations

from onthedot.clock.manual import ManualClock
from onthedot.operations.oldest_ready import OldestReady, read_oldest_ready
from onthedot.stores.memory import MemoryStore
from tests.contract.steps import Worker, add, limit, task


async def test_each_source_has_the_age_of_its_next_task_also_behind_a_long_queue() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    for source in ("a", "a", "a", "b", "c"):
        await add(store, task(source))
        clock.advance(1_000)
    await add(store, task("d", after=60_000))
    for head in (1, 3, 10):
        found = await read_oldest_ready(store, ["a", "b"], clock.now(), head)
        assert found.of_all == 5
        assert {name: found.by_source[name] for name in ("a", "b")} == {"a": 5, "b": 2}
        assert "d" not in found.by_source


async def test_source_whose_tasks_are_all_parked_has_the_age_of_the_first() -> None:
    clock = ManualClock()
    store = MemoryStore(clock)
    await limit(store, "a/*", cap=0)
    await add(store, task("a", lane="a/k"))
    worker = Worker(store, "w1")
    await worker.heartbeat()
    await worker.claim("a")
    clock.advance(3_000)
    assert (await store.tally()).get(("a", "parked")) == 1
    assert await read_oldest_ready(store, ["a"], clock.now(), 5) == OldestReady(3, {"a": 3})


async def test_nothing_is_read_without_ready_tasks() -> None:
    assert await read_oldest_ready(MemoryStore(ManualClock()), [], 0, 5) == OldestReady(None, {})
