"""Alarms in buckets behave as in one order: at borders, after changes and far in the future."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import redis

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import (
    BATCH,
    ClaimRequest,
    ClaimResult,
    Completed,
    Ended,
    Lease,
    NewTask,
    Policy,
    Requeued,
    SlotPool,
)
from onthedot.stores.redis import RedisStore
from onthedot.stores.redis.record_format import decode
from tests.support.services import valkey
from tests.unit.stores.redis.alarms import WIDTH, alarms_of

YEAR = 365 * 86_400_000
START = 13_500_000 * WIDTH  # in 2026, where a bucket begins
EVER = 1000 * YEAR


class Worker:
    """A worker of a store with a manual clock."""

    def __init__(self, store: RedisStore, clock: ManualClock, client: redis.Redis) -> None:
        self.store = store
        self.clock = clock
        self.client = client
        self.number = 0

    async def add(self, *new: NewTask) -> None:
        assert all(each.fresh for each in await self.store.add(new))

    async def claim(self, total: int = 10_000) -> ClaimResult:
        self.number += 1
        turn = await self.store.turn("w", [], ClaimRequest(self.number, [SlotPool(total, {"a": total})]))
        assert turn.claim is not None
        return turn.claim

    async def takes(self) -> list[str]:
        return [record.uuid for record in (await self.claim()).tasks]

    async def next_in(self) -> float | None:
        """Of an ask that takes nothing."""
        return (await self.claim(0)).next_in

    def set(self) -> list[int]:
        """The moments of all alarms, from the beginning."""
        return sorted(moment - START for moment in alarms_of(self.client, self.store.prefix).values())

    def goes_to(self, moment: float) -> None:
        self.clock.advance(START + moment - self.clock.now())


@asynccontextmanager
async def working() -> AsyncIterator[Worker]:
    clock = ManualClock()
    clock.advance(START - clock.now())
    store = RedisStore(valkey.url(), clock, valkey.new_name())
    await store.open()
    with redis.Redis.from_url(valkey.url()) as client:
        await store.heartbeat("w", b"", EVER)
        yield Worker(store, clock, client)
        alarms_of(client, store.prefix)
    await store.close()
    valkey.forget(store.prefix)


def due(moment: int, uuid: str = "", **policy: int) -> NewTask:
    return NewTask(uuid or f"t{moment}", "a", b"", START + moment, policy=Policy(**policy))


def leases(claimed: ClaimResult) -> Sequence[Lease]:
    return [Lease(record.uuid, claimed.fence, "w") for record in claimed.tasks]


def _next_message(pubsub: redis.client.PubSub) -> bytes:
    while (message := pubsub.get_message(timeout=5)) is None:
        pass
    return bytes(message["data"])


BORDERS = [1, 2, WIDTH - 1, WIDTH, WIDTH + 1, 2 * WIDTH - 1, 2 * WIDTH, 7 * WIDTH, 7 * WIDTH + 1]


@pytest.mark.parametrize("together", [True, False])
async def test_tasks_on_both_sides_of_a_bucket_border_come_on_time(together: bool) -> None:
    async with working() as worker:
        new = [due(moment) for moment in reversed(BORDERS)]
        for some in [new] if together else [[each] for each in new]:
            await worker.add(*some)
        assert worker.set() == BORDERS
        for moment in BORDERS:
            worker.goes_to(moment - 0.25)
            assert await worker.takes() == []
            assert await worker.next_in() == 0.25
            worker.goes_to(moment)
            assert await worker.takes() == [f"t{moment}"]
        assert worker.set() == []


@pytest.mark.parametrize("years", [1, 20, 900])
async def test_alarms_years_ahead_come_on_time(years: int) -> None:
    async with working() as worker:
        await worker.add(due(years * YEAR))
        assert await worker.next_in() == years * YEAR
        await worker.add(due(5), due(years * YEAR + 1))
        assert await worker.next_in() == 5
        worker.goes_to(years * YEAR)
        assert await worker.takes() == ["t5", f"t{years * YEAR}"]
        assert await worker.next_in() == 1


async def test_due_times_before_and_at_the_epoch() -> None:
    """A task with a lane gets an alarm even if it is long overdue."""
    async with working() as worker:
        old = [NewTask(f"at{at}", "a", b"", at, lane="a/k") for at in (1, 0, -1, -WIDTH, -WIDTH - 1)]
        await worker.add(*old)
        assert len(worker.set()) == len(old)
        assert await worker.takes() == [each.uuid for each in reversed(old)]
        assert worker.set() == []


async def test_due_alarms_of_several_buckets_are_promoted_one_batch_per_turn() -> None:
    async with working() as worker:
        new = [due(1 + number * 300) for number in range(BATCH + 400)]  # in four buckets
        await worker.add(*new[:BATCH])
        await worker.add(*new[BATCH:])
        worker.goes_to(YEAR)
        claimed = await worker.claim()
        assert [record.uuid for record in claimed.tasks] == [each.uuid for each in new[:BATCH]]
        assert (claimed.more, claimed.next_in) == (True, 0)
        assert worker.set() == [1 + number * 300 for number in range(BATCH, BATCH + 400)]
        assert await worker.takes() == [each.uuid for each in new[BATCH:]]
        assert worker.set() == []


@pytest.mark.parametrize("number", [1, 30, 31, 200])
async def test_many_alarms_at_one_time(number: int) -> None:
    """In one command, beside existing alarms."""
    async with working() as worker:
        await worker.add(due(9))
        await worker.add(*(due(10, f"t{each:03}") for each in range(number)))
        await worker.add(due(11), due(12))
        assert worker.set() == [9, *[10] * number, 11, 12]
        worker.goes_to(10)
        assert await worker.takes() == ["t9", *(f"t{each:03}" for each in range(number))]
        assert worker.set() == [11, 12]


async def test_alarm_follows_every_change_of_its_task() -> None:
    """Due → expiry → none; retries; and a replaced task."""
    async with working() as worker:
        await worker.add(due(10, "x", expires=2 * WIDTH))
        worker.goes_to(10)
        await worker.claim(0)
        assert worker.set() == [10 + 2 * WIDTH], "ready: it may expire"
        claimed = await worker.claim()
        assert worker.set() == [], "it runs"
        for after in (5, WIDTH, 3 * WIDTH):
            lease = leases(claimed)[0]
            await worker.store.turn("w", [Requeued(lease, after, counted=True, error=b"")], None)
            assert await worker.next_in() == after
            worker.clock.advance(after)
            claimed = await worker.claim()
            assert ([record.uuid for record in claimed.tasks], worker.set()) == (["x"], [])
        await worker.store.turn("w", [Completed(leases(claimed)[0])], None)
        worker.goes_to(10 * WIDTH)
        for moment in (11 * WIDTH, 11 * WIDTH + 1, 40 * WIDTH, 12 * WIDTH):
            new = NewTask(f"r{moment}", "a", b"", START + moment, unique="k", policy=Policy(on_conflict="replace"))
            await worker.store.add([new])
            assert worker.set() == [moment]
            assert await worker.next_in() == moment - 10 * WIDTH


async def test_expiry_in_another_bucket_comes_on_time() -> None:
    async with working() as worker:
        await worker.add(due(WIDTH - 10, "ready", expires=20), due(WIDTH - 10, "taken", expires=20))
        await worker.add(NewTask("parked", "a", b"", START + WIDTH - 10, lane="a/k", policy=Policy(expires=30)))
        worker.goes_to(WIDTH - 10)
        assert len((await worker.claim(1)).tasks) == 1
        assert worker.set() == [WIDTH + 10, WIDTH + 20]
        worker.goes_to(WIDTH + 20)
        claimed = await worker.claim(0)
        assert {record.history.reason for record in claimed.chores} == {"expired"}
        assert len(claimed.chores) == 2
        assert worker.set() == []


async def test_cancelled_task_leaves_no_bucket() -> None:
    async with working() as worker:
        moments = [5, 6, WIDTH, 3 * WIDTH, 3 * WIDTH + 5, YEAR]
        await worker.add(*map(due, moments))
        for moment in (3 * WIDTH, 5, YEAR, 3 * WIDTH + 5, WIDTH, 6):
            leased = await worker.store.cancel("client", [f"t{moment}"])
            await worker.store.turn(
                "w", [Ended(Lease(f"t{moment}", leased.fence, "client"), "cancelled", b"", 0)], None
            )
            moments.remove(moment)
            assert worker.set() == moments
            assert await worker.next_in() == (moments or [10_000])[0]  # the client's own lease
        assert not list(worker.client.scan_iter(f"{worker.store.prefix}alarms*"))


@pytest.mark.parametrize("others", [0, 1])
async def test_only_an_alarm_before_all_others_sends_a_hint(others: int) -> None:
    """Alone, or in one call with a later alarm of another source."""
    async with working() as worker:
        hints = f"{worker.store.prefix}hints"
        mark = b"-"
        with worker.client.pubsub(ignore_subscribe_messages=True) as pubsub:
            pubsub.subscribe(hints)
            for moment, is_sent in (
                (3 * WIDTH, True), (3 * WIDTH, False),
                (WIDTH + 50, True), (WIDTH + 60, False), (WIDTH + 50, False), (2 * WIDTH, False), (WIDTH + 49, True),
                (WIDTH - 1, True), (WIDTH, False), (WIDTH - 2, True), (YEAR, False), (1, True),
            ):  # fmt: skip
                later = [NewTask(f"o{moment}", "b", b"", START + moment + 1)] * others
                await worker.store.add([due(moment, f"t{moment}-{len(worker.set())}"), *later])
                worker.client.publish(hints, mark)
                assert [decode(each)[1] for each in iter(lambda: _next_message(pubsub), mark)] == [["a"]] * is_sent


async def test_deleted_bucket_does_not_stop_promotion() -> None:
    async with working() as worker:
        await worker.add(due(5))
        worker.client.delete(f"{worker.store.prefix}alarms:{START // WIDTH}")
        for number in (1, 2):  # alone, and in a call with another
            await worker.add(*(due(6, f"t6-{number}-{each}", max_crashes=each + 2) for each in range(number)))
        worker.goes_to(6)
        assert await worker.takes() == ["t6-1-0", "t6-2-0", "t6-2-1"]
        await worker.add(due(WIDTH))
        worker.client.delete(f"{worker.store.prefix}alarms:{START // WIDTH + 1}")
        await worker.add(due(2 * WIDTH))
        worker.goes_to(2 * WIDTH)
        assert await worker.takes() == [f"t{2 * WIDTH}"]
        assert worker.set() == []
