"""schedules: compare-and-set on rev, so that each window fires once in the cluster, without a leader."""

from __future__ import annotations

from math import floor

from msgspec.structs import replace

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import FireRequest, Limit, Schedule, Store
from tests.contract.steps import Worker, look, state, task


async def stored(store: Store, name: str = "nightly") -> Schedule:
    (schedule,) = [schedule for schedule in (await store.schedules()) if schedule.name == name]
    return schedule


async def declare(store: Store, next_at: int | None, rule: bytes = b"rule", declared: str = "v1") -> Schedule:
    assert len(await store.put_schedules([Schedule("nightly", rule, declared, next_at)])) == 1
    return await stored(store)


async def test_new_schedule_is_stored(store: Store) -> None:
    schedule = await declare(store, 5000)
    assert schedule.rev > 0
    assert replace(schedule, rev=0) == Schedule("nightly", b"rule", "v1", 5000)


async def test_same_definition_changes_nothing(store: Store) -> None:
    before = await declare(store, 5000)
    assert await declare(store, 9999, rule=b"other") == before


async def test_changed_definition_replaces_rule_and_next_time(store: Store) -> None:
    before = await declare(store, 5000)
    await store.put_schedules([replace(before, paused=True, runs=7, last_at=4000)])
    paused = await stored(store)
    after = await declare(store, 9999, b"other", "v2")
    assert (after.rule, after.definition_digest, after.next_at) == (b"other", "v2", 9999)
    assert (after.paused, after.runs, after.last_at) == (True, 7, 4000)
    assert before.rev < paused.rev < after.rev


async def test_schedule_of_data_is_always_replaced(store: Store) -> None:
    await declare(store, 5000, declared="")
    after = await declare(store, 9999, b"other", declared="")
    assert (after.rule, after.next_at) == (b"other", 9999)


async def test_compare_and_set_replaces_the_whole_schedule(store: Store) -> None:
    before = await declare(store, 5000)
    wanted = replace(before, rule=b"new", next_at=None, paused=True, last_at=1, runs=2, definition_digest="v9")
    assert list(await store.put_schedules([wanted])) == [True]
    after = await stored(store)
    assert after.rev > before.rev
    assert replace(after, rev=before.rev) == wanted
    assert list(await store.put_schedules([wanted])) == [False]
    assert await stored(store) == after


async def test_compare_and_set_of_a_missing_schedule_is_refused(store: Store) -> None:
    assert list(await store.put_schedules([Schedule("ghost", b"", "", None, rev=3)])) == [False]
    assert list(await store.schedules()) == []


async def test_put_schedules_answers_for_each(store: Store) -> None:
    await declare(store, 5000)
    right = await stored(store)
    wrong = replace(await stored(store), rev=99)
    assert list(await store.put_schedules([wrong, right])) == [False, True]


async def test_schedule_that_is_incoming_stays_so(store: Store) -> None:
    await store.put_schedules([Schedule("s", b"rule", "", None, paused=True, incoming=True)])
    (schedule,) = await store.schedules()
    assert schedule.incoming
    assert list(await store.put_schedules([replace(schedule, incoming=False)])) == [True]
    assert [each.incoming for each in await store.schedules()] == [False]


async def test_limit_is_stored_with_every_field(store: Store) -> None:
    limits = [
        Limit("a", 2, 1.5, 3.0, True, "deploy ü", "operator", paused_since=1_700_000_000_000),
        Limit("a", lane_rule=b'{"by":"customer"}'),
    ]
    await store.put_limits(limits)
    assert {limit.owner: limit for limit in await store.limits()} == {limit.owner: limit for limit in limits}


