"""revive: a failed or cancelled task is due now, with its attempts kept and new retries."""

from __future__ import annotations

from math import floor

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Store
from tests.contract.steps import Worker, add, limit, look, state, task


@pytest.mark.parametrize("how", ["failed", "cancelled"])
async def test_revived_task_runs_with_the_next_attempt(
    store: Store, worker: Worker, clock: ManualClock, how: str
) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    await worker.settle(worker.retry(uuid))
    await worker.runs()
    await worker.settle(getattr(worker, how)(uuid))
    clock.advance(5000)
    assert list(await store.revive([uuid])) == [uuid]
    record = await look(store, uuid)
    history = record.history
    assert (record.state, record.due, record.attempt) == ("ready", floor(clock.now()), 3)
    assert (history.earlier, history.retries, history.crashes, history.cancel_requested) == (2, 0, 0, False)
    assert (history.ended, history.keep_until, history.result) == (None, None, None)
    assert await worker.runs() == [uuid]


async def test_attempts_grow_over_revives(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    for attempt in range(1, 4):
        (record,) = (await worker.claim()).tasks
        assert record.attempt == attempt
        await worker.settle(worker.failed(uuid))
        await store.revive([uuid])


async def test_only_a_revive_is_counted_as_one(store: Store, worker: Worker) -> None:
    """Ids of what a task makes derive from it: they stay the same through retries, crashes and suspensions."""
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    for revives in range(3):
        await worker.runs()
        await worker.settle(worker.retry(uuid, reset_crashes=True))
        dies = Worker(store, f"dies {revives}")
        await dies.heartbeat()
        await dies.runs()
        await dies.crash()
        assert await worker.runs() == [uuid]
        await worker.settle(worker.suspended(uuid, ("f", 0)))
        (record,) = (await worker.claim()).tasks
        assert record.history.revives == (await look(store, uuid)).history.revives == revives
        await worker.settle(worker.failed(uuid))
        assert (await look(store, uuid)).history.revives == revives
        await store.revive([uuid])


async def test_revive_resets_the_crashes(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    (uuid,) = await add(store, task(max_crashes=1))
    await worker.runs()
    await worker.crash()
    assert await other.chores() == {uuid: "crashed"}
    await other.settle(other.failed(uuid))
    await store.revive([uuid])
    assert await other.runs() == [uuid]
    assert (await look(store, uuid)).history.crashes == 0


async def test_revive_clears_the_cancel_request(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(after=1000))
    await worker.cancel(uuid)
    await worker.settle(worker.cancelled(uuid))
    await store.revive([uuid])
    assert await worker.runs() == [uuid]
    assert await worker.settle(worker.retry(uuid)) == ["ok"]
    assert await worker.runs() == [uuid]


async def test_second_revive_returns_the_same_answer(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.run_to_failure(uuid)
    assert list(await store.revive([uuid])) == [uuid]
    before = await look(store, uuid)
    assert list(await store.revive([uuid])) == [uuid]
    assert await look(store, uuid) == before


async def test_succeeded_and_unknown_tasks_are_not_revived(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.runs()
    await worker.settle(worker.done(uuid))
    assert list(await store.revive([uuid, "nobody"])) == []
    assert await state(store, uuid) == "succeeded"


async def test_revived_task_with_a_lane_waits_for_its_alarm(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    (uuid,) = await add(store, task(lane="a/k"))
    await worker.run_to_failure(uuid)
    (busy,) = await add(store, task(lane="a/k"))
    assert await worker.runs() == [busy]
    await store.revive([uuid])
    assert await state(store, uuid) == "scheduled"
    assert await worker.runs() == []
    await worker.settle(worker.done(busy))
    assert await worker.runs() == [uuid]


async def test_revived_task_takes_its_unique_key_again(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k"))
    await worker.run_to_failure(uuid)
    await store.revive([uuid])
    assert await add(store, task(unique="k")) == [uuid]


async def test_task_is_not_revived_if_another_has_its_unique_key(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k"))
    await worker.run_to_failure(uuid)
    (other,) = await add(store, task(unique="k"))
    before = await look(store, uuid)
    assert list(await store.revive([uuid])) == []
    assert await look(store, uuid) == before
    await worker.runs()
    await worker.settle(worker.done(other))
    assert list(await store.revive([uuid])) == [uuid]


async def test_only_the_first_of_two_tasks_with_one_key_is_revived(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    first = task(unique="k")
    second = task(unique="k")
    for new in (first, second):
        await add(store, new)
        await worker.run_to_failure(new.uuid)
    assert list(await store.revive([first.uuid, second.uuid])) == [first.uuid]


async def test_old_lease_does_not_end_a_revived_task(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.run_to_failure(uuid)
    await store.revive([uuid])
    assert await worker.settle(worker.failed(uuid)) == ["repeat"]
    assert await state(store, uuid) == "ready"


async def test_purge_keeps_a_revived_task(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(after=0))
    await worker.runs()
    await worker.settle(worker.failed(uuid, keep=1000))
    await store.revive([uuid])
    clock.advance(1000)
    assert await store.purge(10, 0) == 0
    assert await state(store, uuid) == "ready"
