"""add: inserts only, in order; a uuid is stored once."""

from __future__ import annotations

from math import ceil, floor

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import BATCH, NO_HISTORY, RECENT_MS, Added, DeadlinePassed, NewTask, Policy, Store
from tests.contract.steps import Worker, add, look, state, states, task, tasks


async def test_due_task_without_a_lane_is_ready_at_once(store: Store) -> None:
    (uuid,) = await add(store, task())
    assert await state(store, uuid) == "ready"


async def test_task_due_later_is_scheduled(store: Store, clock: ManualClock) -> None:
    later, soon = await add(store, task(at=floor(clock.now()) + 1), task(after=1))
    assert await states(store, [later, soon]) == ["scheduled", "scheduled"]


async def test_due_task_with_a_lane_waits_for_its_alarm(store: Store) -> None:
    (uuid,) = await add(store, task(lane="a/k"))
    assert await state(store, uuid) == "scheduled"


async def test_due_time_in_the_past_is_kept(store: Store, clock: ManualClock) -> None:
    at = floor(clock.now()) - 5000
    (uuid,) = await add(store, task(at=at))
    record = await look(store, uuid)
    assert (record.due, record.state) == (at, "ready")


async def test_due_times_are_rounded_up_and_adding_times_down(store: Store, clock: ManualClock) -> None:
    clock.advance(0.25)
    now = clock.now()
    (uuid,) = await add(store, task(after=10))
    record = await look(store, uuid)
    assert (record.due, record.added) == (ceil(now + 10), floor(now))


