"""Adding and settling inside the caller's own transaction."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session

from onthedot.errors import StoreBusy, StoreRefused
from onthedot.stores.contract import ClaimRequest, Completed, Lease, NewTask, Policy, SlotPool
from onthedot.stores.sqlite import SqliteStore
from onthedot.stores.sqlite.schema import check as check_schema
from tests.support.sync_callers import WAYS, Way
from tests.support.waits import SOON
from tests.unit.stores.sqlite.peer import FOREVER, peers


@asynccontextmanager
async def shop(folder: Path) -> AsyncIterator[tuple[SqliteStore, sqlite3.Connection]]:
    """A store, and a connection to the same file with a table of its own."""
    store = SqliteStore(folder / "shop.db")
    await store.open()
    await store.heartbeat("w", b"", FOREVER)
    with closing(sqlite3.connect(folder / "shop.db")) as db:
        db.row_factory = sqlite3.Row
        db.execute("CREATE TABLE sale (name)")
        db.commit()
        yield store, db
    await store.close()


async def there(store: SqliteStore, *uuids: str) -> list[str | None]:
    return [record and record.state for record in await store.get(uuids)]


async def test_task_and_row_are_committed_together(tmp_path: Path) -> None:
    async with shop(tmp_path) as (store, db):
        for end in (db.rollback, db.commit):
            db.execute("INSERT INTO sale VALUES ('shoes')")
            assert [added.fresh for added in store.add_in(db, [NewTask("u1", "a", b"", policy=Policy(expires=9))])] == [
                True
            ]
            assert await there(store, "u1") == [None]
            end()
        assert await there(store, "u1") == ["ready"]
        assert [dict(row) for row in db.execute("SELECT * FROM sale")] == [{"name": "shoes"}]
        assert dict(await store.tally()) == {("a", "ready"): 1}


async def test_failing_add_keeps_the_transaction_of_the_caller(tmp_path: Path) -> None:
    async with shop(tmp_path) as (store, db):
        db.execute("INSERT INTO sale VALUES ('shoes')")
        store.add_in(db, [NewTask("u1", "a", b"")])
        with pytest.raises(sqlite3.Error):
            db.execute("nonsense")
        with pytest.raises(Exception, match="type"):
            store.add_in(db, [NewTask("u2", "a", b""), NewTask("u3", "a", object())])  # type: ignore[arg-type]
        db.commit()
        assert await there(store, "u1", "u2", "u3") == ["ready", None, None]
        assert [added.fresh for added in await store.add([NewTask("u4", "a", b"")])] == [True]


async def test_workers_are_notified_after_the_commit_of_the_caller(tmp_path: Path) -> None:
    async with shop(tmp_path) as (store, db):
        hints = store.hints("w")
        await anext(hints)
        with peers(tmp_path / "shop.db", "p1") as (peer,):
            peer.say("hint")
            db.execute("BEGIN IMMEDIATE")
            store.add_in(db, [NewTask("u1", "a", b"")])
            hint = asyncio.ensure_future(anext(hints))
            await asyncio.sleep(0.1)
            assert not hint.done()
            db.commit()
            assert (await asyncio.wait_for(hint, SOON)).sources == {"a"}
            assert peer.hear()[0] == ["a"]
        await hints.aclose()


async def test_settle_is_committed_with_the_rows_of_the_task(tmp_path: Path) -> None:
    async with shop(tmp_path) as (store, db):
        await store.add([NewTask("u1", "a", b"")])
        turn = await store.turn("w", [], ClaimRequest(1, [SlotPool(1, {"a": 1})]))
        assert turn.claim is not None
        outcome = Completed(Lease("u1", turn.claim.fence, "w"), b"42")
        for end, verdict in ((db.rollback, "ok"), (db.commit, "ok"), (db.rollback, "repeat")):
            db.execute("INSERT INTO sale VALUES ('shoes')")
            assert store.settle_in(db, outcome) == verdict
            end()
        assert await there(store, "u1") == ["succeeded"]
        assert (await store.turn("w", [outcome], None)).verdicts == ["repeat"]
        assert len(db.execute("SELECT * FROM sale").fetchall()) == 1


async def test_transaction_with_an_old_snapshot_is_refused(tmp_path: Path) -> None:
    async with shop(tmp_path) as (store, db):
        db.execute("BEGIN")
        db.execute("SELECT * FROM sale").fetchall()
        await store.add([NewTask("u1", "a", b"")])
        with pytest.raises(StoreBusy):
            store.add_in(db, [NewTask("u2", "a", b"")])
        db.rollback()


async def test_foreign_connections_are_refused(tmp_path: Path) -> None:
    async with shop(tmp_path) as (store, db):
        with db, pytest.raises(StoreRefused, match=r"begin a transaction first.*; sqlite3 .* not at `with`: .* BEGIN"):
            store.add_in(db, [NewTask("u1", "a", b"")])
        for other in (":memory:", str(tmp_path / "other.db")):
            with closing(sqlite3.connect(other)) as stranger:
                stranger.execute("BEGIN")
                with pytest.raises(StoreRefused, match="one file"):
                    store.add_in(stranger, [NewTask("u1", "a", b"")])


# -- files without a schema, and SQLAlchemy

ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


@ways
async def test_the_first_add_to_a_file_makes_the_schema_with_the_commit(tmp_path: Path, way: Way) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    store = SqliteStore(tmp_path / "shop.db")
    new = NewTask("u1", "a", b"")
    with way(url) as caller:
        caller.run("CREATE TABLE sale (name)")
        caller.commit()
        for end in (caller.rollback, caller.commit):
            caller.run("INSERT INTO sale VALUES ('shoes')")
            assert [added.fresh for added in store.add_in(caller.connection, [new])] == [True]
            end()
            assert check_schema(str(tmp_path / "shop.db"))[0] == (end is caller.commit)
    await store.open()
    assert await there(store, "u1") == ["ready"]
    await store.close()


def test_a_store_that_may_not_make_the_schema_refuses_the_first_add(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "shop.db", auto_schema=False)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        db.execute("BEGIN")
        with pytest.raises(StoreRefused, match="onthedot schema install"):
            store.add_in(db, [NewTask("u1", "a", b"")])


@pytest.mark.parametrize("connection", [AsyncSession(), async_scoped_session(AsyncSession, lambda: 0)], ids=type)
def test_an_async_session_is_refused_with_the_reason(tmp_path: Path, connection: object) -> None:
    with pytest.raises(StoreRefused, match=r"a sync Connection or Session of SQLAlchemy, not .*: it is async"):
        SqliteStore(tmp_path / "shop.db").add_in(connection, [NewTask("u1", "a", b"")])


def test_an_autocommit_connection_of_sqlalchemy_is_refused(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(StoreRefused, match=r"there is nothing to join$"):
        SqliteStore(tmp_path / "shop.db").add_in(connection, [NewTask("u1", "a", b"")])
    engine.dispose()


async def test_rows_of_the_caller_may_be_of_any_type(tmp_path: Path) -> None:
    async with shop(tmp_path) as (store, db):
        db.row_factory = lambda cursor, row: {column[0]: value for column, value in zip(cursor.description, row)}  # noqa: B905
        db.execute("INSERT INTO sale VALUES ('shoes')")
        store.add_in(db, [NewTask("u1", "a", b"")])
        db.commit()
        assert await there(store, "u1") == ["ready"]
        assert db.execute("SELECT * FROM sale").fetchall() == [{"name": "shoes"}]
