"""lanes: never more live leases than the cap, never more starts than burst + rate × time; the rest waits apart."""

from __future__ import annotations

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Store
from tests.contract.steps import Worker, add, limit, names, states, task, tasks


async def test_a_lane_without_a_limit_is_open(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    uuids = await add(store, *tasks(5, lane="a/k"))
    assert await worker.runs() == uuids


@pytest.mark.parametrize("name", ["a/*", "a/k"])
async def test_a_cap_holds(store: Store, worker: Worker, other: Worker, name: str) -> None:
    await worker.heartbeat()
    await other.heartbeat()
    await limit(store, name, cap=2)
    uuids = await add(store, *tasks(5, lane="a/k"))
    assert await worker.runs(total=1) == uuids[:1]
    assert await other.runs() == uuids[1:2]
    assert await worker.runs() == []
    assert await states(store, uuids) == ["running", "running", "parked", "parked", "parked"]


@pytest.mark.parametrize("how", ["done", "failed", "cancelled", "retry", "snooze"])
async def test_every_outcome_opens_it_for_the_next(store: Store, worker: Worker, clock: ManualClock, how: str) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    first, second = await add(store, *tasks(2, lane="a/k"))
    assert await worker.runs() == [first]
    options = {"after": 1000} if how in ("retry", "snooze") else {}
    assert await worker.settle(getattr(worker, how)(first, **options)) == ["ok"]
    assert await states(store, [second]) == ["ready"]
    assert await worker.runs() == [second]


async def test_it_opens_for_no_more_than_fit(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=2, rate=1.0, burst=3)
    uuids = await add(store, *tasks(6, lane="a/k"))
    assert await worker.runs() == uuids[:2]
    await worker.settle(worker.done(uuids[0]), worker.done(uuids[1]))
    assert await states(store, uuids[2:]) == ["ready", "parked", "parked", "parked"]


@pytest.mark.parametrize("how", ["death", "close", "lapse"])
async def test_a_slot_never_leaks(store: Store, worker: Worker, other: Worker, clock: ManualClock, how: str) -> None:
    await other.heartbeat()
    await worker.heartbeat(5000)
    await limit(store, "a/*", cap=2)
    uuids = await add(store, *tasks(4, lane="a/k", max_crashes=9))
    assert await worker.runs() == uuids[:2]
    clock.advance(5000)
    if how != "lapse":
        await (worker.crash() if how == "death" else store.close_session(worker.name))
    assert await other.runs() == uuids[:2]


async def test_the_parked_come_by_rank(store: Store, worker: Worker) -> None:
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


async def test_a_released_one_is_first_again(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    first, second = await add(store, *tasks(2, lane="a/k"))
    assert await worker.runs() == [first]
    clock.advance(100)
    await worker.settle(worker.release(first))
    assert await worker.runs() == [first]
    assert await states(store, [second]) == ["parked"]


async def test_a_retry_queues_behind_those_that_wait(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    first, second = await add(store, *tasks(2, lane="a/k"))
    assert await worker.runs() == [first]
    clock.advance(100)
    await worker.settle(worker.retry(first))
    assert await worker.runs() == [second]
    assert await states(store, [first]) == ["parked"]


async def test_keys_do_not_hinder_each_other(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    a1, a2, b1, plain = await add(store, task(lane="a/1"), task(lane="a/1"), task(lane="a/2"), task())
    assert set(await worker.runs()) == {a1, b1, plain}
    assert await states(store, [a2]) == ["parked"]


async def test_a_shared_lane_holds_for_all_its_sources(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "@api", cap=1)
    first, second = await add(store, task("a", lane="@api"), task("b", lane="@api"))
    assert await worker.runs("a", "b") == [first]
    turn = await worker.turn("b", outcomes=[worker.done(first)])
    assert turn.claim is not None
    assert names(turn.claim.tasks) == [second]


async def test_a_shared_lane_with_keys_has_a_star_too(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "@api/*", cap=1)
    first, second, third = await add(store, *tasks(2, lane="@api/x"), task(lane="@api/y"))
    assert await worker.runs() == [first, third]
    assert await states(store, [second]) == ["parked"]


async def test_the_lanes_own_record_wins_over_the_star_field_by_field(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1, rate=1.0, burst=3)
    await limit(store, "a/big", cap=5)
    big, small = await add(store, *tasks(6, lane="a/big")), await add(store, *tasks(6, lane="a/small"))
    running = await worker.runs()
    assert [uuid for uuid in running if uuid in small] == small[:1]
    assert [uuid for uuid in running if uuid in big] == big[:3]  # its own cap, the star's burst


async def test_the_operator_wins_over_code_field_by_field(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/k", cap=1, rate=1.0, burst=3)
    await limit(store, "a/k", cap=5, owner="operator")
    uuids = await add(store, *tasks(6, lane="a/k"))
    assert await worker.runs() == uuids[:3]
    await worker.settle(*(worker.done(uuid) for uuid in uuids[:3]))
    await limit(store, "a/k", cap=1, owner="code")
    await limit(store, "a/k", rate=1000.0, burst=10, owner="operator")  # the cap is no longer the operator's
    assert len(await worker.runs()) <= 1


async def test_a_raised_cap_is_noticed(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=1)
    uuids = await add(store, *tasks(4, lane="a/k"))
    assert await worker.runs() == uuids[:1]
    await limit(store, "a/*", cap=3)
    assert await worker.runs() == uuids[1:3]


async def test_a_lowered_cap_is_checked_at_the_take(store: Store, worker: Worker) -> None:
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
async def test_a_paused_lane_is_shut(store: Store, worker: Worker, name: str, by: str) -> None:
    await worker.heartbeat()
    uuids = await add(store, *tasks(2, lane="a/k"))
    await worker.claim("b")
    await limit(store, name, paused=True, owner=by)
    assert await worker.runs() == []
    await add(store, task(lane="a/k"))
    assert await worker.runs() == []
    await limit(store, name, owner=by)
    assert (await worker.runs())[:2] == uuids


async def test_a_burst_then_the_rate(store: Store, worker: Worker, clock: ManualClock) -> None:
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


async def test_a_bucket_holds_no_more_than_its_burst(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=2)
    first = await add(store, *tasks(2, lane="a/k"))
    assert await worker.runs() == first
    clock.advance(3_600_000)
    uuids = await add(store, *tasks(5, lane="a/k"))
    assert await worker.runs() == uuids[:2]


async def test_in_any_window_no_more_than_burst_and_rate(store: Store, worker: Worker, clock: ManualClock) -> None:
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


async def test_costs(store: Store, worker: Worker, clock: ManualClock) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=5)
    first, second, third = await add(store, task(lane="a/k", cost=3), task(lane="a/k", cost=2.5), task(lane="a/k"))
    running = await worker.runs()
    assert running[0] == first
    assert second not in running
    clock.advance(5000)
    assert set(running) | set(await worker.runs()) == {first, second, third}


async def test_tokens_are_spent_at_the_take(store: Store, worker: Worker, clock: ManualClock) -> None:
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


async def test_a_finished_run_gives_no_token_back(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=1)
    first, _ = await add(store, *tasks(2, lane="a/k"))
    assert await worker.runs() == [first]
    await worker.settle(worker.done(first))
    assert await worker.runs() == []


async def test_cap_and_rate_together(store: Store, worker: Worker, clock: ManualClock) -> None:
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


async def test_a_lane_does_not_hold_up_its_source(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", cap=0)
    await add(store, *tasks(50, lane="a/k"))
    (free,) = await add(store, task())
    assert await worker.runs(total=1) == [free]


@pytest.mark.parametrize("total", [1, 2])
async def test_behind_a_shut_lane_the_next_by_rank_is_taken(store: Store, worker: Worker, total: int) -> None:
    """Of its source, before a later one of another: it was not the source that had to wait."""
    await worker.heartbeat()
    shut = await add(store, *tasks(2, lane="a/k"))
    (first,) = await add(store, task())
    (second,) = await add(store, task("b"))
    await worker.claim("c")
    assert await states(store, shut) == ["ready"] * 2
    await limit(store, "a/*", paused=True)
    assert await worker.runs(total=total, room={"a": total, "b": 1}) == [first, second][:total]


async def test_what_a_death_gives_back_comes_by_rank(
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
async def test_who_arrives_may_pass_one_that_waits_for_more_tokens(
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
async def test_when_the_first_leaves_the_next_need_not_wait_for_it(
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


async def test_a_purge_does_not_fill_a_bucket(store: Store, worker: Worker) -> None:
    await worker.heartbeat()
    await limit(store, "a/*", rate=1.0, burst=2)
    await limit(store, "b", rate=1.0, burst=2)
    uuids = await add(store, *tasks(2, lane="a/k"), *tasks(2, "b"))
    assert await worker.runs("a", "b") == uuids
    await worker.settle(*(worker.done(uuid) for uuid in uuids))
    await store.purge(100, 0)
    await add(store, task(lane="a/k"), task("b"))
    assert await worker.runs("a", "b") == []


async def test_a_cost_that_no_longer_fits_waits_for_a_full_bucket(
    store: Store, worker: Worker, clock: ManualClock
) -> None:
    """An operator lowers the burst: what was added before costs the whole bucket, and does not wait for ever."""
    await worker.heartbeat()
    await limit(store, "a/*", rate=10.0, burst=100)
    await limit(store, "a/k", rate=1.0, burst=2, owner="operator")
    dear, cheap = await add(store, task(lane="a/k", cost=50), task(lane="a/k"))
    assert await worker.runs() == [dear]
    clock.advance(999)
    assert await worker.runs() == []
    clock.advance(1)
    assert await worker.runs() == [cheap]


async def test_a_limit_that_says_nothing_holds_nothing(store: Store, worker: Worker) -> None:
    """What code no longer declares."""
    await worker.heartbeat()
    await limit(store, "a", cap=1)
    await limit(store, "a/*", cap=1)
    uuids = await add(store, *tasks(2, lane="a/k"), *tasks(2))
    assert len(await worker.runs()) == 1
    await limit(store, "a")
    await limit(store, "a/*")
    assert len(await worker.runs()) == 3
    assert await states(store, uuids) == ["running"] * 4


async def test_a_changed_star_opens_its_lanes_and_no_others(store: Store, worker: Worker) -> None:
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
async def test_whoever_comes_back_when_told_uses_every_token(store: Store, clock: ManualClock, name: str) -> None:
    """Three sessions, woken by nothing but the times that their claims have said."""
    rate, burst, seconds, began = 8.0, 3, 4, clock.now()
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
