"""find: an order per state, pages that continue where tasks change, and scans that report their extent."""

from __future__ import annotations

from math import floor

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Store
from tests.contract.invariants import every
from tests.contract.steps import Worker, add, limit, member, names, task, tasks, waiting


async def test_find_returns_the_newest_first_in_pages(store: Store) -> None:
    uuids = await add(store, *tasks(25))
    page = await store.find({}, None, 10)
    assert names(page.rows) == uuids[:-11:-1]
    assert page.after is not None
    assert names(await every(store, limit=10)) == uuids[::-1]
    assert names(await every(store, limit=1)) == uuids[::-1]


async def test_adds_do_not_disturb_the_pages_of_a_reader(store: Store) -> None:
    uuids = await add(store, *tasks(6))
    page = await store.find({}, None, 3)
    await add(store, *tasks(3))
    following = await store.find({}, page.after, 10)
    assert names([*page.rows, *following.rows]) == uuids[::-1]


async def test_find_filters_by_every_field(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    start = floor(clock.now())
    await limit(store, "b/*", cap=0)
    await add(
        store,
        task("a", uuid="aa1"),
        task("a", uuid="aa2", after=5000, tags=("x", "y")),
        task("b", uuid="ab1", unique="k"),
        task("b", uuid="b1", lane="b/k", tags=("y",)),
    )
    clock.advance(1000)
    await add(store, task("c", uuid="c1"))
    await worker.runs("c")
    wanted = {
        ("uuid", "aa"): ["aa2", "aa1"],
        ("uuid", "ab1"): ["ab1"],
        ("uuid", "b1"): ["b1"],
        ("uuid_end", "b1"): ["b1", "ab1"],
        ("uuid_end", "1"): ["c1", "b1", "ab1", "aa1"],
        ("source", "b"): ["b1", "ab1"],
        ("state", "ready"): ["aa1", "ab1"],
        ("state", "scheduled"): ["aa2"],
        ("state", "parked"): ["b1"],
        ("state", "running"): ["c1"],
        ("state", "failed"): [],
        ("tag", "y"): ["b1", "aa2"],
        ("tag", "z"): [],
        ("unique", "k"): ["ab1"],
        ("lane", "b/k"): ["b1"],
        ("since", str(start + 1000)): ["c1"],
        ("until", str(start + 500)): ["b1", "ab1", "aa2", "aa1"],
    }
    found = {where: names(await every(store, dict([where]))) for where in wanted}
    assert found == wanted
    assert names(await every(store, {"source": "b", "tag": "y", "state": "parked"})) == ["b1"]
    assert names(await every(store, {"source": "a", "tag": "y", "state": "ready"})) == []


@pytest.mark.parametrize(
    "uuid", ["01a1e212-de42-73a9-a624-125b4862a31e", "2a3f5b5c-5d2d-7e2a-8a3f-5b5c5d2d5e2a", "order-17.a:b-c_d"]
)
async def test_find_takes_the_beginning_or_the_end_of_a_uuid(store: Store, uuid: str) -> None:
    """The bytes of the second one are * ? [ \\ ] - ^ and the like."""
    others = [uuid[::-1], f"0{uuid[1:-1]}0", "x"]
    await add(store, task(uuid=uuid), *(task(uuid=other) for other in others))
    for length in (1, 5, 8, 9, 10, 14, len(uuid)):
        for name, part in (("uuid", uuid[:length]), ("uuid_end", uuid[-length:])):
            found = names(await every(store, {name: part}))
            assert uuid in found
            assert all(each.startswith(part) if name == "uuid" else each.endswith(part) for each in found)
    assert names(await every(store, {"uuid": uuid[1:-1]})) == names(await every(store, {"uuid_end": uuid[1:-1]})) == []


async def test_filtered_pages_continue(store: Store) -> None:
    await add(store, *(task("ab"[number % 2]) for number in range(40)))
    rows = await every(store, {"source": "b"}, limit=3)
    assert len(rows) == 20
    assert {row.source for row in rows} == {"b"}


async def test_find_running_tasks_with_other_filters(
    store: Store, worker: Worker, other: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    first, second, third = await add(store, task(), task("b", lane="b/k"), task())
    assert await worker.runs(total=1) == [first]
    assert await other.runs("a", "b") == [second, third]
    (chore,) = await add(store, task(expires=1))
    clock.advance(1)
    assert await worker.chores() == {chore: "expired"}
    await store.add(tasks(9))

    async def running(**where: str) -> list[str]:
        return names((await store.find(where | {"state": "running"}, None, 100)).rows)

    assert await running() == [third, second, first]
    assert await running(source="b", lane="b/k") == [second]
    page = await store.find({"state": "running"}, None, 2)
    assert names(page.rows) == [third, second]
    assert names((await store.find({"state": "running"}, page.after, 2)).rows) == [first]
    (record,) = (await store.find({"state": "running", "source": "b"}, None, 5)).rows
    assert (record.state, record.history.session) == ("running", "w2")
    assert list(await store.get([second])) == [record]


async def find(store: Store, size: int = 100, **where: str) -> list[str]:
    """Page by page."""
    return names(await every(store, where, size))


@pytest.mark.parametrize("size", [1, 2, 100])
async def test_ready_tasks_are_listed_in_the_order_of_their_start(store: Store, clock: ManualClock, size: int) -> None:
    (late,) = await add(store, task("b"))
    clock.advance(10)
    (second, third) = await add(store, *tasks(2))
    (first,) = await add(store, task("c", boost=1000))
    assert await find(store, size, state="ready") == [first, late, second, third]
    assert await find(store, size, state="ready", source="a") == [second, third]
    assert await find(store, size, state="ready", source="none") == []


@pytest.mark.parametrize("size", [1, 2, 100])
async def test_parked_tasks_are_listed_in_the_order_of_their_start(
    store: Store, worker: Worker, clock: ManualClock, size: int
) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=0)
    x1, y1, x2, first = await add(
        store, task(lane="a/x"), task(lane="a/y"), task(lane="a/x"), task(lane="a/y", boost=1000)
    )
    clock.advance(1)
    await worker.runs()
    assert await find(store, size, state="parked") == [first, x1, y1, x2]
    assert await find(store, size, state="parked", lane="a/y") == [first, y1]
    assert await find(store, size, state="parked", lane="a/z") == []
    await limit(store, "a/*", cap=1)
    await worker.turn("b")
    assert await find(store, size, state="parked") == [y1, x2]
    assert await find(store, size, state="ready", lane="a/y") == [first]
    assert await worker.cancel(y1, x2) == [y1, x2]
    assert await find(store, size, state="parked") == [y1, x2]  # chores now
    await worker.settle(worker.cancelled(y1), worker.cancelled(x2))
    assert await find(store, size, state="parked") == []


@pytest.mark.parametrize("size", [1, 2, 100])
async def test_scheduled_tasks_are_listed_soonest_first(store: Store, clock: ManualClock, size: int) -> None:
    far, near, other, same = await add(
        store, task(after=900_000_000), task(after=5), task("b", after=500_000, boost=9_999_999), task(after=5)
    )
    await add(store, task(expires=1))
    assert await find(store, size, state="scheduled") == [near, same, other, far]
    assert await find(store, size, state="scheduled", source="b") == [other]


@pytest.mark.parametrize("size", [1, 2, 100])
async def test_waiting_tasks_are_listed_in_the_order_of_adding(store: Store, worker: Worker, size: int) -> None:
    await worker.heartbeat()
    first, second, third = await add(
        store, waiting(("x", 1), timeout=5), waiting(("z", 1), ("y", 1)), waiting(("x", 2))
    )
    (runner,) = await add(store, task("b"))
    assert await worker.runs("b") == [runner]
    await worker.settle(worker.suspended(runner, ("y", 1)))
    assert await find(store, size, state="waiting") == [first, second, third, runner]
    assert await find(store, size, state="waiting", source="b") == [runner]
    await worker.cancel(second)
    assert await find(store, size, state="waiting") == [first, third, runner]
    assert await find(store, size, state="ready") == [second]


@pytest.mark.parametrize("size", [1, 2, 100])
async def test_ended_tasks_are_listed_last_ended_first(
    store: Store, worker: Worker, clock: ManualClock, size: int
) -> None:
    await worker.heartbeat()
    a1, a2, a3, a4 = await add(store, *tasks(4))
    (b1,) = await add(store, task("b"))
    await worker.runs("a", "b")
    for uuid in (a3, b1, a1):
        await worker.settle(worker.failed(uuid, keep=10_000 if uuid == b1 else 5_000))
        clock.advance(1)
    await worker.settle(worker.done(a2), worker.cancelled(a4))
    assert await find(store, size, state="failed") == [a1, b1, a3]
    assert await find(store, size, state="failed", source="a") == [a1, a3]
    assert await find(store, size, state="failed", source="b") == [b1]
    assert await find(store, size, state="succeeded") == [a2]
    assert await find(store, size, state="cancelled", source="b") == []
    clock.advance(4_997)
    assert await store.purge(1) == 1
    assert await find(store, size, state="failed") == [a1, b1]


@pytest.mark.parametrize("size", [1, 2, 100])
async def test_task_that_was_revived_is_listed_at_its_last_end(
    store: Store, worker: Worker, clock: ManualClock, size: int
) -> None:
    await worker.heartbeat()
    first, second = await add(store, *tasks(2))
    await worker.runs()
    await worker.settle(worker.failed(first), worker.failed(second))
    await store.revive([first])
    assert await find(store, size, state="failed") == [second]
    await worker.run_to_failure(first)  # in the same millisecond
    assert await find(store, size, state="failed") == [second, first]
    await store.revive([first])
    clock.advance(1)
    await worker.run_to_failure(first)
    assert await find(store, size, state="failed") == [first, second]


async def test_members_that_outlive_their_time_stay_in_the_list_of_ended_tasks(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    (last,) = await add(store, waiting(("c", 1), flow="last", uuid="last"))
    (early,) = await add(store, member(source="a", flow="last"))
    (other,) = await add(store, task())
    await worker.runs()
    await worker.settle(worker.done(early, keep=5))
    clock.advance(3)
    await worker.settle(worker.done(other, keep=100_000))
    clock.advance(10)
    assert await store.purge(10) == 0
    assert await find(store, state="succeeded") == [other, early]
    assert await find(store, flow="last") == [early, last]


async def test_tasks_that_must_end_come_first(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    ready, expired, cancelled = await add(store, task(), task(expires=5), task())
    clock.advance(5)
    assert await worker.chores() == {expired: "expired"}
    assert await worker.cancel(cancelled) == [cancelled]
    assert await find(store, state="ready") == [expired, cancelled, ready]
    assert await find(store, 1, state="ready") == [expired, cancelled, ready]
    await worker.settle(worker.cancelled(expired))
    assert await find(store, state="ready") == [cancelled, ready]
    await worker.crash()
    assert await find(store, state="ready") == [cancelled, ready]


async def test_lifted_tasks_are_listed(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    ready, scheduled = await add(store, task(), task(after=5))
    assert names((await store.lift(worker.name, [ready, scheduled])).tasks) == [ready, scheduled]
    assert await find(store, state="ready") == [ready]
    assert await find(store, state="scheduled") == [scheduled]
    await store.close_session(worker.name)
    assert await find(store, state="ready") == [ready]
    assert await find(store, state="scheduled") == [scheduled]


async def test_claims_between_pages_of_ready_tasks_leave_none_out(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    uuids = await add(store, *tasks(9))
    first = await store.find({"state": "ready"}, None, 3)
    assert await worker.runs(total=5) == uuids[:5]
    await add(store, *tasks(1))
    second = await store.find({"state": "ready"}, first.after, 3)
    assert names([*first.rows, *second.rows]) == [*uuids[:3], *uuids[5:8]]


async def test_task_that_was_requeued_is_not_listed_again(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    uuids = await add(store, *tasks(4))
    first = await store.find({"state": "ready"}, None, 2)
    clock.advance(1)
    assert await worker.runs(total=2) == uuids[:2]
    await worker.settle(worker.snooze(uuids[0]), worker.release(uuids[1]))
    second = await store.find({"state": "ready"}, first.after, 10)
    assert names([*first.rows, *second.rows]) == uuids
    assert await find(store, state="ready") == [*uuids[1:], uuids[0]]


async def test_ends_between_pages_of_ended_tasks_leave_none_out(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    uuids = await add(store, *tasks(6))
    await worker.runs()
    for uuid in uuids[:5]:
        await worker.settle(worker.failed(uuid))
        clock.advance(1)
    first = await store.find({"state": "failed"}, None, 2)
    await worker.settle(worker.failed(uuids[5]))
    await store.revive([uuids[4], uuids[1]])
    await worker.runs()
    await worker.settle(worker.failed(uuids[4]))
    second = await store.find({"state": "failed"}, first.after, 10)
    assert names([*first.rows, *second.rows]) == [uuids[4], uuids[3], uuids[2], uuids[0]]


async def test_scan_reports_its_extent(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (first,) = await add(store, task(tags=("x",)))
    added = floor(clock.now())
    clock.advance(10)
    await add(store, *tasks(5))
    page = await store.find({"tag": "x"}, None, 10)
    assert (names(page.rows), page.after, page.scanned, page.scanned_to) == ([first], None, 6, added)
    page = await store.find({}, None, 2)
    assert (len(page.rows), page.scanned, page.scanned_to) == (2, 2, added + 10)
    await worker.runs()
    await worker.settle(worker.failed(first))
    page = await store.find({"state": "failed"}, None, 2)
    assert (names(page.rows), page.scanned, page.scanned_to) == ([first], 1, floor(clock.now()))
    page = await store.find({"state": "cancelled"}, None, 2)
    assert (list(page.rows), page.after, page.scanned, page.scanned_to) == ([], None, 0, None)


async def test_cursor_of_other_filters_is_refused(store: Store) -> None:
    await add(store, *tasks(2))
    for cursor in ("", "7:1.2:", "x", "0:1:2", "0:a.b:"):
        with pytest.raises(ValueError, match="cursor"):
            await store.find({}, cursor, 10)
