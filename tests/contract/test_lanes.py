"""lanes: never more leases than the cap, never more starts than burst + rate × time; other tasks are parked."""

from __future__ import annotations

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Store
from tests.contract.steps import Worker, add, limit, names, states, task, tasks


async def test_lane_without_a_limit_has_capacity(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    uuids = await add(store, *tasks(5, lane="a/k"))
    assert await worker.runs() == uuids


@pytest.mark.parametrize("name", ["a/*", "a/k"])
async def test_lane_cap_is_never_exceeded(store: Store, worker: Worker, other: Worker, name: str) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    await limit(store, name, cap=2)
    uuids = await add(store, *tasks(5, lane="a/k"))
    assert await worker.runs(total=1) == uuids[:1]
    assert await other.runs() == uuids[1:2]
    assert await worker.runs() == []
    assert await states(store, uuids) == ["running", "running", "parked", "parked", "parked"]


@pytest.mark.parametrize("how", ["done", "failed", "cancelled", "retry", "snooze"])
async def test_every_outcome_admits_the_next_task(store: Store, worker: Worker, clock: ManualClock, how: str) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    first, second = await add(store, *tasks(2, lane="a/k"))
    assert await worker.runs() == [first]
    options = {"after": 1000} if how in ("retry", "snooze") else {}
    assert await worker.settle(getattr(worker, how)(first, **options)) == ["ok"]
    assert await states(store, [second]) == ["ready"]
    assert await worker.runs() == [second]


async def test_lane_admits_no_more_than_its_capacity(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=2, rate=1.0, burst=3)
    uuids = await add(store, *tasks(6, lane="a/k"))
    assert await worker.runs() == uuids[:2]
    await worker.settle(worker.done(uuids[0]), worker.done(uuids[1]))
    assert await states(store, uuids[2:]) == ["ready", "parked", "parked", "parked"]


@pytest.mark.parametrize("how", ["death", "close", "lapse"])
async def test_lane_capacity_never_leaks(
    store: Store, worker: Worker, other: Worker, clock: ManualClock, how: str
) -> None:
    await other.heartbeat()
    await worker.heartbeat(5000)
    await limit(store, "a/*", cap=2)
    uuids = await add(store, *tasks(4, lane="a/k", max_crashes=9))
    assert await worker.runs() == uuids[:2]
    clock.advance(5000)
    if how != "lapse":
        await (worker.crash() if how == "death" else store.close_session(worker.name))
    assert await other.runs() == uuids[:2]


async def test_parked_tasks_are_admitted_by_rank(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    first, plain, boosted = await add(store, *tasks(2, lane="a/k"), task(lane="a/k", boost=5000))
    order = []
    for _ in range(3):
        (uuid,) = await worker.runs()
        order.append(uuid)
        await worker.settle(worker.done(uuid))
    assert order[-1] == plain
    assert set(order) == {first, plain, boosted}


async def test_released_task_is_first_in_its_lane_again(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    first, second = await add(store, *tasks(2, lane="a/k"))
    assert await worker.runs() == [first]
    clock.advance(100)
    await worker.settle(worker.release(first))
    assert await worker.runs() == [first]
    assert await states(store, [second]) == ["parked"]


async def test_retried_task_queues_behind_parked_ones(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    first, second = await add(store, *tasks(2, lane="a/k"))
    assert await worker.runs() == [first]
    clock.advance(100)
    await worker.settle(worker.retry(first))
    assert await worker.runs() == [second]
    assert await states(store, [first]) == ["parked"]


async def test_keys_do_not_affect_each_other(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    a1, a2, b1, plain = await add(store, task(lane="a/1"), task(lane="a/1"), task(lane="a/2"), task())
    assert set(await worker.runs()) == {a1, b1, plain}
    assert await states(store, [a2]) == ["parked"]


async def test_shared_lane_limits_all_its_sources(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "@api", cap=1)
    first, second = await add(store, task("a", lane="@api"), task("b", lane="@api"))
    assert await worker.runs("a", "b") == [first]
    turn = await worker.turn("b", outcomes=[worker.done(first)])
    assert turn.claim is not None
    assert names(turn.claim.tasks) == [second]


async def test_shared_lane_with_keys_uses_the_star_limit(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "@api/*", cap=1)
    first, second, third = await add(store, *tasks(2, lane="@api/x"), task(lane="@api/y"))
    assert await worker.runs() == [first, third]
    assert await states(store, [second]) == ["parked"]


async def test_limit_of_a_lane_overrides_the_star_field_by_field(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1, rate=1.0, burst=3)
    await limit(store, "a/big", cap=5)
    big = await add(store, *tasks(6, lane="a/big"))
    small = await add(store, *tasks(6, lane="a/small"))
    running = await worker.runs()
    assert [uuid for uuid in running if uuid in small] == small[:1]
    assert [uuid for uuid in running if uuid in big] == big[:3]  # the cap of the lane, the burst of the star


async def test_operator_limit_of_a_lane_overrides_code_field_by_field(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/k", cap=1, rate=1.0, burst=3)
    await limit(store, "a/k", cap=5, owner="operator")
    uuids = await add(store, *tasks(6, lane="a/k"))
    assert await worker.runs() == uuids[:3]
    await worker.settle(*(worker.done(uuid) for uuid in uuids[:3]))
    await limit(store, "a/k", cap=1, owner="code")
    await limit(store, "a/k", rate=1000.0, burst=10, owner="operator")  # the operator returned the cap to the code
    assert len(await worker.runs()) <= 1


async def test_raised_lane_cap_takes_effect(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    uuids = await add(store, *tasks(4, lane="a/k"))
    assert await worker.runs() == uuids[:1]
    await limit(store, "a/*", cap=3)
    assert await worker.runs() == uuids[1:3]


async def test_lowered_lane_cap_is_checked_by_the_claim(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=3)
    uuids = await add(store, *tasks(3, lane="a/k"))
    await worker.claim("b")
    assert await states(store, uuids) == ["ready"] * 3
    await limit(store, "a/*", cap=1)
    assert await worker.runs() == uuids[:1]
    assert await states(store, uuids) == ["running", "parked", "parked"]
    await worker.settle(worker.done(uuids[0]))
    assert await worker.runs() == uuids[1:2]


@pytest.mark.parametrize(("name", "by"), [("a/*", "code"), ("a/k", "operator")])
async def test_paused_lane_has_no_capacity(store: Store, worker: Worker, name: str, by: str) -> None:
    await worker.heartbeat()
    uuids = await add(store, *tasks(2, lane="a/k"))
    await worker.claim("b")
    await limit(store, name, paused=True, owner=by)
    assert await worker.runs() == []
    await add(store, task(lane="a/k"))
    assert await worker.runs() == []
    await limit(store, name, owner=by)
    assert (await worker.runs())[:2] == uuids


async def test_lane_starts_a_burst_and_then_the_rate(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", rate=2.0, burst=3)
    uuids = await add(store, *tasks(10, lane="a/k"))
    assert await worker.runs() == uuids[:3]
    clock.advance(499)
    assert await worker.runs() == []
    clock.advance(1)
    assert await worker.runs() == uuids[3:4]
    clock.advance(1000)
    assert await worker.runs() == uuids[4:6]


async def test_token_bucket_holds_no_more_than_its_burst(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=2)
    first = await add(store, *tasks(2, lane="a/k"))
    assert await worker.runs() == first
    clock.advance(3_600_000)
    uuids = await add(store, *tasks(5, lane="a/k"))
    assert await worker.runs() == uuids[:2]


async def test_no_time_window_has_more_starts_than_burst_and_rate(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", rate=4.0, burst=2)
    await add(store, *tasks(60, lane="a/k"))
    starts: list[float] = []
    for step in (0, 125, 130, 700, 60, 60, 60, 2000, 5, 250, 250, 245, 1000, 3, 3):
        clock.advance(step)
        running = await worker.runs()
        starts += [clock.now()] * len(running)
        await worker.settle(*(worker.done(uuid) for uuid in running))
    assert starts
    for number, since in enumerate(starts):
        for upto, until in enumerate(starts[number:], number):
            assert upto - number + 1 <= 2 + 4.0 * (until - since) / 1000 + 1e-6


async def test_starts_spend_their_cost(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=5)
    first, second, third = await add(store, task(lane="a/k", cost=3), task(lane="a/k", cost=2.5), task(lane="a/k"))
    running = await worker.runs()
    assert running[0] == first
    assert second not in running
    clock.advance(5000)
    assert set(running) | set(await worker.runs()) == {first, second, third}


async def test_tokens_are_spent_by_the_claim(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=1)
    first, second = await add(store, *tasks(2, lane="a/k"))
    await worker.claim("b")
    assert await states(store, [first, second]) == ["ready", "parked"]
    clock.advance(60_000)
    assert await worker.runs() == [first]
    clock.advance(999)
    assert await worker.runs() == []
    clock.advance(1)
    assert await worker.runs() == [second]


async def test_ended_run_returns_no_token(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=1)
    first, _ = await add(store, *tasks(2, lane="a/k"))
    assert await worker.runs() == [first]
    await worker.settle(worker.done(first))
    assert await worker.runs() == []


async def test_lane_obeys_cap_and_rate_together(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=2, rate=1.0, burst=3)
    uuids = await add(store, *tasks(5, lane="a/k"))
    assert await worker.runs() == uuids[:2]
    await worker.settle(worker.done(uuids[0]), worker.done(uuids[1]))
    assert await worker.runs() == uuids[2:3]
    clock.advance(1000)
    assert await worker.runs() == uuids[3:4]
    clock.advance(1000)
    assert await worker.runs() == []


async def test_full_lane_does_not_block_its_source(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=0)
    await add(store, *tasks(50, lane="a/k"))
    (free,) = await add(store, task())
    assert await worker.runs(total=1) == [free]


@pytest.mark.parametrize("total", [1, 2])
async def test_claim_takes_the_next_by_rank_after_a_task_of_a_full_lane(
    store: Store, worker: Worker, total: int
) -> None:
    """The next task of its source comes before a later one of another source."""
    await worker.heartbeat()
    blocked = await add(store, *tasks(2, lane="a/k"))
    (first,) = await add(store, task())
    (second,) = await add(store, task("b"))
    await worker.claim("c")
    assert await states(store, blocked) == ["ready"] * 2
    await limit(store, "a/*", paused=True)
    assert await worker.runs(total=total, room={"a": total, "b": 1}) == [first, second][:total]


async def test_tasks_of_a_dead_session_are_admitted_by_rank(
    store: Store, worker: Worker, other: Worker, clock: ManualClock
) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=2)
    (plain,) = await add(store, task(lane="a/k"))
    assert await worker.runs() == [plain]
    (boosted,) = await add(store, task(lane="a/k", boost=5000))
    assert await worker.runs() == [boosted]
    clock.advance(1000)
    await worker.crash()
    assert await other.runs() == [boosted]


@pytest.mark.parametrize("how", ["add", "snooze"])
async def test_cheaper_task_may_overtake_one_that_needs_more_tokens(
    store: Store, worker: Worker, clock: ManualClock, how: str
) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=2)
    (cheap,) = await add(store, task(lane="a/k"))
    assert await worker.runs() == [cheap]
    (dear,) = await add(store, task(lane="a/k", cost=2, boost=5000))
    assert await worker.runs() == []
    assert await states(store, [dear]) == ["parked"]
    if how == "add":
        (cheap,) = await add(store, task(lane="a/k"))
        await worker.claim("b")
    else:
        await worker.settle(worker.snooze(cheap))
    assert await states(store, [cheap]) == ["ready"]


@pytest.mark.parametrize("how", ["cancelled", "expired", "replaced"])
async def test_next_task_is_admitted_when_the_first_leaves_the_lane(
    store: Store, worker: Worker, clock: ManualClock, how: str
) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=2)
    assert len(await add(store, *tasks(2, lane="a/k"))) == len(await worker.runs())
    expires = 1000 if how == "expired" else None
    dear, cheap = await add(store, task(lane="a/k", cost=2, unique="k", expires=expires), task(lane="a/k"))
    assert await worker.runs() == []
    assert await states(store, [dear, cheap]) == ["parked", "parked"]
    clock.advance(1000)  # enough for the second, not for the first
    if how == "cancelled":
        await worker.cancel(dear)
    if how == "replaced":
        await add(store, task(unique="k", on_conflict="replace", after=9000))
    assert await worker.runs() == [cheap]


async def test_purge_does_not_fill_a_token_bucket(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=2)
    await limit(store, "b", rate=1.0, burst=2)
    uuids = await add(store, *tasks(2, lane="a/k"), *tasks(2, "b"))
    assert await worker.runs("a", "b") == uuids
    await worker.settle(*(worker.done(uuid) for uuid in uuids))
    await store.purge(100, 0)
    await add(store, task(lane="a/k"), task("b"))
    assert await worker.runs("a", "b") == []


async def test_cost_above_a_lowered_burst_waits_for_a_full_bucket(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    """An operator lowers the burst: a task that was added before costs the whole bucket, and does not wait forever."""
    await worker.heartbeat()
    await limit(store, "a/*", rate=10.0, burst=100)
    await limit(store, "a/k", rate=1.0, burst=2, owner="operator")
    dear, cheap = await add(store, task(lane="a/k", cost=50), task(lane="a/k"))
    assert await worker.runs() == [dear]
    clock.advance(999)
    assert await worker.runs() == []
    clock.advance(1)
    assert await worker.runs() == [cheap]


async def test_empty_limit_limits_nothing(store: Store, worker: Worker) -> None:
    """The code has dropped the limit."""
    await worker.heartbeat()
    await limit(store, "a", cap=1)
    await limit(store, "a/*", cap=1)
    uuids = await add(store, *tasks(2, lane="a/k"), *tasks(2))
    assert len(await worker.runs()) == 1
    await limit(store, "a")
    await limit(store, "a/*")
    assert len(await worker.runs()) == 3
    assert await states(store, uuids) == ["running"] * 4


async def test_changed_star_limit_affects_its_lanes_only(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    names = ("a/1", "a/2", "a0", "a.b/1", "@a/1", "@a")
    for name in names:
        await limit(store, name, cap=0)
    await limit(store, "a/*", cap=0)
    uuids = await add(store, *(task(lane=name) for name in names))
    assert await worker.runs() == []
    for name in ("a/1", "a/2"):
        await limit(store, name)
    assert await worker.runs() == []
    await limit(store, "a/*", cap=5)
    assert await worker.runs() == uuids[:2]
    for number, name in enumerate(names[2:], 2):
        await limit(store, name, cap=1)
        assert await worker.runs() == uuids[number : number + 1]


@pytest.mark.parametrize("name", ["a", "a/*"])
async def test_sessions_that_return_at_next_in_use_every_token(store: Store, clock: ManualClock, name: str) -> None:
    """Three sessions return only at the times that their claims returned."""
    rate = 8.0
    burst = 3
    seconds = 4
    began = clock.now()
    await limit(store, name, rate=rate, burst=burst)
    await add(store, *tasks(60, lane="a/k" if "/" in name else None))
    sessions = [Worker(store, f"w{number}") for number in range(3)]
    wakes = dict.fromkeys(range(3), began)
    for session in sessions:
        await session.heartbeat()
    starts = 0
    while (moment := min(wakes.values())) <= began + seconds * 1000:
        number = next(number for number, at in wakes.items() if at == moment)
        clock.advance(max(0.0, moment - clock.now()))
        claimed = await sessions[number].claim(total=5)
        starts += len(claimed.tasks)
        waits = [wait for wait in (*claimed.idle.values(), claimed.next_in) if wait is not None]
        wakes[number] = clock.now() + (0 if claimed.more else max(0.01, min(waits, default=1e9)))
    assert starts == burst + rate * seconds
