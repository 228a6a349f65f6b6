"""Counters, waits and signals in Redis: what they cost, concurrent sessions, and repairs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from uuid import uuid4

import pytest
import redis

from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreFull
from onthedot.stores.contract import (
    MAX_KEPT_SIGNALS,
    ClaimRequest,
    ClaimResult,
    Completed,
    Counter,
    Lease,
    Links,
    NewSignal,
    NewTask,
    Note,
    Outcome,
    SlotPool,
    Wait,
)
from onthedot.stores.redis import RedisStore
from tests.support.services import valkey

DAY = 86_400_000
KEEP = 30 * DAY


class Worker:
    def __init__(self, store: RedisStore, name: str) -> None:
        self.store = store
        self.name = name
        self.number = 0

    async def claim(self, most: int = 100, outcomes: Sequence[Outcome] = ()) -> ClaimResult:
        self.number += 1
        request = ClaimRequest(self.number, [SlotPool(most, {"a": most})])
        turn = await self.store.turn(self.name, outcomes, request)
        assert turn.claim is not None
        return turn.claim

    def ends(self, claim: ClaimResult) -> list[Outcome]:
        return [Completed(Lease(task.uuid, claim.fence, self.name), b"1", KEEP) for task in claim.tasks]


@asynccontextmanager
async def opened(clock: ManualClock | None = None) -> AsyncIterator[RedisStore]:
    store = RedisStore(valkey.url(), clock, valkey.new_name())
    await store.open()
    try:
        yield store
    finally:
        await store.close()
        valkey.forget(store.prefix)


@asynccontextmanager
async def working(clock: ManualClock | None = None) -> AsyncIterator[tuple[RedisStore, Worker]]:
    async with opened(clock) as store:
        await store.heartbeat("w", b"", 10**12)
        yield store, Worker(store, "w")


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """The commands that the server runs meanwhile, inside of scripts, too."""
    calls: dict[str, int] = {}
    with redis.Redis.from_url(valkey.url()) as client:
        client.config_resetstat()
        yield calls
        stats = client.info("commandstats")
        calls.update({name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()})
        for own in ("config|resetstat", "info", "client|setinfo", "client|setname"):
            calls.pop(own, None)


async def test_linked_tasks_of_a_group_are_added_and_ended_together() -> None:
    """A member costs no command of its own: only its call adds to the flow and the counters."""
    calls: dict[bool, dict[str, int]] = {}
    for linked in (False, True):
        async with working() as (store, worker):
            await worker.claim()
            links = Links("flow", ("f", "g")) if linked else None
            with counted() as calls[linked]:
                await store.add([NewTask(str(uuid4()), "a", b"", links=links) for _ in range(100)])
                claim = await worker.claim()
                await store.turn("w", worker.ends(claim), None)
    more = {name: number - calls[False].get(name, 0) for name, number in calls[True].items()}
    assert {name: number for name, number in more.items() if number > 0} == {
        "sadd": 1, "hincrby": 2, "zadd": 1, "zrangebyscore": 2,
    }  # fmt: skip


async def test_tasks_that_have_waited_together_end_together() -> None:
    async with working() as (store, worker):
        links = Links("flow", (), Wait((("f", 1),)))
        await store.add([NewTask(str(uuid4()), "a", b"", links=links) for _ in range(100)])
        await store.signal([NewSignal("f", "1")])
        with counted() as calls:
            claim = await worker.claim()
        assert len(claim.tasks) == 100
        assert sum(calls.values()) < 60
        with counted() as calls:
            await store.turn("w", worker.ends(claim), None)
        assert sum(calls.values()) < 40


async def test_chord_of_concurrent_sessions_fires_once() -> None:
    """Four connections end the members in turns of their own, while waits begin and signals come."""
    members = 2000
    sessions = 4
    async with opened() as first:
        app = first.prefix.removeprefix("onthedot:{").removesuffix("}:")
        links = Links("last", ("f",))
        tasks = [NewTask(f"m{number}", "a", b"", links=links) for number in range(members)]
        for start in range(0, members, 1000):
            await first.add(tasks[start : start + 1000])
        started: list[str] = []

        async def work(name: str) -> None:
            store = RedisStore(valkey.url(), None, app)  # with a connection of its own
            await store.open()
            await store.heartbeat(name, b"", 10**7)
            worker = Worker(store, name)
            claim = await worker.claim(20)
            while len(started) < members + sessions:
                started.extend(task.uuid for task in claim.tasks)
                claim = await worker.claim(20, worker.ends(claim))
                if not claim.tasks:
                    await asyncio.sleep(0.005)
            await store.close()

        async def add_callbacks() -> None:
            for number in range(sessions):
                wait = Wait((("f", members), ("never", 1)), requires="success")
                await first.add([NewTask(f"callback{number}", "a", b"", links=Links("last", waits=wait))])
                await asyncio.sleep(0.02)

        async with asyncio.timeout(60):
            await asyncio.gather(add_callbacks(), *[work(f"w{number}") for number in range(sessions)])
        assert len(started) == len(set(started)) == members + sessions
        assert all(uuid.startswith("callback") for uuid in started[-sessions:])
        assert await first.counters(["f"]) == [Counter(members)]


@pytest.mark.parametrize("flow", [str(uuid4()), "night", "ä" * 50, str(uuid4()).upper()])
async def test_member_is_kept_while_its_flow_lives(flow: str) -> None:
    """Whichever form the uuid of the last task is stored in."""
    clock = ManualClock()
    async with working(clock) as (store, worker):
        member = Links(flow, ("f",))
        await store.add([NewTask("member", "a", b"", links=member)])
        await store.add([NewTask(flow, "a", b"", links=Links(flow, waits=Wait((("f", 1), ("g", 1)))), at=10**15)])
        await store.turn("w", worker.ends(await worker.claim()), None)
        clock.advance(KEEP)
        assert await store.purge(10) == 0
        assert [row.uuid for row in (await store.find({"flow": "*"}, None, 10)).rows] == [flow]
        assert [row.uuid for row in (await store.find({"flow": flow}, None, 10)).rows] == [flow, "member"]


async def test_members_beyond_the_limit_do_not_keep_purge_busy() -> None:
    clock = ManualClock()
    async with working(clock) as (store, worker):
        await store.add([NewTask("last", "a", b"", links=Links("last", waits=Wait((("f", 10**6),))))])
        await store.add([NewTask(f"m{number}", "a", b"", links=Links("last", ("f",))) for number in range(1000)])
        await store.add([NewTask("plain", "a", b"")])
        for _ in range(11):
            clock.advance(1)
            await store.turn("w", worker.ends(await worker.claim()), None)
        assert await store.purge(10_000, 0) == 0, "a call looks at 1,000, and members are moved behind the others"
        assert await store.purge(10_000, 0) == 1


async def test_repair_lets_tasks_wait_again_and_raises_counters() -> None:
    clock = ManualClock()
    async with working(clock) as (store, worker):
        await store.add([NewTask("m", "a", b"", links=Links("last", ("f",)))])
        wait = Wait((("f", 1),), timeout=10**6, requires="any")
        await store.add([NewTask("last", "a", b"", links=Links("last", waits=wait))])
        assert await store.unplaced() == []
        await store.turn("w", worker.ends(await worker.claim()), None)
        with redis.Redis.from_url(valkey.url()) as client:
            for kind in ("waiters", "alarms", "counter", "dirty", "flow"):
                client.delete(*client.scan_iter(f"{store.prefix}{kind}*"))
        assert (await worker.claim()).tasks == []
        assert await store.unplaced() == ["last"]
        assert await store.unplaced(requeue=True) == ["last"]
        assert await store.unplaced() == []
        assert await store.counters(["f"]) == [Counter(1)]
        assert len((await store.find({"flow": "last"}, None, 10)).rows) == 2
        assert [task.uuid for task in (await worker.claim()).tasks] == ["last"]


async def test_expired_signals_leave_room_for_others() -> None:
    clock = ManualClock()
    async with opened(clock) as store:
        await store.signal([NewSignal("s", str(number), b"", DAY) for number in range(MAX_KEPT_SIGNALS - 1)])
        await store.signal([NewSignal("s", "long", b"", 2 * DAY)])
        with pytest.raises(StoreFull, match="'s'"):
            await store.signal([NewSignal("other", "1"), NewSignal("s", "new", b"", DAY)])
        assert (await store.signals("other", 0, 10)).signals == []
        clock.advance(DAY)
        assert await store.signal([NewSignal("s", "new", b"", DAY), NewSignal("s", "long"), NewSignal("s", "0")]) == [
            True, False, True,
        ]  # fmt: skip
        assert [signal.id for signal in (await store.signals("s", 0, 2)).signals] == ["long", "new"]


async def test_journal_is_read_by_its_order() -> None:
    """Data of other notes is not read; a journal that has no order yet gets it."""
    async with working() as (store, worker):
        await store.add([NewTask("t", "a", b"")])
        claim = await worker.claim()
        lease = Lease("t", claim.fence, "w")
        for number in range(50):
            await store.note([Note(lease, "item", str(number), b"x"), Note(lease, "step", str(number), b"y")])
        first, *_ = await store.notes("t", 0, 5, "item")
        with counted() as calls:
            found = await store.notes("t", first[0], 3, "item")
        assert [note.name for _, note in found] == ["1", "2", "3"]
        assert calls["hmget"] == 1
        with redis.Redis.from_url(valkey.url()) as client:
            assert client.delete(*client.scan_iter(f"{store.prefix}journal_order:*")) == 1
        assert await store.notes("t", first[0], 3, "item") == found
