"""Adding and settling inside the caller's own transaction, through every driver."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

import asyncpg
import psycopg
import pytest

from onthedot.errors import StoreRefused
from onthedot.stores.contract import Completed, Lease, Limit, NewTask, Policy
from onthedot.stores.postgres import PostgresStore
from tests.faults import scaled
from tests.support.services.postgres import ROWS, Service
from tests.support.waits import until
from tests.unit.stores.postgres.callers import DRIVERS, SYNC, by_asyncpg
from tests.unit.stores.postgres.shop import LEASE, Worker, opened, states

SOON = 0.1  # seconds: what others may wait for a transaction that somebody keeps open
NOTHING = "SELECT 1"


drivers = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.__name__)


@drivers
async def test_both_or_neither(postgres: Service, named: str, driver: Any) -> None:
    async with opened(postgres, named) as store:
        new = NewTask("u1", "a", bytes(range(256)), unique="joined", policy=Policy(tags=("x",)))
        for end in ("rollback", "commit"):
            async with driver(postgres.url) as caller:
                await caller.run(NOTHING)
                (added,) = await store.add_awaited(caller.connection, [new])
                assert added.fresh
                assert await states(store, "u1") == [None]
                await getattr(caller, end)()
            if end == "rollback":
                assert await states(store, "u1") == [None]
                assert dict(await store.tally()) == {}
                assert postgres.ask(ROWS, named) == [], "no task, no key, no tally: no row in any table"
        (record,) = await store.get(["u1"])
        assert record is not None
        assert (record.state, record.body, record.policy) == ("ready", new.body, new.policy)
        assert dict(await store.tally()) == {("a", "ready"): 1}


@pytest.mark.parametrize("driver", SYNC, ids=lambda driver: driver.__name__)
async def test_sync_code_needs_no_loop(postgres: Service, named: str, driver: Any) -> None:
    async with opened(postgres, named) as store, driver(postgres.url) as caller:
        await caller.run(NOTHING)
        assert [added.fresh for added in store.add_in(caller.connection, [NewTask("u1", "a", b"")])] == [True]
        await caller.commit()
        assert await states(store, "u1") == ["ready"]


@drivers
async def test_settle_with_what_the_task_has_done(postgres: Service, named: str, driver: Any) -> None:
    async with opened(postgres, named) as store:
        await store.heartbeat("w", b"", LEASE)
        await store.add([NewTask("u1", "a", b"", unique="joined", lane="a/k", policy=Policy(reply_to="w"))])
        claimed = await Worker(store, "w").claim()
        done = Completed(Lease("u1", claimed.fence, "w"), b"42")
        for end, verdict in (("rollback", "ok"), ("commit", "ok"), ("rollback", "repeat")):
            async with driver(postgres.url) as caller:
                await caller.run(NOTHING)
                assert await store.settle_awaited(caller.connection, done) == verdict
                await getattr(caller, end)()
        (record,) = await store.get(["u1"])
        assert record is not None
        assert (record.state, record.history.result) == ("succeeded", b"42")
        assert (await store.turn("w", [done], None)).verdicts == ["repeat"]
        assert dict(await store.tally()) == {("a", "succeeded"): 1}


async def test_who_listens_hears_of_it_with_the_commit(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store, by_asyncpg(postgres.url) as caller:
        hints = store.hints("w")
        assert (await anext(hints)).resync
        await store.add_awaited(caller.connection, [NewTask("u1", "a", b"")])
        heard = asyncio.ensure_future(anext(hints))
        await store.get(["u1"])
        assert not heard.done()
        await caller.commit()
        assert (await asyncio.wait_for(heard, 5)).sources == {"a"}
        await hints.aclose()


class Others:
    """What others do meanwhile, and how long each of it takes."""

    def __init__(self, store: PostgresStore, worker: Worker) -> None:
        self.store, self.worker = store, worker
        self.held: list[Lease] = []
        self.number = 0
        self.took: dict[str, list[float]] = {}

    async def go_on(self) -> None:
        self.number += 1
        for work in (self.add, self.turn, self.heartbeat, self.look, self.purge):
            start = time.perf_counter()
            await asyncio.wait_for(work(), 2)
            self.took.setdefault(work.__name__, []).append(time.perf_counter() - start)

    async def add(self) -> None:
        laned = NewTask(f"o{self.number}", "a", b"", lane="a/k")
        await self.store.add([laned, NewTask(f"p{self.number}", "b", b"", unique=f"{self.number}")])

    async def turn(self) -> None:
        done = [Completed(lease) for lease in self.held]
        claimed = await self.worker.claim("a", "b", outcomes=done, total=3)
        self.held = [Lease(record.uuid, claimed.fence, self.worker.name) for record in claimed.tasks]

    async def heartbeat(self) -> None:
        await self.store.heartbeat(self.worker.name, b"", LEASE)

    async def look(self) -> None:
        await self.store.get(["u1"])

    async def purge(self) -> None:
        await self.store.purge(10)


@drivers
async def test_others_do_not_wait_for_a_transaction_that_stays_open(postgres: Service, named: str, driver: Any) -> None:
    """It adds to a new source, with a key, replaces one that waits in a lane, and settles one of a claim.

    A busy machine may hold up one call or another, a lock would hold up all of a kind: so the median counts.
    """
    held_open = scaled(300, 5_000) / 1000
    async with opened(postgres, named) as store, driver(postgres.url) as caller:
        worker = Worker(store, "w")
        await store.heartbeat("w", b"", LEASE)
        await store.put_limits([Limit("a/*", cap=2), Limit("b", cap=5)])
        await store.add([NewTask("r1", "a", b"1", lane="a/k"), NewTask("r2", "a", b"", lane="a/k")])
        await store.add([NewTask("k1", "a", b"1", lane="a/k", unique="k", after=0)])
        claimed = await worker.claim()
        assert [record.uuid for record in claimed.tasks] == ["r1", "r2"]
        replacing = NewTask("k2", "a", b"2", unique="k", policy=Policy(on_conflict="replace"))
        await caller.run(NOTHING)
        await store.add_awaited(caller.connection, [NewTask("u1", "new", b"", unique="joined"), replacing])
        assert await store.settle_awaited(caller.connection, Completed(Lease("r1", claimed.fence, "w"))) == "ok"
        others, began = Others(store, worker), time.monotonic()
        while time.monotonic() - began < held_open or others.number < 5:
            await others.go_on()
        for work, took in others.took.items():
            print(f"{work}: median {statistics.median(took) * 1e3:.1f} ms, worst {max(took) * 1e3:.1f} ms")
            assert statistics.median(took) < SOON, work
        assert await states(store, "u1", "r1") == [None, "running"]
        await caller.commit()
        assert await states(store, "u1", "r1") == ["ready", "succeeded"]
        (replaced,) = await store.get(["k1"])
        assert replaced is not None
        assert (replaced.body, replaced.lane) == (b"2", None)


async def test_a_slot_that_was_freed_inside_is_given_on_after_the_commit(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store, by_asyncpg(postgres.url) as caller:
        worker = Worker(store, "w")
        await store.heartbeat("w", b"", LEASE)
        await store.put_limits([Limit("a/*", cap=1)])
        await store.add([NewTask("u1", "a", b"", lane="a/k"), NewTask("u2", "a", b"", lane="a/k")])
        claimed = await worker.claim()
        assert await store.settle_awaited(caller.connection, Completed(Lease("u1", claimed.fence, "w"))) == "ok"
        assert list((await worker.claim()).tasks) == []
        await caller.commit()
        assert [record.uuid for record in (await worker.claim()).tasks] == ["u2"]


async def test_the_dead_are_not_reclaimed_from_a_transaction_that_ends_them(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store, by_asyncpg(postgres.url) as caller:
        await store.heartbeat("w", b"", LEASE)
        await store.heartbeat("other", b"", LEASE)
        await store.add([NewTask("u1", "a", b"")])
        claimed = await Worker(store, "w").claim()
        assert await store.settle_awaited(caller.connection, Completed(Lease("u1", claimed.fence, "w"))) == "ok"
        await asyncio.wait_for(store.close_session("w", crashed=True), 2)
        other = Worker(store, "other")
        assert list((await asyncio.wait_for(other.claim(), 2)).tasks) == []
        await caller.commit()
        assert list((await other.claim()).tasks) == []
        assert await states(store, "u1") == ["succeeded"]
        assert set(await store.sessions()) == {"other"}


@pytest.mark.parametrize("connection", ["shop", None, object()])
async def test_what_is_no_connection(postgres: Service, named: str, connection: object) -> None:
    async with opened(postgres, named) as store:
        with pytest.raises(StoreRefused, match="joined through asyncpg"):
            store.add_in(connection, [NewTask("u1", "a", b"")])


async def test_there_must_be_a_transaction_and_the_right_colour(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        connection = await asyncpg.connect(postgres.url)
        with pytest.raises(StoreRefused, match="begin a transaction"):
            await store.add_awaited(connection, [NewTask("u1", "a", b"")])
        with pytest.raises(StoreRefused, match="await"):
            store.add_in(connection, [NewTask("u1", "a", b"")])
        await connection.close()
        with psycopg.connect(postgres.url, autocommit=True) as plain:
            with pytest.raises(StoreRefused, match="begin a transaction"):
                store.add_in(plain, [NewTask("u1", "a", b"")])
            with plain.transaction():
                store.add_in(plain, [NewTask("u1", "a", b"")])
        await until(lambda: states(store, "u1"))
        assert await states(store, "u1") == ["ready"]
