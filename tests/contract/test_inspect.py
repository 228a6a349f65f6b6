"""Inspect: get, tally, limits."""

from __future__ import annotations

from math import floor

import pytest

from onthedot.clock.durations import HOUR
from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import BATCH, Limit, Store
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


async def test_results_are_those_of_succeeded_tasks(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    done, empty, failed, retried, running, pending = await add(store, *tasks(6))
    await worker.runs(total=5)
    await worker.settle(
        worker.done(done, b"7"), worker.done(empty), worker.failed(failed, b"{}"), worker.retry(retried, 9)
    )
    uuids = [done, "ghost", failed, empty, retried, running, pending, done]
    assert list(await store.results(uuids)) == [b"7", None, None, b"", None, None, None, b"7"]
    assert list(await store.results([])) == []


async def test_results_have_the_result_of_the_last_run(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.run_to_failure(uuid)
    assert list(await store.results([uuid])) == [None]
    await store.revive([uuid])
    assert list(await store.results([uuid])) == [None]
    await worker.runs()
    await worker.settle(worker.done(uuid, b"8"))
    assert list(await store.results([uuid])) == [b"8"]


async def test_results_end_with_their_time(store: Store, worker: Worker, clock: ManualClock) -> None:
    """keep_result ends the result before its record."""
    await worker.heartbeat()
    uuids = await add(store, *tasks(2))
    await worker.runs()
    short, long = uuids
    await worker.settle(
        worker.done(short, b"9", keep=HOUR, keep_result=10), worker.done(long, b"9", keep=HOUR, keep_result=HOUR)
    )
    assert list(await store.results(uuids)) == [b"9", b"9"]
    clock.advance(11)
    assert list(await store.results(uuids)) == [None, b"9"]
    await store.purge(100)
    assert list(await store.results(uuids)) == [None, b"9"]
    clock.advance(HOUR)
    await store.purge(100)
    assert list(await store.results(uuids)) == [None, None]


async def test_results_of_more_than_a_batch(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    uuids = await add(store, *tasks(BATCH)) + await add(store, task())
    for _ in range(2):
        await worker.settle(*(worker.done(uuid, uuid.encode()) for uuid in await worker.runs()))
    assert list(await store.results(uuids)) == [uuid.encode() for uuid in uuids]


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
        await store.results(uuids)
    assert list(await store.get(uuids)) == list(before)
    assert await worker.runs() == uuids
