"""Publish, and create resume handles, in the caller's transaction, through every driver."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest

from onthedot.errors import ArgumentError, StoreRefused
from onthedot.stores.capabilities import AsyncOutbox, find_capability
from onthedot.stores.contract import Completed, Effects, Hint, Hints, Lease, NewTask, RelayRequest
from onthedot.stores.postgres import PostgresStore
from tests.contract.event_steps import event, handle
from tests.support.services.postgres import ROWS, Service
from tests.support.waits import SOON
from tests.unit.stores.postgres.callers import DRIVERS, SYNC, by_asyncpg
from tests.unit.stores.postgres.shop import LEASE, Worker, opened, states

ROOT = Path(__file__).parents[4]
NOTHING = "SELECT 1"
drivers = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.__name__)
sync_drivers = pytest.mark.parametrize("driver", SYNC, ids=lambda driver: driver.__name__)


async def published(store: PostgresStore) -> list[str]:
    return [stored.event.id for stored in await store.find_events({}, 0, 100)]


async def relayed(store: PostgresStore, session: str = "r") -> list[str]:
    await store.heartbeat(session, b"", LEASE)
    return [stored.event.id for stored in (await store.relay(session, [], {}, RelayRequest())).events]


async def next_hint(hints: Hints) -> Hint:
    return await asyncio.wait_for(anext(hints), SOON)


def test_postgres_joins_transactions_of_publishers() -> None:
    assert find_capability(PostgresStore("postgresql://db/shop"), AsyncOutbox) is not None


@drivers
async def test_event_is_committed_or_rolled_back_with_the_caller(postgres: Service, named: str, driver: Any) -> None:
    async with opened(postgres, named) as store:
        new = event(event_id="1", payload=b'{"text": "\\u0000 \xc3\xa9"}', raw=bytes(range(256)), headers=b'{"a":"b"}')
        for end in ("rollback", "commit"):
            async with driver(postgres.url) as caller:
                await caller.run(NOTHING)
                assert list(await store.publish_awaited(caller.connection, [new, new])) == [True, False]
                assert await published(store) == []
                await getattr(caller, end)()
            if end == "rollback":
                assert postgres.ask(ROWS, named) == [], "no row in any table"
        (stored,) = await store.find_events({}, 0, 10)
        assert stored.event == new
        assert await relayed(store) == ["1"]


@sync_drivers
async def test_joined_calls_need_no_event_loop(postgres: Service, named: str, driver: Any) -> None:
    async with opened(postgres, named) as store, driver(postgres.url) as caller:
        await caller.run(NOTHING)
        assert list(store.publish_in(caller.connection, [event(event_id="1")])) == [True]
        assert store.create_handle_in(caller.connection, handle("h1")).status == "pending"
        await caller.commit()
        assert await published(store) == ["1"]
        assert [each.id for each in await store.handles(["c1"])] == ["h1"]


@drivers
async def test_handle_and_its_tasks_are_committed_together(postgres: Service, named: str, driver: Any) -> None:
    async with opened(postgres, named) as store:
        for end in ("rollback", "commit"):
            async with driver(postgres.url) as caller:
                await caller.run(NOTHING)
                created = await store.create_handle_awaited(
                    caller.connection, handle("h1"), [NewTask("u1", "a", b"", unique="k")]
                )
                assert (created.status, created.expires_at - created.created) == ("pending", 60_000)
                await getattr(caller, end)()
            assert len(await store.handles(["c1"])) == (end == "commit")
            assert await states(store, "u1") == (["ready"] if end == "commit" else [None])
        async with driver(postgres.url) as caller:
            await caller.run(NOTHING)
            again = await store.create_handle_awaited(caller.connection, handle("h2"), [NewTask("u2", "a", b"")])
            assert again == created, "one waits at a time"
            await caller.commit()
        assert await states(store, "u2") == [None]


@drivers
async def test_settle_publishes_with_the_commit_of_the_caller(postgres: Service, named: str, driver: Any) -> None:
    async with opened(postgres, named) as store:
        await store.heartbeat("w", b"", LEASE)
        await store.add([NewTask("u1", "a", b"")])
        claimed = await Worker(store, "w").claim()
        effects = Effects((NewTask("u2", "b", b""),), (event(event_id="1"), event(event_id="2")))
        done = Completed(Lease("u1", claimed.fence, "w"), effects=effects)
        for end, verdict in (("rollback", "ok"), ("commit", "ok"), ("commit", "repeat")):
            async with driver(postgres.url) as caller:
                await caller.run(NOTHING)
                assert await store.settle_awaited(caller.connection, done) == verdict
                await getattr(caller, end)()
            assert await published(store) == ([] if end == "rollback" else ["1", "2"])
        assert await states(store, "u1", "u2") == ["succeeded", "ready"]


@pytest.mark.parametrize("kind", ["publish", "settle"])
async def test_relay_gets_a_hint_at_the_commit(postgres: Service, named: str, kind: str) -> None:
    async with opened(postgres, named) as store, by_asyncpg(postgres.url) as caller:
        await relayed(store)
        await store.heartbeat("w", b"", LEASE)
        await store.add([NewTask("u1", "a", b"")])
        claimed = await Worker(store, "w").claim()
        hints = store.hints("r")
        assert (await next_hint(hints)).resync
        if kind == "publish":
            await store.publish_awaited(caller.connection, [event()])
        else:
            done = Completed(Lease("u1", claimed.fence, "w"), effects=Effects(events=(event(),)))
            assert await store.settle_awaited(caller.connection, done) == "ok"
        hint = asyncio.ensure_future(next_hint(hints))
        await store.get(["u1"])
        assert not hint.done()
        await caller.commit()
        assert (await hint).events
        await hints.aclose()


async def test_only_members_of_groups_get_hints_about_events(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store, opened(postgres, named) as other:
        await relayed(store)
        relay = store.hints("r")
        worker = store.hints("w")
        assert (await next_hint(relay)).resync
        assert (await next_hint(worker)).resync
        await other.publish([event()])
        assert (await next_hint(relay)).events
        await other.add([NewTask("u1", "a", b"")])
        hint = await next_hint(worker)
        assert (hint.sources, hint.events) == ({"a"}, False)
        await relay.aclose()
        await worker.aclose()


async def test_joined_publish_without_notify_leaves_no_hint(postgres: Service, named: str) -> None:
    store = PostgresStore(f"{postgres.url}?notify=0", name=named)
    assert not store.traits.joined_hints
    await store.open()
    assert await relayed(store) == []
    hints = store.hints("r")
    assert (await next_hint(hints)).resync
    async with by_asyncpg(postgres.url) as caller:
        await store.publish_awaited(caller.connection, [event(event_id="1")])
        await caller.commit()
    await store.add([NewTask("u1", "a", b"")])
    assert not (await next_hint(hints)).events
    assert await relayed(store) == ["1"]
    await hints.aclose()
    await store.close()


KILLED = """
import os, signal, sys
import psycopg
from onthedot.stores.contract import NewEvent
from onthedot.stores.postgres import PostgresStore

