"""Add and settle in the caller's transaction, through every driver."""

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
from tests.support.waits import SOON, until
from tests.unit.stores.postgres.callers import DRIVERS, SYNC, by_asyncpg
from tests.unit.stores.postgres.shop import LEASE, Worker, opened, states

AT_ONCE = 0.1  # seconds that a call of others may take
NOTHING = "SELECT 1"


drivers = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.__name__)


@drivers
async def test_an_add_is_committed_or_rolled_back_with_the_caller(postgres: Service, named: str, driver: Any) -> None:
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
async def test_add_in_needs_no_event_loop(postgres: Service, named: str, driver: Any) -> None:
    async with opened(postgres, named) as store, driver(postgres.url) as caller:
        await caller.run(NOTHING)
        assert [added.fresh for added in store.add_in(caller.connection, [NewTask("u1", "a", b"")])] == [True]
        await caller.commit()
        assert await states(store, "u1") == ["ready"]


@drivers
async def test_a_settle_is_committed_or_rolled_back_with_the_caller(postgres: Service, named: str, driver: Any) -> None:
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


async def test_a_hint_is_sent_with_the_commit(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store, by_asyncpg(postgres.url) as caller:
        hints = store.hints("w")
        assert (await anext(hints)).resync
        await store.add_awaited(caller.connection, [NewTask("u1", "a", b"")])
        hint = asyncio.ensure_future(anext(hints))
        await store.get(["u1"])
        assert not hint.done()
        await caller.commit()
        assert (await asyncio.wait_for(hint, SOON)).sources == {"a"}
        await hints.aclose()


class Others:
    """Calls of other clients, and how long they take."""

    def __init__(self, store: PostgresStore, worker: Worker) -> None:
        self.store = store
        self.worker = worker
        self.held: list[Lease] = []
        self.number = 0
        self.took: dict[str, list[float]] = {}

    async def go_on(self) -> None:
        self.number += 1
        for work in (self.add, self.turn, self.heartbeat, self.get, self.purge):
            start = time.perf_counter()
            await asyncio.wait_for(work(), SOON)
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

    async def get(self) -> None:
        await self.store.get(["u1"])

    async def purge(self) -> None:
        await self.store.purge(10)


@pytest.mark.long
@pytest.mark.timed
@drivers
async def test_an_open_transaction_does_not_delay_others(postgres: Service, named: str, driver: Any) -> None:
    """The transaction adds to a new source with a key, replaces a parked task and settles a running one.

    A busy machine may delay single calls, but a lock would delay all of a kind; therefore the median is tested.
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
        others = Others(store, worker)
        began = time.monotonic()
        while time.monotonic() - began < held_open or others.number < 5:
            await others.go_on()
        for work, took in others.took.items():
            print(f"{work}: median {statistics.median(took) * 1e3:.1f} ms, worst {max(took) * 1e3:.1f} ms")
            assert statistics.median(took) < AT_ONCE, work
        assert await states(store, "u1", "r1") == [None, "running"]
        await caller.commit()
        assert await states(store, "u1", "r1") == ["ready", "succeeded"]
        (replaced,) = await store.get(["k1"])
        assert replaced is not None
        assert (replaced.body, replaced.lane) == (b"2", None)


async def test_capacity_released_in_a_transaction_is_available_after_the_commit(postgres: Service, named: str) -> None:
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


async def test_a_task_settled_in_an_open_transaction_is_not_reaped(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store, by_asyncpg(postgres.url) as caller:
        await store.heartbeat("w", b"", LEASE)
        await store.heartbeat("other", b"", LEASE)
        await store.add([NewTask("u1", "a", b"")])
        claimed = await Worker(store, "w").claim()
        assert await store.settle_awaited(caller.connection, Completed(Lease("u1", claimed.fence, "w"))) == "ok"
        await asyncio.wait_for(store.close_session("w", crashed=True), SOON)
        other = Worker(store, "other")
        assert list((await asyncio.wait_for(other.claim(), SOON)).tasks) == []
        await caller.commit()
        assert list((await other.claim()).tasks) == []
        assert await states(store, "u1") == ["succeeded"]
        assert set(await store.sessions()) == {"other"}


@pytest.mark.parametrize("connection", ["shop", None, object()])
async def test_an_unknown_connection_is_refused(postgres: Service, named: str, connection: object) -> None:
    async with opened(postgres, named) as store:
        with pytest.raises(StoreRefused, match="joined through asyncpg"):
            store.add_in(connection, [NewTask("u1", "a", b"")])


async def test_autocommit_and_async_connections_in_sync_code_are_refused(postgres: Service, named: str) -> None:
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
