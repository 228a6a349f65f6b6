"""Inspect: get, tally, limits."""

from __future__ import annotations

from math import floor

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Limit, Store
from tests.contract.invariants import every
from tests.contract.steps import Worker, add, limit, look, task, tasks


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
