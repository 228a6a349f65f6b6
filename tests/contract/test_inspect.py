"""Inspect: get, find by pages, tally, limits."""

from __future__ import annotations

from math import floor

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Limit, Store
from tests.contract.invariants import every
from tests.contract.steps import Worker, add, limit, look, names, task, tasks


async def test_get_returns_records_in_the_requested_order(store: Store) -> None:
    first, second = await add(store, *tasks(2))
    found = await store.get([second, "ghost", first, second])
    assert [record and record.uuid for record in found] == [second, None, first, second]


async def test_running_task_is_reported_as_running(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    clock.advance(12.5)
    await worker.runs()
    record = await look(store, uuid)
    assert record.state == "running"
    assert (record.history.session, record.history.started) == (worker.name, floor(clock.now()))


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
        ("uuid", "b1"): ["b1", "ab1"],  # all of the one, and the end of the other
        ("uuid", "1"): ["c1", "b1", "ab1", "aa1"],
        ("source", "b"): ["b1", "ab1"],
        ("state", "ready"): ["ab1", "aa1"],
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
        for part in (uuid[:length], uuid[-length:]):
            found = names(await every(store, {"uuid": part}))
            assert uuid in found
            assert all(each.startswith(part) or each.endswith(part) for each in found)
    assert names(await every(store, {"uuid": uuid[1:-1]})) == []


async def test_filtered_pages_continue(store: Store) -> None:
    await add(store, *(task("ab"[number % 2]) for number in range(40)))
    rows = await every(store, {"source": "b"}, limit=3)
    assert len(rows) == 20
    assert {row.source for row in rows} == {"b"}


async def test_tally_counts_tasks_by_source_and_state(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    a1, a2, *_ = await add(store, *tasks(3), *tasks(2, lane="a/k"), *tasks(2, "b", after=9))
    await worker.runs("a", total=2)
    await worker.settle(worker.done(a1), worker.failed(a2))
    tally = {key: number for key, number in (await store.tally()).items() if number}
    assert tally == {
        ("a", "succeeded"): 1,
        ("a", "failed"): 1,
        ("a", "ready"): 2,
        ("a", "parked"): 1,
        ("b", "scheduled"): 2,
    }


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


async def test_limits_of_code_and_operator_are_separate(store: Store) -> None:
    code = Limit("a", cap=3, rate=1.5, burst=4)
    operator = Limit("a", cap=1, paused=True, reason="deploy", owner="operator")
    star = Limit("a/*", cap=2)
    await store.put_limits([code, operator, star])
    limits = await store.limits()
    assert len(limits) == 3
    assert all(each in limits for each in (code, operator, star))
    changed = Limit("a", cap=9)
    await store.put_limits([changed])
    limits = await store.limits()
    assert changed in limits
    assert operator in limits
    assert code not in limits


@pytest.mark.parametrize("number", [0, 1, 7])
async def test_reads_change_nothing(store: Store, worker: Worker, number: int) -> None:
    await worker.heartbeat()
    uuids = await add(store, *tasks(number))
    before = await store.get(uuids)
    for _ in range(2):
        await every(store)
        await store.tally()
        await store.schedules()
        await store.notes("ghost", 0, 1)
    assert list(await store.get(uuids)) == list(before)
    assert await worker.runs() == uuids