url, app, when = sys.argv[1:]
connection = psycopg.connect(url)
PostgresStore(url, name=app).publish_in(connection, [NewEvent(f"{when} commit", "t", "k", 3)])
if when == "after":
    connection.commit()
os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_event_of_a_killed_publisher_is_sent_if_it_was_committed(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        for when in ("before", "after"):
            command = [sys.executable, "-c", KILLED, postgres.url, named, when]
            killed = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, check=False, timeout=SOON)
            assert killed.returncode == -signal.SIGKILL
        assert await relayed(store) == ["after commit"]


async def test_failing_publish_names_the_value(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        for bad in (event(key="\0"), event(payload=b"{no JSON}")):
            with pytest.raises(ArgumentError, match="Postgres cannot store it"):
                await store.publish([event(event_id="1"), bad])
        assert await published(store) == []


async def test_wrong_connections_are_refused(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        connection = await asyncpg.connect(postgres.url)
        with pytest.raises(StoreRefused, match="begin a transaction"):
            await store.publish_awaited(connection, [event()])
        with pytest.raises(StoreRefused, match=r"await app.publish"):
            store.publish_in(connection, [event()])
        with pytest.raises(StoreRefused, match=r"await app.expect"):
            store.create_handle_in(connection, handle())
        await connection.close()
        plain = psycopg.connect(postgres.url, autocommit=True)
        with plain, pytest.raises(StoreRefused, match="begin a transaction"):
            store.create_handle_in(plain, handle())
        with pytest.raises(StoreRefused, match="joined through asyncpg"):
            store.publish_in(object(), [event()])


async def test_connection_may_have_its_own_json_codec(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store, by_asyncpg(postgres.url) as caller:
        await caller.connection.set_type_codec("json", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
        assert list(await store.publish_awaited(caller.connection, [event(event_id="1")])) == [True]
        assert (await store.create_handle_awaited(caller.connection, handle())).status == "pending"
        (added,) = await store.add_awaited(caller.connection, [NewTask("u1", "a", b"")])
        assert added.fresh
        await caller.commit()
        assert await published(store) == ["1"]
