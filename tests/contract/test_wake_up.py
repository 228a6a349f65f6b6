"""When a worker must claim again: next_in, idle, woken, more. It neither polls nor comes too late."""

from __future__ import annotations

from math import floor

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import FireRequest, Schedule, Store
from tests.contract.steps import LEASE, Worker, add, limit, state, states, task, tasks


async def test_next_in_is_the_next_due_time_with_fractions(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await add(store, task(after=5000), task("b", after=1000))
    clock.advance(0.25)
    assert (await worker.claim()).next_in == pytest.approx(999.75)


async def test_task_is_claimed_at_next_in(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    clock.advance(0.25)
    (uuid,) = await add(store, task(after=100))
    wait = (await worker.claim()).next_in
    assert wait is not None
    clock.advance(wait)
    assert await worker.runs() == [uuid]


async def test_next_in_includes_the_end_of_a_lease(
    store: Store, worker: Worker, other: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    assert (await worker.claim()).next_in == LEASE
    await other.heartbeat(5000)
    clock.advance(1000)
    assert (await worker.claim()).next_in == pytest.approx(4000)
    await store.close_session(other.name)
    assert (await worker.claim()).next_in == LEASE - 1000


async def test_next_in_includes_an_expiry(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=0)
    await add(store, task("b", expires=700), task(lane="a/k", expires=600))
    clock.advance(100)
    assert (await worker.claim("a")).next_in == pytest.approx(500)
    clock.advance(500)
    await worker.claim("a")
    assert (await worker.claim("a")).next_in == pytest.approx(100)


async def test_claimed_task_has_no_alarm(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await add(store, task(expires=100))
    await worker.runs()
    assert (await worker.claim()).next_in == LEASE


async def test_next_in_includes_a_schedule(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    now = floor(clock.now())
    await store.put_schedules([Schedule("s", b"", "v", now + 800)])
    assert (await worker.claim()).next_in == pytest.approx(800)
    (schedule,) = await store.schedules()
    await store.fire([FireRequest("s", schedule.rev, (), now + 9000)])
    assert (await worker.claim()).next_in == pytest.approx(9000)


async def test_next_in_includes_the_refill_of_a_lane(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", rate=2.0, burst=1)
    first, second = await add(store, *tasks(2, lane="a/k"))
    claimed = await worker.claim()
    assert [record.uuid for record in claimed.tasks] == [first]
    assert claimed.next_in == pytest.approx(500)
    clock.advance(claimed.next_in or 0)
    assert await worker.runs() == [second]


@pytest.mark.parametrize("rate", [0.3, 3.0, 7.0, 1000 / 7])
async def test_lane_has_capacity_at_its_refill_time(
    store: Store, worker: Worker, clock: ManualClock, rate: float
) -> None:
    """In spite of rounding, a task can be claimed at the returned time."""
    await worker.heartbeat()
    await limit(store, "a/*", rate=rate, burst=1)
    await limit(store, "b", rate=rate, burst=1)
    await add(store, *tasks(20, lane="a/k"), *tasks(20, "b"))
    for source in ("a", "b"):
        await worker.runs(source)
        for _ in range(9):
            wait = (await worker.claim(source)).next_in
            assert wait is not None
            clock.advance(wait)
            assert len(await worker.runs(source)) == 1


async def test_idle_source_with_a_rate_has_a_time(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a", rate=2.0, burst=1)
    _, second = await add(store, *tasks(2))
    await worker.runs()
    clock.advance(100)
    claimed = await worker.claim()
    assert claimed.next_in == pytest.approx(400)
    assert claimed.idle["a"] == pytest.approx(400)
    again = await worker.claim(repeat=True)
    assert again.next_in == pytest.approx(400)
    clock.advance(400)
    assert await worker.runs() == [second]


async def test_sources_without_ready_tasks_are_idle(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "paused", paused=True)
    await limit(store, "full", cap=1)
    await add(store, task("paused"), *tasks(2, "full"), *tasks(2, "busy"))
    claimed = await worker.claim(room={"idle": 1, "paused": 1, "full": 1, "busy": 1}, total=10)
    assert {record.source for record in claimed.tasks} == {"full", "busy"}
    assert dict(claimed.idle) == {"idle": None, "paused": None, "full": None}


async def test_source_with_unclaimed_tasks_is_not_idle(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await add(store, *tasks(2, "a"), *tasks(2, "b"))
    assert dict((await worker.claim("a", "b", total=1)).idle) == {}


async def test_promoted_task_wakes_its_source(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await add(store, task("a", after=10), task("b", after=10), task("c", after=20))
    assert not (await worker.claim("a")).woken
    clock.advance(10)
    assert {"a", "b"} <= (await worker.claim("a")).woken
    assert "c" not in (await worker.claim("a")).woken


async def test_released_capacity_wakes_its_source(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "b", cap=1)
    await limit(store, "@shared", cap=1)
    b1, _ = await add(store, *tasks(2, "b"))
    c1, _ = await add(store, task("c", lane="@shared"), task("d", lane="@shared"))
    await worker.runs("b", "c", "d")
    claimed = await worker.claim("a", outcomes=[worker.done(b1), worker.done(c1)])
    assert {"b", "d"} <= claimed.woken


async def test_released_suspect_wakes_the_next(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    first, second = await add(store, task("a", max_crashes=1), task("b", max_crashes=1))
    claimed = await worker.claim("a", "b", suspects=1)
    assert "b" in claimed.idle
    claimed = await worker.claim("a", suspects=1, outcomes=[worker.done(first)])
    assert "b" in claimed.woken
    assert await worker.runs("b", suspects=1) == [second]


async def test_crash_wakes_its_source(store: Store, worker: Worker, other: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await other.heartbeat(1000)
    (uuid,) = await add(store, task("b"))
    assert await other.runs("b") == [uuid]
    clock.advance(1000)
    assert "b" in (await worker.claim("a")).woken
    assert await state(store, uuid) == "ready"


async def test_claim_that_took_everything_has_no_more(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await add(store, *tasks(5))
    assert not (await worker.claim(total=2)).more


async def test_full_cap_sets_no_alarm(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    await limit(store, "a", cap=1)
    uuids = await add(store, *tasks(3, lane="a/k"))
    await worker.runs()
    assert (await worker.claim()).next_in == LEASE
    assert await states(store, uuids) == ["running", "parked", "parked"]