async def test_task_for_now_is_due_at_once(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    clock.advance(0.25)
    (uuid,) = await add(store, task())
    assert (await look(store, uuid)).due == floor(clock.now())
    assert await worker.runs() == [uuid]


async def test_record_has_every_field_of_the_new_task(store: Store, clock: ManualClock) -> None:
    policy = Policy(
        priority=7,
        boost=420_000,
        cost=2.5,
        on_conflict="replace",
        unique_for=9,
        expires=8,
        max_crashes=4,
        tags=("x", "ü"),
        reply_to="w9",
    )
    body = bytes(range(256))
    await store.add([NewTask("u1", "a", body, at=floor(clock.now()) + 77, lane="a/ü", unique="k:1", policy=policy)])
    record = await look(store, "u1")
    assert (record.uuid, record.source, record.body, record.policy) == ("u1", "a", body, policy)
    assert (record.lane, record.unique, record.due) == ("a/ü", "k:1", floor(clock.now()) + 77)
    assert record.history == NO_HISTORY
    assert (record.attempt, record.rank) == (1, record.due - 420_000)


async def test_seq_grows_by_one_for_every_new_task(store: Store) -> None:
    first = task()
    again = task()
    second = task(unique="k")
    await store.add([first, again])
    await store.add([first])
    await store.add([second, task(unique="k")])
    await store.add([task(uuid="last")])
    records = [await look(store, uuid) for uuid in (first.uuid, again.uuid, second.uuid, "last")]
    assert [record.seq - records[0].seq for record in records] == [0, 1, 2, 3]


async def test_second_add_of_a_uuid_changes_nothing(store: Store) -> None:
    assert list(await store.add([task(uuid="u", body=b"1", priority=3)])) == [Added("u", fresh=True)]
    before = await look(store, "u")
    assert list(await store.add([task(uuid="u", body=b"2", source="b", after=5000)])) == [Added("u", fresh=False)]
    assert await look(store, "u") == before


async def test_uuid_twice_in_one_call_is_stored_once(store: Store) -> None:
    answers = await store.add([task(uuid="u", body=b"1"), task(uuid="u", body=b"2")])
    assert list(answers) == [Added("u", fresh=True), Added("u", fresh=False)]
    assert (await look(store, "u")).body == b"1"


async def test_uuid_of_an_ended_task_is_not_added_again(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    (uuid,) = await add(store, task())
    await worker.run_to_failure(uuid)
    assert list(await store.add([task(uuid=uuid)])) == [Added(uuid, fresh=False)]
    assert await state(store, uuid) == "failed"


async def test_add_of_several_tasks_can_be_repeated(store: Store) -> None:
    new = [task(), task(after=50), task(lane="a/k"), task(unique="k"), task(unique="k")]
    first = await store.add(new)
    before = await store.get([added.uuid for added in first])
    again = await store.add(new)
    assert [added.uuid for added in again] == [added.uuid for added in first]
    assert not any(added.fresh for added in again)
    assert list(await store.get([added.uuid for added in first])) == list(before)


async def test_add_of_no_task_returns_nothing(store: Store) -> None:
    assert list(await store.add([])) == []


async def test_add_of_a_full_batch_keeps_the_order(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    new = tasks(BATCH)
    answers = await store.add(new)
    assert [added.uuid for added in answers] == [one.uuid for one in new]
    assert await worker.runs(total=BATCH) == [one.uuid for one in new]


async def test_batch_of_equal_tasks_is_due_later(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    new = tasks(1200, after=50, boost=7)  # a store may group tasks by the thousand
    assert all(added.fresh for added in await store.add(new))
    assert (await store.tally())["a", "scheduled"] == 1200
    record = await look(store, new[-1].uuid)
    assert (record.due, record.rank, record.state) == (clock.now() + 50, clock.now() + 43, "scheduled")
    clock.advance(50)
    await worker.runs(total=0)
    assert await worker.runs(total=BATCH) == [one.uuid for one in new[:BATCH]]


async def test_equal_tasks_keep_their_different_uuids(store: Store, worker: Worker) -> None:
    """Uuids of the same length, longer, with other letters or only spaces are kept."""
    await worker.heartbeat()
    names = ["a1", "b2", "ü2", "c", "d" * 31, "e" * 32, " " * 32, "f" * 200]
    for chosen in (names, names[:2], names[2:3], names[4:5], names[6:7], names[7:]):
        fresh = [f"{len(chosen)}{name}" if chosen is names else name for name in chosen]
        assert await add(store, *(task(uuid=name, body=name.encode()) for name in fresh)) == fresh
        for name in fresh:
            record = await look(store, name)
            assert (record.uuid, record.body) == (name, name.encode())
        assert await worker.runs(total=BATCH) == fresh


async def test_batch_with_known_uuids_adds_only_the_new_ones(store: Store) -> None:
    old = tasks(3, body=b"1")
    await store.add(old)
    new = [task(body=b"2"), task(uuid=old[1].uuid, body=b"2"), task(body=b"3")]
    assert [added.fresh for added in await store.add(new)] == [True, False, True]
    records = [await look(store, one.uuid) for one in (*old, new[0], new[2])]
    assert [record.body for record in records] == [b"1", b"1", b"1", b"2", b"3"]
    assert [record.seq - records[0].seq for record in records] == [0, 1, 2, 3, 4]


async def test_add_after_its_deadline_is_refused(store: Store, clock: ManualClock) -> None:
    deadline = clock.now() + 4000
    early = task()
    late = task()
    assert (await store.add([early], deadline))[0].fresh
    clock.advance(4001)
    with pytest.raises(DeadlinePassed) as refused:
        await store.add([late], deadline)
    assert refused.value.now == pytest.approx(clock.now(), abs=1)
    assert refused.value.stored is False
    assert await states(store, [early.uuid, late.uuid]) == ["ready", None]
    assert (await store.add([late], clock.now() + 4000))[0].fresh


async def test_earliest_now_is_not_after_the_store_s_time(store: Store, clock: ManualClock) -> None:
    (uuid,) = await add(store, task())
    clock.advance(5000)
    assert (await look(store, uuid)).added <= store.earliest_now() <= clock.now()
    (later,) = await add(store, task())
    assert store.earliest_now() == pytest.approx((await look(store, later)).added, abs=1)


async def test_repeated_add_of_an_ended_task_without_retention_is_not_fresh(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    plain = task()
    unique = task(unique="k")
    await add(store, plain, unique)
    assert await worker.runs() == [plain.uuid, unique.uuid]
    await worker.settle(worker.done(plain.uuid, keep=0), worker.failed(unique.uuid, keep=0))
    clock.advance(RECENT_MS - 1)
    await store.purge(100)
    again = await store.add([plain, unique, task(uuid="other", unique="k")])
    assert [(added.uuid, added.fresh) for added in again] == [
        (plain.uuid, False),
        (unique.uuid, False),
        ("other", True),
    ]
    assert await worker.runs() == ["other"]
    assert await states(store, [plain.uuid, unique.uuid]) == [None, None]


async def test_uuid_without_retention_is_free_after_a_while(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    new = task()
    await add(store, new)
    assert await worker.runs() == [new.uuid]
    await worker.settle(worker.done(new.uuid, keep=0))
    clock.advance(RECENT_MS)
    assert (await store.add([new]))[0].fresh
    await store.purge(100)
    assert await worker.runs() == [new.uuid]
