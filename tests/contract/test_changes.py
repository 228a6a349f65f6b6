"""The change feed: bounded, one entry per call with complete counts, read from a cursor on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import get_args

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import BATCH, MAX_TRANSITIONS, ChangeEntry, State, Store, Transition
from onthedot.stores.memory import MemoryStore
from tests.contract.steps import Worker, add, limit, member, task, tasks, waiting
from tests.contract.test_lift import Mover, away

ALL = 10_000  # more transitions than a test makes


async def now(store: Store) -> str:
    page = await store.changes("", 10)
    assert list(page.entries) == []
    assert not page.gap
    return page.cursor


async def entries(store: Store, after: str, resolve: int = ALL) -> list[ChangeEntry]:
    page = await store.changes(after, 10, resolve)
    assert not page.gap
    return list(page.entries)


def resolved(entries: Sequence[ChangeEntry]) -> list[Transition]:
    return [transition for entry in entries for transition in entry.transitions]


def about(entries: Sequence[ChangeEntry], uuid: str) -> bool:
    return any(transition.uuid == uuid for transition in resolved(entries))


def counted(entries: Sequence[ChangeEntry]) -> Counter[tuple[str, str]]:
    counts: Counter[tuple[str, str]] = Counter()
    for entry in entries:
        for source, by_state in entry.counts.items():
            counts.update({(source, state): number for state, number in by_state.items()})
    return counts


async def test_change_feed_from_now_is_empty(store: Store) -> None:
    await add(store, task())
    cursor = await now(store)
    page = await store.changes(cursor, 10)
    assert (list(page.entries), page.cursor, page.gap) == ([], cursor, False)


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
        page = await store.changes(cursor, 10, ALL)
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


async def test_entry_has_its_time_and_counts_by_source_and_state(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    cursor = await now(store)
    at = int(clock.now())
    await add(store, *tasks(3), *tasks(2, "b:x"), task(after=1000))
    (entry,) = await entries(store, cursor, 0)
    assert entry.at == at
    assert {source: dict(by_state) for source, by_state in entry.counts.items()} == {
        "a": {"ready": 3, "scheduled": 1}, "b:x": {"ready": 2},
    }  # fmt: skip
    assert list(entry.transitions) == []
    clock.advance(500)
    assert len(await worker.runs("a", "b:x")) == 5
    (_, entry) = await entries(store, cursor, 0)
    assert entry.at == at + 500
    assert counted([entry]) == {("a", "running"): 3, ("b:x", "running"): 2}


async def test_counts_of_every_verb_agree_with_the_transitions(
    store: Store, worker: Worker, other: Worker, clock: ManualClock
) -> None:
    """Lanes, alarms, waits, chores, retries and crashes; each with tasks of two sources."""
    await worker.heartbeat()
    await other.heartbeat()
    await limit(store, "a/k", cap=1)
    cursor = start = await now(store)
    await add(store, *tasks(3, lane="a/k"), *tasks(2, "b", lane="a/k"), *tasks(2, "b", after=1000))
    await add(store, member("n"), waiting(("n", 1)), waiting(("n", 1), source="b"), waiting(("never", 1)))
    await add(store, task("b", expires=1500), *tasks(2, "b"))
    read: list[ChangeEntry] = []
    for _ in range(12):
        uuids = await worker.runs("a", "b")
        outcomes = [worker.done(uuid) if number % 3 else worker.retry(uuid, 500) for number, uuid in enumerate(uuids)]
        await worker.settle(*outcomes)
        cancelled = await worker.cancel(*[each.uuid for each in (await store.find({"state": "parked"}, None, 1)).rows])
        await worker.settle(*[worker.cancelled(uuid) for uuid in (*cancelled, *await worker.chores())])
        await other.runs("a", "b", total=1)
        await other.crash()
        other.name += "+"
        await other.heartbeat()
        clock.advance(500)
        while (page := await store.changes(cursor, 3, ALL)).entries:
            assert not page.gap
            read += page.entries
            cursor = page.cursor
    assert counted(read) == Counter((each.source, each.state) for each in resolved(read))
    assert {state for _, state in counted(read)} == {*get_args(State)} - {"failed"}
    assert (await store.changes(start, 1000, ALL)).entries == read


async def test_newest_transitions_are_resolved(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    cursor = await now(store)
    first = await add(store, *tasks(5))
    second = await add(store, *tasks(4))
    one, other = await entries(store, cursor, 6)
    assert {each.uuid for each in other.transitions} == set(second)
    assert [each.uuid for each in one.transitions] == first[-2:]
    assert counted([one, other]) == {("a", "ready"): 9}
    page = await store.changes(cursor, 1, 3)
    assert [each.uuid for each in resolved(page.entries)] == first[-3:]
    assert await worker.runs(total=7) == [*first, *second[:2]]
    *before, started = await entries(store, cursor, 8)
    assert {each.uuid for each in started.transitions} == {*first, *second[:2]}
    assert [each.uuid for each in resolved(before)] == second[-1:]
    assert resolved(await entries(store, cursor, 0)) == []


async def test_transitions_of_deleted_tasks_are_counted(store: Store, worker: Worker, clock: ManualClock) -> None:
    """A store that keeps records outside its log does not resolve them, except the end of a task that is not kept."""
    await worker.heartbeat()
    cursor = await now(store)
    kept, dropped, unkept = await add(store, *tasks(3))
    await worker.runs()
    await worker.settle(worker.done(kept), worker.done(dropped, keep=1000), worker.done(unkept, keep=0))
    clock.advance(2000)
    assert await store.purge(10) == 1
    found = await entries(store, cursor)
    assert counted(found) == {("a", "ready"): 3, ("a", "running"): 3, ("a", "succeeded"): 3}
    assert [each.state for each in resolved(found) if each.uuid == kept] == ["ready", "running", "succeeded"]
    assert "succeeded" in [each.state for each in resolved(found) if each.uuid == unkept]
    assert about(found, dropped) == isinstance(store, MemoryStore)


async def test_reading_continues_from_a_cursor(store: Store) -> None:
    cursor = start = await now(store)
    uuids = [(await add(store, task()))[0] for _ in range(7)]
    read: list[ChangeEntry] = []
    while (page := await store.changes(cursor, 3, ALL)).entries:
        assert len(page.entries) <= 3
        read += page.entries
        cursor = page.cursor
    assert [about([entry], uuid) for entry, uuid in zip(read, uuids, strict=True)] == [True] * 7
    assert list((await store.changes(start, 100, ALL)).entries) == read
    assert await entries(store, await now(store)) == []
    assert (await store.changes(cursor, 100)).cursor == cursor


async def test_cursor_older_than_the_log_is_reported(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    cursor = await now(store)
    uuids = await add(store, *tasks(BATCH))
    await worker.runs()
    second = (await store.changes(cursor, 1)).cursor
    for _ in range(MAX_TRANSITIONS // (2 * BATCH) - 1):
        await worker.turn(outcomes=[worker.release(uuid) for uuid in uuids])
    assert not (await store.changes(cursor, 1)).gap
    for _ in range(3):
        await worker.turn(outcomes=[worker.release(uuid) for uuid in uuids])
    await store.purge(1)  # a store may trim the log only then
    page = await store.changes(cursor, 1000)
    assert page.gap
    assert counted(page.entries).total() >= MAX_TRANSITIONS
    assert (await store.changes(second, 1)).gap
    assert not (await store.changes(page.cursor, 1000)).gap


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
    found = resolved(await entries(store, cursor))
    assert [(each.uuid, each.source, each.state) for each in found] == [("t1", "a", "scheduled")]
