"""Counters: every end of a task increments those of its links, once, in the step that settles it."""

from __future__ import annotations

import asyncio

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import BATCH, COUNTER_KEEP, Counter, Links, Store, Wait
from tests.contract.steps import Worker, add, look, member, names, state, states, task, value, waiting
from tests.faults import LONG, scaled

MINUTE = 60_000


async def test_counter_is_0_until_something_raises_it(store: Store) -> None:
    assert list(await store.counters(["f", "g"])) == [Counter(), Counter()]


async def test_links_are_kept(store: Store) -> None:
    links = Links("f", ("f", "g"), Wait((("x", 1), ("y", 2)), 1000, 20, "failure"))
    (uuid,) = await add(store, task(links=links))
    assert (await look(store, uuid)).links == links
    (plain,) = await add(store, task())
    assert (await look(store, plain)).links is None


@pytest.mark.parametrize("keep", [0, 60_000])
@pytest.mark.parametrize(("end", "failed"), [("done", 0), ("failed", 1), ("cancelled", 1)])
async def test_end_increments_each_counter_once(store: Store, worker: Worker, end: str, failed: int, keep: int) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, member("f", "g"))
    assert await worker.runs() == [uuid]
    assert await value(store, "f") == (0, 0)
    outcome = getattr(worker, end)(uuid, keep=keep)
    await worker.settle(outcome)
    await worker.settle(outcome)
    await worker.turn(outcomes=[outcome])
    assert await value(store, "f") == await value(store, "g") == (1, failed)


