"""The change feed: bounded, one entry per call, read from a cursor on."""

from __future__ import annotations

from collections.abc import Sequence

from onthedot.stores.contract import ChangeEntry, Store
from tests.contract.steps import Worker, add, task, tasks
from tests.contract.test_lift import Mover, away


async def now(store: Store) -> str:
    page = await store.changes("", 10)
    assert list(page.entries) == []
    return page.cursor


async def entries(store: Store, after: str) -> list[ChangeEntry]:
    return list((await store.changes(after, 10)).entries)


def about(entries: Sequence[ChangeEntry], uuid: str) -> bool:
    return any(transition.uuid == uuid for entry in entries for transition in entry.transitions)


async def test_change_feed_from_now_is_empty(store: Store) -> None:
    await add(store, task())
    cursor = await now(store)
    page = await store.changes(cursor, 10)
    assert (list(page.entries), page.cursor) == ([], cursor)


async def test_change_feed_has_one_entry_per_call(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    cursor = await now(store)
    first, second = await add(store, *tasks(2))
    found = await entries(store, cursor)
    assert len(found) == 1
    assert about(found, first)
    assert about(found, second)
    await worker.runs()
    await worker.settle(worker.done(first), worker.failed(second))
    assert len(await entries(store, cursor)) == 3


async def test_every_transition_has_an_entry(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    (uuid,) = await add(store, task())
    cursor = await now(store)

    async def seen() -> bool:
        nonlocal cursor
        page = await store.changes(cursor, 10)
        cursor = page.cursor
        return about(page.entries, uuid)

    assert await worker.runs() == [uuid]
    assert await seen()
    await worker.settle(worker.retry(uuid, after=1000))
    assert await seen()
    await worker.cancel(uuid)
    await worker.settle(worker.cancelled(uuid))
    assert await seen()
    await store.revive([uuid])
    assert await seen()
    assert await worker.runs() == [uuid]
    assert await seen()
    await worker.crash()
    assert await seen()
    assert await other.runs() == [uuid]
    assert await seen()
    await other.settle(other.done(uuid, keep=0))
    assert await seen()


async def test_reading_continues_from_a_cursor(store: Store) -> None:
    cursor = start = await now(store)
    uuids = [(await add(store, task()))[0] for _ in range(7)]
    read: list[ChangeEntry] = []
    while (page := await store.changes(cursor, 3)).entries:
        assert len(page.entries) <= 3
        assert page.cursor == page.entries[-1].cursor
        read += page.entries
        cursor = page.cursor
    assert [about([entry], uuid) for entry, uuid in zip(read, uuids, strict=True)] == [True] * 7
    assert list((await store.changes(start, 100)).entries) == read
    assert await now(store) == cursor


async def test_call_without_a_transition_has_no_entry(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    new = task()
    await store.add([new])
    cursor = await now(store)
    await store.add([new])
    await store.revive([new.uuid])
    await worker.claim("none")
    await store.find({}, None, 10)
    await store.position(new.uuid)
    assert await entries(store, cursor) == []


async def test_return_of_a_moved_task_has_an_entry(store: Store) -> None:
    (uuid,) = await add(store, task("a", "t1"))
    mover = Mover(store, "m1")
    moved_copy = await away(mover, uuid)
    cursor = await now(store)
    assert [added.fresh for added in await store.adopt([moved_copy])] == [True]
    found = [transition for entry in await entries(store, cursor) for transition in entry.transitions]
    assert [(each.uuid, each.source, each.state) for each in found] == [("t1", "a", "scheduled")]
