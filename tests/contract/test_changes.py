"""changes: a bounded log, one row a call, read from a cursor on."""

from __future__ import annotations

import json
from collections.abc import Sequence

from onthedot.stores.contract import Store
from tests.contract.steps import Worker, add, task, tasks
from tests.contract.test_lift import Mover, away

EMPTY = (b"", b"[]")


async def now(store: Store) -> str:
    ((cursor, data),) = await store.changes("", 10)
    assert data in EMPTY
    return cursor


def about(rows: Sequence[tuple[str, bytes]], uuid: str) -> bool:
    return any(uuid.encode() in data for _, data in rows)


async def test_from_now_there_is_nothing_yet(store: Store) -> None:
    await add(store, task())
    assert list(await store.changes(await now(store), 10)) == []


async def test_one_row_a_call(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    cursor = await now(store)
    first, second = await add(store, *tasks(2))
    rows = await store.changes(cursor, 10)
    assert len(rows) == 1
    assert about(rows, first)
    assert about(rows, second)
    await worker.runs()
    await worker.settle(worker.done(first), worker.failed(second))
    assert len(await store.changes(cursor, 10)) == 3


async def test_every_step_leaves_one(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    (uuid,) = await add(store, task())
    cursor = await now(store)

    async def seen() -> bool:
        nonlocal cursor
        rows = await store.changes(cursor, 10)
        cursor = rows[-1][0] if rows else cursor
        return about(rows, uuid)

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
    await worker.heartbeat(0)
    assert await seen()
    assert await other.runs() == [uuid]
    assert await seen()
    await other.settle(other.done(uuid, keep=0))
    assert await seen()


async def test_reading_goes_on_from_a_cursor(store: Store) -> None:
    cursor = start = await now(store)
    uuids = [(await add(store, task()))[0] for _ in range(7)]
    read: list[tuple[str, bytes]] = []
    while rows := await store.changes(cursor, 3):
        assert len(rows) <= 3
        read += rows
        cursor = rows[-1][0]
    assert [about([row], uuid) for row, uuid in zip(read, uuids, strict=True)] == [True] * 7
    assert list(await store.changes(start, 100)) == read
    assert await now(store) == cursor


async def test_a_call_that_changes_nothing_leaves_none(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    new = task()
    await store.add([new])
    cursor = await now(store)
    await store.add([new])
    await store.revive([new.uuid])
    await worker.claim("none")
    await store.find({}, None, 10)
    await store.position(new.uuid)
    assert list(await store.changes(cursor, 10)) == []


async def test_what_was_moved_away_and_comes_back(store: Store) -> None:
    (uuid,) = await add(store, task("a", "t1"))
    mover = Mover(store, "m1")
    there = await away(mover, uuid)
    cursor = await now(store)
    assert [added.fresh for added in await store.adopt([there])] == [True]
    rows = [row for _, text in await store.changes(cursor, 10) for row in json.loads(text)]
    assert [row[1:] for row in rows] == [["t1", "a", "scheduled"]]
