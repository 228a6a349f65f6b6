"""Publishing, and creating resume handles, inside the caller's own transaction."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from onthedot.errors import StoreRefused
from onthedot.stores.capabilities import SyncOutbox, find_capability
from onthedot.stores.contract import Hints, NewEvent, NewTask, RelayRequest
from onthedot.stores.sqlite import SqliteStore
from onthedot.stores.sqlite.schema import check as check_schema
from tests.contract.event_steps import event, handle
from tests.support.sync_callers import WAYS, Way
from tests.support.waits import SOON
from tests.unit.stores.sqlite.peer import FOREVER, peers

ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


@asynccontextmanager
async def shop(folder: Path) -> AsyncIterator[tuple[SqliteStore, sqlite3.Connection]]:
    """A store with a relay, and a connection to the same file with a table of its own."""
    store = SqliteStore(folder / "shop.db")
    await store.open()
    await store.heartbeat("r", b"", FOREVER)
    assert await relayed(store) == []
    with closing(sqlite3.connect(folder / "shop.db")) as db:
        db.execute("CREATE TABLE sale (name)")
        db.commit()
        yield store, db
    await store.close()


async def relayed(store: SqliteStore) -> list[str]:
    return [stored.event.id for stored in (await store.relay("r", [], {}, RelayRequest())).events]


async def published(store: SqliteStore) -> list[str]:
    return [stored.event.id for stored in await store.find_events({}, 0, 100)]


async def hear_of_events(hints: Hints) -> None:
    while not (await anext(hints)).events:
        pass


def test_sqlite_joins_transactions_of_publishers(tmp_path: Path) -> None:
    assert find_capability(SqliteStore(tmp_path / "shop.db"), SyncOutbox) is not None


async def test_event_and_row_are_committed_together(tmp_path: Path) -> None:
    async with shop(tmp_path) as (store, db):
        for end in (db.rollback, db.commit):
            db.execute("INSERT INTO sale VALUES ('shoes')")
            assert store.publish_in(db, [event(event_id="1"), event(event_id="1")]) == [True, False]
            assert await published(store) == []
            end()
        assert await relayed(store) == ["1"]
        assert db.execute("SELECT * FROM sale").fetchall() == [("shoes",)]


@ways
async def test_first_publish_to_a_file_makes_the_schema_with_the_commit(tmp_path: Path, way: Way) -> None:
    store = SqliteStore(tmp_path / "shop.db")
    with way(f"sqlite:///{tmp_path}/shop.db") as caller:
        caller.run("CREATE TABLE sale (name)")
        caller.commit()
        for end in (caller.rollback, caller.commit):
            caller.run("INSERT INTO sale VALUES ('shoes')")
            assert store.publish_in(caller.connection, [event(event_id="1")]) == [True]
            end()
            assert check_schema(str(tmp_path / "shop.db"))[0] == (end is caller.commit)
    await store.open()
    assert await published(store) == ["1"]
    await store.close()


@ways
async def test_handle_and_its_tasks_are_committed_together(tmp_path: Path, way: Way) -> None:
    async with shop(tmp_path) as (store, _):
        with way(f"sqlite:///{tmp_path}/shop.db") as caller:
            for end in (caller.rollback, caller.commit):
                caller.run("INSERT INTO sale VALUES ('shoes')")
                created = store.create_handle_in(caller.connection, handle("h1"), [NewTask("u1", "a", b"")])
                assert (created.status, created.expires_at - created.created) == ("pending", 60_000)
                end()
                assert len(await store.handles(["c1"])) == (end is caller.commit)
                assert (await store.get(["u1"]) != [None]) == (end is caller.commit)
            caller.run("INSERT INTO sale VALUES ('shoes')")
            assert store.create_handle_in(caller.connection, handle("h2")) == created, "one waits at a time"
            caller.commit()


async def test_relays_are_notified_after_the_commit_of_the_publisher(tmp_path: Path) -> None:
    async with shop(tmp_path) as (store, db):
        hints = store.hints("r")
        await anext(hints)
        with peers(tmp_path / "shop.db", "p1") as (peer,):
            peer.ask("relay")
            peer.say("event hint")
            hint = asyncio.ensure_future(hear_of_events(hints))
            db.execute("BEGIN IMMEDIATE")
            store.publish_in(db, [event()])
            await asyncio.sleep(0.1)
            assert not hint.done()
            db.commit()
            await asyncio.wait_for(hint, SOON)
            assert peer.hear() is None
        await hints.aclose()


async def test_event_of_a_publisher_without_a_store_is_found_without_a_hint(tmp_path: Path) -> None:
    """The publisher's store is never opened, and its process could end with the commit."""
    async with shop(tmp_path) as (store, db):
        publisher = SqliteStore(tmp_path / "shop.db")
        db.execute("BEGIN IMMEDIATE")
        publisher.publish_in(db, [event(event_id="1")])
        db.commit()
        assert await relayed(store) == ["1"]
        await publisher.open()
        await publisher.close()


async def test_failing_publish_keeps_the_transaction_of_the_caller(tmp_path: Path) -> None:
    async with shop(tmp_path) as (store, db):
        db.execute("INSERT INTO sale VALUES ('shoes')")
        store.publish_in(db, [event(event_id="1")])
        bad: Any = NewEvent("3", "t", "k", 1, payload=object())  # type: ignore[arg-type]
        with pytest.raises(Exception, match="type"):
            store.publish_in(db, [event(event_id="2"), bad])
        db.commit()
        assert await published(store) == ["1"]
        assert db.execute("SELECT * FROM sale").fetchall() == [("shoes",)]


async def test_foreign_connections_are_refused(tmp_path: Path) -> None:
    async with shop(tmp_path) as (store, db):
        with pytest.raises(StoreRefused, match="begin a transaction"):
            store.publish_in(db, [event()])
        with pytest.raises(StoreRefused, match="begin a transaction"):
            store.create_handle_in(db, handle())
        with pytest.raises(StoreRefused, match="it is async"):
            store.publish_in(AsyncSession(), [event()])
        for other in (":memory:", str(tmp_path / "other.db")):
            with closing(sqlite3.connect(other)) as stranger:
                stranger.execute("BEGIN")
                with pytest.raises(StoreRefused, match="one file"):
                    store.publish_in(stranger, [event()])
