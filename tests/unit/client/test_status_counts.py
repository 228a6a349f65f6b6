"""StatusCounts: counts are returned without waiting; an outdated count never replaces a newer one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from onthedot.client import status_counts
from onthedot.client.status_counts import StatusCounts, StatusSnapshot
from onthedot.clock.manual import ManualClock
from onthedot.observability.logs import LogObserver
from onthedot.stores.contract import NewTask
from onthedot.stores.memory import MemoryStore
from tests.support.waits import until


class Slow(MemoryStore):
    """A store that answers on command, with its state at the time of the request."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.requests: list[asyncio.Event] = []

    async def tally(self) -> Mapping[Any, int]:
        seen = await super().tally()
        go = asyncio.Event()
        self.requests.append(go)
        await go.wait()
        return seen


@pytest.fixture
def store(clock: ManualClock) -> Slow:
    return Slow(clock)


@pytest.fixture
def kept(clock: ManualClock) -> StatusCounts:
    return StatusCounts(clock, LogObserver(None), watched=True)


def task(n: int, **fields: Any) -> NewTask:
    return NewTask(f"u{n}", "work", b"{}", **fields)


async def add(store: Slow, kept: StatusCounts, *tasks: NewTask) -> None:
    kept.add_started()
    kept.add_finished(tasks, await store.add(tasks))


async def look(store: Slow, kept: StatusCounts) -> asyncio.Task[StatusSnapshot]:
    """One that is under way."""
    before = len(store.requests)
    looking = asyncio.ensure_future(kept.refresh(store))
    await until(lambda: len(store.requests) > before)
    return looking


async def test_adds_are_counted_at_once(store: Slow, kept: StatusCounts, clock: ManualClock) -> None:
    later = int(clock.now()) + 1000
    await add(store, kept, task(1), task(2, at=0), task(3, at=later), task(4, after=5), task(5, lane="work/x"))
    assert kept.now() == StatusSnapshot(ready=2, delayed=3)
    await add(store, kept, task(1))
    assert kept.now() == StatusSnapshot(ready=2, delayed=3), "it was there before"
    kept.add_started()
    kept.add_finished([task(6)], [])
    assert kept.now() == StatusSnapshot(ready=2, delayed=3), "it was not stored"
    looking = await look(store, kept)
    store.requests[0].set()
    await looking
    assert kept.now() == StatusSnapshot(ready=2, delayed=3), "and the store says the same"


@pytest.mark.parametrize("seen", [False, True])
async def test_count_that_overlaps_an_add_is_discarded(store: Slow, kept: StatusCounts, seen: bool) -> None:
    """It may have seen it or not: it would be counted twice, or not at all."""
    looking = await look(store, kept)
    store.requests[0].set()
    await looking
    tasks = [task(1)]
    if seen:
        kept.add_started()
        answers = await store.add(tasks)
        looking = await look(store, kept)
        kept.add_finished(tasks, answers)
    else:
        looking = await look(store, kept)
        await add(store, kept, *tasks)
    store.requests[1].set()
    await looking
    assert kept.now() == StatusSnapshot(ready=1)


async def test_overlapping_count_is_used_if_adds_never_pause(
    store: Slow, kept: StatusCounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count that may miss concurrent adds is better than none."""
    monkeypatch.setattr(status_counts, "MAX_AGE", 0.0)
    await store.add([task(n) for n in range(10)])  # by somebody else
    kept.add_started()
    looking = await look(store, kept)
    store.requests[0].set()
    await looking
    assert kept.now() == StatusSnapshot(ready=10)


async def test_slow_count_does_not_replace_a_newer_one(store: Slow, kept: StatusCounts) -> None:
    early = await look(store, kept)
    await store.add([task(1)])
    late = await look(store, kept)
    store.requests[1].set()
    await late
    assert kept.now() == StatusSnapshot(ready=1)
    store.requests[0].set()
    assert await early == StatusSnapshot()
    assert kept.now() == StatusSnapshot(ready=1)


async def test_counts_are_refreshed_when_marked_stale(store: Slow, kept: StatusCounts) -> None:
    assert kept.mark_stale() is False, "nobody is there to look"
    counting = asyncio.ensure_future(kept.run(store))
    await until(kept.mark_stale)
    await until(lambda: store.requests)
    await store.add([task(1)])
    kept.mark_stale()  # after the look has begun: it is taken again
    store.requests[0].set()
    await until(lambda: len(store.requests) == 2)
    store.requests[1].set()
    await until(lambda: kept.now() == StatusSnapshot(ready=1))
    counting.cancel()
    await asyncio.wait([counting])
    assert kept.mark_stale() is False
