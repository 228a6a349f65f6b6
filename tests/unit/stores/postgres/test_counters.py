"""Counters with several connections: no wait is missed, none ends twice, and an open transaction delays nobody."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections import Counter as Tally
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from onthedot.stores.contract import (
    Completed,
    Counter,
    Ended,
    Lease,
    Links,
    NewSignal,
    NewTask,
    Outcome,
    Suspended,
    Wait,
)
from onthedot.stores.postgres import PostgresStore
from tests.faults import scaled
from tests.support.services.postgres import Service
from tests.support.waits import SOON, until
from tests.unit.stores.postgres.callers import by_asyncpg, by_psycopg
from tests.unit.stores.postgres.shop import LEASE, Worker, opened

AT_ONCE = 0.1  # seconds that a call of others may take


def member(uuid: str, *increments: str) -> NewTask:
    return NewTask(uuid, "a", b"", links=Links(None, increments))


def callback(uuid: str, *counters: tuple[str, int]) -> NewTask:
    return NewTask(uuid, "b", b"", links=Links(waits=Wait(counters)))


def rows(postgres: Service, app: str, table: str) -> int:
    query = f"SELECT count(*) FROM onthedot.{table} WHERE app IN (SELECT id FROM onthedot.app WHERE name = %s)"
    number: int = postgres.ask(query, app)[0][0]
    return number


async def names(worker: Worker, *sources: str, outcomes: list[Outcome] | None = None) -> list[str]:
    claimed = await worker.claim(*sources, outcomes=outcomes or ())
    return [record.uuid for record in claimed.tasks]


async def run(worker: Worker, *new: NewTask) -> dict[str, Lease]:
    await worker.store.add(new)
    claimed = await worker.claim("a")
    return {record.uuid: Lease(record.uuid, claimed.fence, worker.name) for record in claimed.tasks}


async def working(store: PostgresStore, name: str = "w") -> Worker:
    await store.heartbeat(name, b"", LEASE)
    return Worker(store, name)


@asynccontextmanager
async def held_back(store: PostgresStore) -> AsyncIterator[None]:
    """The turns of this store are executed, but not committed before the end."""
    await store.connections.turn.with_connection(lambda raw: raw.execute("BEGIN"))
    try:
        yield
    finally:
        await store.connections.turn.with_connection(lambda raw: raw.execute("COMMIT"))


# -- one call between two steps of another


async def test_end_during_the_fold_of_another_turn_is_found_soon(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store, opened(postgres, named) as second:
        worker = await working(store)
        other = await working(second, "other")
        leases = await run(worker, member("u1", "f"), member("u2", "f"), callback("c", ("f", 2)))
        async with held_back(store):
            assert await names(worker, "b", outcomes=[Completed(leases["u1"])]) == []
            claimed = await other.claim("b", outcomes=[Completed(leases["u2"])])
            assert (list(claimed.tasks), claimed.next_in) == ([], 2), "the stripe is busy: ask again"
        assert await names(other, "b") == ["c"]
        assert await names(worker, "b") == []


async def test_wait_that_is_committed_after_the_fold_is_over(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store, by_asyncpg(postgres.url) as caller:
        worker = await working(store)
        leases = await run(worker, member("u1", "f"))
        await store.add_awaited(caller.connection, [callback("c", ("f", 1))])
        assert await names(worker, "b", outcomes=[Completed(leases["u1"])]) == []
        assert rows(postgres, named, "counter_delta") == 0, "the end was added up"
        await caller.commit()
        assert await names(worker, "b") == ["c"]


async def test_end_that_is_committed_after_the_wait_was_looked_at(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store, by_asyncpg(postgres.url) as caller:
        worker = await working(store)
        leases = await run(worker, member("u1", "f"))
        await store.settle_awaited(caller.connection, Completed(leases["u1"]))
        await store.add([callback("c", ("f", 1))])
        assert await names(worker, "b") == []
        await caller.commit()
        assert await names(worker, "b") == ["c"]


async def test_suspension_and_end_in_two_turns_at_once(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store, opened(postgres, named) as second:
        worker = await working(store)
        other = await working(second, "other")
        leases = await run(worker, member("u1", "f"), NewTask("s", "a", b""))
        async with held_back(store):
            await store.turn("w", [Suspended(leases["s"], Wait((("f", 1),)))], None)
            assert await names(other, "a", outcomes=[Completed(leases["u1"])]) == []
        assert await names(other, "a") == ["s"]


async def test_signal_waits_for_a_fold_and_is_found_afterwards(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store, opened(postgres, named) as second:
        worker = await working(store)
        await store.add([callback("c", ("~s", 1))])
        async with held_back(store):
            assert await names(worker, "b") == []
            sent = asyncio.create_task(second.signal([NewSignal("~s", "1")]))
            await until(lambda: postgres.ask("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"))
            assert not sent.done()
        assert list(await sent) == [True]
        assert await names(worker, "b") == ["c"]


async def test_wait_that_is_committed_after_the_signal_is_over(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store, by_asyncpg(postgres.url) as caller:
        worker = await working(store)
        await store.add_awaited(caller.connection, [callback("c", ("~s", 1))])
        await asyncio.wait_for(store.signal([NewSignal("~s", "1")]), SOON)
        assert await names(worker, "b") == []
        await caller.commit()
        assert await names(worker, "b") == ["c"]


async def test_task_that_is_cancelled_meanwhile_is_left_to_its_canceller(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store, opened(postgres, named) as second:
        worker = await working(store)
        leases = await run(worker, member("u1", "f"), callback("c", ("f", 1)), callback("d", ("f", 1)))
        await second.connections.add.with_connection(lambda raw: raw.execute("BEGIN"))
        assert [record.uuid for record in (await second.cancel("client", ["c"])).tasks] == ["c"]
        claimed = await asyncio.wait_for(worker.claim("b", outcomes=[Completed(leases["u1"])]), SOON)
        assert [record.uuid for record in claimed.tasks] == ["d"]
        assert claimed.next_in == 2
        await second.connections.add.with_connection(lambda raw: raw.execute("ROLLBACK"))
        assert await names(worker, "b") == ["c"]


# -- in the caller's transaction


async def test_end_that_is_rolled_back_increments_nothing(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        worker = await working(store)
        leases = await run(worker, member("u1", "f"), callback("c", ("f", 1)))
        for end, counter, woken in (("rollback", Counter(), []), ("commit", Counter(1, 1), ["c"])):
            async with by_psycopg(postgres.url) as caller:
                failed = Ended(leases["u1"], "failed", b"boom")
                assert await store.settle_awaited(caller.connection, failed) == "ok"
                assert await store.counters(["f"]) == [Counter()]
                await getattr(caller, end)()
            assert await store.counters(["f"]) == [counter]
            assert await names(worker, "b") == woken


async def test_hint_about_a_wait_is_sent_with_the_commit(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store, by_asyncpg(postgres.url) as caller:
        worker = await working(store)
        leases = await run(worker, member("u1", "f"), callback("c", ("f", 1)))
        hints = store.hints("w")
        assert (await anext(hints)).resync
        await store.settle_awaited(caller.connection, Completed(leases["u1"]))
        hint = asyncio.ensure_future(anext(hints))
        await store.get(["u1"])
        assert not hint.done()
        await caller.commit()
        assert (await asyncio.wait_for(hint, SOON)).recheck
        await hints.aclose()


@pytest.mark.long
@pytest.mark.timed
async def test_open_transaction_with_a_settled_child_delays_nobody(postgres: Service, named: str) -> None:
    """Others end tasks of the same counter, wait for it, signal, subscribe and purge.

    A busy machine may delay single calls, but a lock would delay all of a kind; therefore the median is tested.
    """
    held_open = scaled(300, 5_000) / 1000
    took: dict[str, list[float]] = {}

    async def timed(name: str, call: Any) -> Any:
        start = time.perf_counter()
        answer = await asyncio.wait_for(call, SOON)
        took.setdefault(name, []).append(time.perf_counter() - start)
        return answer

    async with opened(postgres, named) as store, by_asyncpg(postgres.url) as caller:
        worker = await working(store)
        leases = await run(worker, member("u1", "f", "~s"), callback("c", ("f", 1_000_000)))
        await store.subscribe("client", ["u1"])
        assert await store.settle_awaited(caller.connection, Completed(leases["u1"])) == "ok"
        began = time.monotonic()
        number = 0
        while time.monotonic() - began < held_open or number < 5:
            number += 1
            await timed("add", store.add([member(f"m{number}", "f"), callback(f"c{number}", ("f", number))]))
            claimed = await timed("turn", worker.claim("a", "b"))
            done = [Completed(Lease(record.uuid, claimed.fence, "w")) for record in claimed.tasks]
            again = await timed("turn", worker.claim("b", outcomes=done))
            assert [record.uuid for record in again.tasks] == [f"c{number}"]
            await timed("turn", store.turn("w", [Completed(Lease(f"c{number}", again.fence, "w"))], None))
            await timed("signal", store.signal([NewSignal("~s", str(number))]))
            await timed("subscribe", store.subscribe("client", ["u1"]))
            await timed("close_session", store.close_session("client"))
            await timed("purge", store.purge(10))
        for name, seconds in took.items():
            print(f"{name}: median {statistics.median(seconds) * 1e3:.1f} ms, worst {max(seconds) * 1e3:.1f} ms")
            assert statistics.median(seconds) < AT_ONCE, name
        assert await store.counters(["f"]) == [Counter(number)]
        await caller.commit()
        assert await store.counters(["f"]) == [Counter(number + 1)]


# -- many at once


@pytest.mark.parametrize("seed", range(2))
async def test_every_waiting_task_is_resumed_once(postgres: Service, named: str, seed: int) -> None:
    """Chords whose members are ended by any worker, and signals; adds, ends and folds in any order."""
    dice = random.Random(seed)
    chords = 60
    started: Tally[str] = Tally()
    expected = {f"c{n}" for n in range(chords)} | {f"s{n}" for n in range(chords)}

    async def add(store: PostgresStore, part: range) -> None:
        for n in part:
            size = dice.randrange(1, 6)
            new = [member(f"m{n}-{k}", f"f{n}", "all") for k in range(size)]
            new += [callback(f"c{n}", (f"f{n}", size)), callback(f"s{n}", (f"~{n % 7}", 1), (f"~x{n}", 1))]
            dice.shuffle(new)
            await store.add(new[:2])
            await store.add(new[2:])
            await store.signal([NewSignal(f"~x{n}" if n % 2 else f"~{n % 7}", f"{n}")])

    async def work(number: int) -> None:
        async with opened(postgres, named) as store:
            worker = await working(store, f"w{number}")
            outcomes: list[Outcome] = []
            while not expected <= started.keys():
                claimed = await worker.claim("a", "b", outcomes=outcomes, total=dice.randrange(1, 6))
                started.update(record.uuid for record in claimed.tasks)
                outcomes = [Completed(Lease(record.uuid, claimed.fence, worker.name)) for record in claimed.tasks]
                if dice.random() < 0.3:
                    await store.turn(worker.name, outcomes, None)
                    outcomes = []
            await store.turn(worker.name, outcomes, None)

    async with opened(postgres, named) as store:
        async with asyncio.timeout(50):
            await asyncio.gather(*(add(store, range(n, chords, 3)) for n in range(3)), *map(work, range(5)))
        assert set(started.values()) == {1}
        (every,) = await store.counters(["all"])
        assert every == Counter(sum(uuid.startswith("m") for uuid in started))
        assert {state for _, state in await store.tally()} == {"succeeded"}
        assert rows(postgres, named, "waiter") == 0