async def test_claim_returns_due_schedules(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    schedule = await declare(store, floor(clock.now()) + 1000)
    clock.advance(999)
    assert list((await worker.claim()).schedules) == []
    clock.advance(1)
    assert list((await worker.claim(total=0)).schedules) == [schedule]


async def test_due_schedule_is_returned_until_it_is_fired(
    store: Store, worker: Worker, other: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    due = floor(clock.now())
    schedule = await declare(store, due)
    assert list((await worker.claim()).schedules) == list((await other.claim()).schedules) == [schedule]
    fire = FireRequest("nightly", schedule.rev, (task(uuid="w1"),), due + 1000, due)
    assert list(await store.fire([fire])) == [True]
    assert list((await worker.claim("b")).schedules) == []
    after = await stored(store)
    assert (after.next_at, after.last_at, after.runs) == (due + 1000, due, 1)
    assert after.rev > schedule.rev
    assert await worker.runs() == ["w1"]


async def test_only_one_of_two_fires_succeeds(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    due = floor(clock.now())
    schedule = await declare(store, due)
    fires = [FireRequest("nightly", schedule.rev, (task(uuid=name),), due + 1000, due) for name in ("x", "y")]
    assert list(await store.fire([fires[0]])) == [True]
    assert list(await store.fire([fires[1]])) == [False]
    assert list(await store.fire([fires[0]])) == [False]
    assert await worker.runs() == ["x"]
    assert (await stored(store)).runs == 1


async def test_fire_is_refused_for_a_wrong_name_or_rev_and_while_paused(store: Store, clock: ManualClock) -> None:
    due = floor(clock.now())
    schedule = await declare(store, due)
    right = FireRequest("nightly", schedule.rev, (task(uuid="x"),), due + 1000)
    assert list(await store.fire([replace(right, name="ghost"), replace(right, rev=schedule.rev + 1)])) == [False] * 2
    await store.put_schedules([replace(schedule, paused=True)])
    paused = await stored(store)
    assert list(await store.fire([right, replace(right, rev=paused.rev)])) == [False] * 2
    assert list(await store.get(["x"])) == [None]
    assert await stored(store) == paused


async def test_edit_between_claim_and_fire_refuses_the_fire(store: Store, worker: Worker, clock: ManualClock) -> None:
    """A fire that was decided by the old rule is refused, whether the new one was declared or set."""
    await worker.heartbeat()
    due = floor(clock.now())
    await declare(store, due)
    for edit in (Schedule("nightly", b"new", "v2", due), None):
        (seen,) = (await worker.claim()).schedules
        await store.put_schedules([edit or replace(seen, rule=b"newer")])
        assert list(await store.fire([FireRequest("nightly", seen.rev, (task(uuid="x"),), due + 1000, due)])) == [False]
    assert list(await store.get(["x"])) == [None]
    after = await stored(store)
    assert (after.rule, after.next_at, after.last_at, after.runs) == (b"newer", due, None, 0)


async def test_edit_that_was_read_before_a_fire_is_refused(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    due = floor(clock.now())
    seen = await declare(store, due)
    assert list(await store.fire([FireRequest("nightly", seen.rev, (task(uuid="x"),), due + 1000, due)])) == [True]
    assert list(await store.put_schedules([replace(seen, paused=True)])) == [False]
    after = await stored(store)
    assert (after.paused, after.next_at, after.runs) == (False, due + 1000, 1)


async def test_claim_returns_the_time_of_the_store(store: Store, worker: Worker, clock: ManualClock) -> None:
    """Windows are compared with it."""
    await worker.heartbeat()
    clock.advance(1234)
    assert (await worker.claim()).now == clock.now()
    assert (await worker.claim(repeat=True)).now == clock.now()


async def test_paused_schedule_is_not_returned(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    schedule = await declare(store, floor(clock.now()))
    await store.put_schedules([replace(schedule, paused=True)])
    assert list((await worker.claim()).schedules) == []
    await store.put_schedules([replace(await stored(store), paused=False)])
    assert len((await worker.claim()).schedules) == 1


async def test_fire_without_tasks_skips_a_window(store: Store, clock: ManualClock) -> None:
    due = floor(clock.now())
    schedule = await declare(store, due)
    assert list(await store.fire([FireRequest("nightly", schedule.rev, (), due + 1000)])) == [True]
    after = await stored(store)
    assert (after.next_at, after.last_at, after.runs) == (due + 1000, None, 0)


async def test_schedule_without_a_next_time_is_not_returned(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    due = floor(clock.now())
    schedule = await declare(store, due)
    await store.fire([FireRequest("nightly", schedule.rev, (task(uuid="x"),), None, due)])
    clock.advance(1_000_000)
    assert list((await worker.claim()).schedules) == []
    assert (await stored(store)).next_at is None


async def test_fire_adds_tasks_like_add(store: Store, clock: ManualClock) -> None:
    due = floor(clock.now())
    schedule = await declare(store, due)
    await store.add([task(uuid="x", body=b"first")])
    new = (task(uuid="x", body=b"second"), task(uuid="y", after=1000), task(uuid="z", lane="a/k"))
    assert list(await store.fire([FireRequest("nightly", schedule.rev, new, due + 1000, due)])) == [True]
    assert (await look(store, "x")).body == b"first"
    assert [await state(store, uuid) for uuid in "xyz"] == ["ready", "scheduled", "scheduled"]


async def test_deleted_schedule_is_gone(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    schedule = await declare(store, floor(clock.now()))
    await store.delete_schedules(["nightly", "ghost"])
    assert list(await store.schedules()) == []
    assert list((await worker.claim()).schedules) == []
    assert list(await store.fire([FireRequest("nightly", schedule.rev, (task(),), None)])) == [False]
    await store.delete_schedules(["nightly"])