async def test_ends_of_one_call_are_added_up(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    uuids = await add(store, *(member("f", "g") for _ in range(3)), member("f"))
    assert await worker.runs() == uuids
    ends = [worker.done(uuids[0]), worker.failed(uuids[1]), worker.done(uuids[2], keep=0), worker.done(uuids[3])]
    assert await worker.settle(*ends) == ["ok"] * 4
    assert await value(store, "f") == (4, 1)
    assert await value(store, "g") == (3, 1)


async def test_requeue_suspension_close_and_crash_increment_nothing(
    store: Store, worker: Worker, other: Worker
) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    (uuid,) = await add(store, member("f"))
    for outcome in (worker.retry, worker.snooze, worker.release):
        assert await worker.runs() == [uuid]
        await worker.settle(outcome(uuid))
    assert await worker.runs() == [uuid]
    await worker.settle(worker.suspended(uuid, ("x", 0)))
    assert await worker.runs() == [uuid]
    await worker.crash()
    assert await other.runs() == [uuid]
    await store.close_session(other.name)
    assert await value(store, "f") == (0, 0)


async def test_chores_increment_when_they_are_settled(
    store: Store, worker: Worker, other: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    cancelled, expired, crashed = await add(
        store, member("f", after=MINUTE), member("f", after=MINUTE, expires=1000), member("f", max_crashes=1)
    )
    assert await other.runs() == [crashed]
    await other.crash()
    assert await worker.cancel(cancelled) == [cancelled]
    await worker.settle(worker.cancelled(cancelled))
    clock.advance(MINUTE + 1000)
    chores = await worker.chores() | await worker.chores()
    assert chores == {expired: "expired", crashed: "crashed"}
    assert await value(store, "f") == (1, 1)
    await worker.settle(worker.failed(expired), worker.failed(crashed))
    assert await value(store, "f") == (3, 3)


async def test_outcome_of_a_lost_lease_increments_nothing(store: Store, worker: Worker, other: Worker) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    (uuid,) = await add(store, member("f"))
    assert await worker.runs() == [uuid]
    await worker.crash()
    assert await other.runs() == [uuid]
    assert await worker.settle(worker.done(uuid)) == ["lost"]
    assert await value(store, "f") == (0, 0)
    assert await other.settle(other.done(uuid)) == ["ok"]
    assert await value(store, "f") == (1, 0)


async def test_spawned_members_are_stored_with_their_links(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (parent,) = await add(store, task())
    await worker.runs()
    child = member("f")
    callback = waiting(("f", 1))
    outcome = worker.done(parent, adds=[child, callback])
    await worker.settle(outcome)
    await worker.settle(outcome)
    assert await states(store, [child.uuid, callback.uuid]) == ["ready", "waiting"]
    assert await worker.runs() == [child.uuid]
    assert await worker.runs(outcomes=[worker.done(child.uuid)]) == [callback.uuid]


@pytest.mark.long
@pytest.mark.timeout(1200 if LONG else 180)
async def test_many_sessions_increment_one_counter(store: Store) -> None:
    """In the long form eight sessions, and 10,000 increments for each of them."""
    workers = [Worker(store, f"w{number}") for number in range(scaled(4, 8))]
    size = len(workers) * scaled(50, 10_000)
    page = scaled(5, 500)  # tasks that a session claims at once
    for worker in workers:
        await worker.heartbeat()
    for start in range(0, size, BATCH):
        await add(store, *(member("f") for _ in range(min(BATCH, size - start))))
    await add(store, waiting(("f", size), source="b"))

    async def work(worker: Worker) -> None:
        while uuids := await worker.runs("a", total=page):
            await worker.settle(*map(worker.done, uuids))

    await asyncio.gather(*map(work, workers))
    assert await value(store, "f") == (size, 0)
    claims = [await worker.runs("b") for worker in workers]
    assert sum(map(len, claims)) == 1


# -- revive


async def test_revived_task_lowers_its_counters(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, member("f", "g"))
    await worker.run_to_failure(uuid)
    await store.revive([uuid])
    await store.revive([uuid])
    assert await value(store, "f") == await value(store, "g") == (0, 0)
    assert await worker.runs() == [uuid]
    await worker.settle(worker.done(uuid))
    assert await value(store, "f") == (1, 0)


async def test_task_that_never_started_returns_to_its_first_wait(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    child = member("f")
    callback = waiting(("f", 1), requires="success", timeout=MINUTE)
    await add(store, child, callback)
    await worker.run_to_failure(child.uuid)
    assert await worker.chores() == {callback.uuid: "upstream"}
    await worker.settle(worker.cancelled(callback.uuid))
    clock.advance(1000)
    assert list(await store.revive([child.uuid, callback.uuid])) == [child.uuid, callback.uuid]
    record = await look(store, callback.uuid)
    assert (record.state, record.history.wait_until) == ("waiting", clock.now() + MINUTE)
    assert await worker.runs() == [child.uuid]
    assert await worker.runs(outcomes=[worker.done(child.uuid)]) == [callback.uuid]


async def test_callback_that_is_revived_alone_ends_again(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    child = member("f")
    callback = waiting(("f", 1), requires="success")
    await add(store, child, callback)
    await worker.run_to_failure(child.uuid)
    for _ in range(2):
        assert await worker.chores() == {callback.uuid: "upstream"}
        await worker.settle(worker.cancelled(callback.uuid))
        await store.revive([callback.uuid])
    await store.revive([child.uuid])
    assert await worker.chores() == {}, "no turn has seen the value that the counter had"
    assert await state(store, callback.uuid) == "waiting"


async def test_task_that_had_started_is_due_when_it_is_revived(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, waiting(("f", 0)))
    await worker.run_to_failure(uuid)
    await store.revive([uuid])
    assert await state(store, uuid) == "ready"


# -- what is left out


async def test_unique_key_does_not_replace_a_task_with_links(store: Store) -> None:
    linked = member("f", unique="k", body=b"old")
    waits = waiting(("f", 1), source="b", unique="k", body=b"old")
    await add(store, linked, waits)
    answer = await add(
        store,
        task(unique="k", on_conflict="replace", body=b"new"),
        task("b", unique="k", on_conflict="replace", body=b"new"),
    )
    assert answer == [linked.uuid, waits.uuid]
    assert [(await look(store, uuid)).body for uuid in answer] == [b"old", b"old"]


async def test_suspended_task_keeps_its_unique_key_and_its_content(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task(unique="k", body=b"old"))
    await worker.runs()
    await worker.settle(worker.suspended(uuid, ("x", 1)))
    assert await add(store, task(unique="k", on_conflict="replace", body=b"new")) == [uuid]
    assert (await look(store, uuid)).body == b"old"


async def test_tasks_with_links_or_a_wait_are_not_lifted(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    suspended, plain, linked, waits = await add(
        store, task(), task(after=MINUTE), member("f", after=MINUTE), waiting(("f", 1))
    )
    assert await worker.runs() == [suspended]
    await worker.settle(worker.suspended(suspended, ("f", 1)))
    leased = await store.lift("mover", [suspended, plain, linked, waits])
    assert names(leased.tasks) == [plain]


# -- retention


async def test_purge_keeps_members_while_their_flow_lives(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    last = waiting(("f", 2), uuid="f", flow="f")
    child = member("f", flow="f")
    running = member("f", flow="f")
    (other,) = await add(store, task())
    await add(store, child, running, last)
    assert await worker.runs() == [other, child.uuid, running.uuid]
    await worker.settle(worker.done(child.uuid, b"7", keep=1000), worker.done(other, keep=1000))
    clock.advance(1000)
    assert await store.purge(10) == 1
    assert (await look(store, child.uuid)).history.result == b"7"
    assert await worker.runs(outcomes=[worker.done(running.uuid, keep=1000)]) == [last.uuid]
    await worker.settle(worker.done(last.uuid, keep=1000))
    clock.advance(86_400_000)
    await worker.heartbeat()
    assert await store.purge(10) == 3
    assert await states(store, [child.uuid, running.uuid, last.uuid]) == [None] * 3


async def test_purge_beyond_a_number_keeps_members_while_their_flow_lives(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    child = member("f", flow="f")
    last = waiting(("f", 2), uuid="f", flow="f")
    await add(store, child, last, task())
    uuids = await worker.runs()
    for uuid in uuids:
        await worker.settle(worker.done(uuid))
    assert await store.purge(10, 0) == 1
    assert await states(store, [uuids[0], uuids[1]]) == ["succeeded", None]


async def test_purge_removes_counters_that_nothing_has_raised_for_long(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat(2 * COUNTER_KEEP)
    first = member("f")
    second = member("g")
    await add(store, first, second, waiting(("g", 2)))
    await worker.runs()
    await worker.settle(worker.done(first.uuid), worker.done(second.uuid))
    clock.advance(COUNTER_KEEP - 1)
    await store.purge(100)
    assert await value(store, "f") == (1, 0)
    clock.advance(1)
    await store.purge(100)
    assert await value(store, "f") == (0, 0)
    assert await value(store, "g") == (1, 0), "a task waits for it"


# -- reads


async def test_find_by_flow_and_by_counter(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    child = member("f", flow="f")
    last = waiting(("f", 1), ("x", 3), uuid="f", flow="f")
    single = task(uuid="g", links=Links("g"))
    (plain,) = await add(store, task())
    await add(store, child, last, single)

    async def found(**where: str) -> list[str]:
        return names((await store.find(where, None, 10)).rows)

    assert await found(flow="f") == ["f", child.uuid]
    assert await found(flow="*") == ["g", "f"]
    assert await found(flow="none") == []
    assert await found(waits_for="f") == await found(waits_for="x") == ["f"]
    assert await found(state="waiting") == ["f"]
    assert plain in await found()
    await worker.runs(outcomes=())
    await worker.settle(worker.done(child.uuid))
    await worker.runs("none")
    assert await found(waits_for="f") == []
