"""Errors of files: every add either raised or is durable, and the words say what to do."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from onthedot.client.add_batcher import AddBatcher
from onthedot.clock.system import SystemClock
from onthedot.errors import StoreBusy, StoreFull, StoreRefused, StoreUnavailable
from onthedot.stores import connect
from onthedot.stores.contract import ClaimRequest, Completed, Lease, NewTask, SlotPool
from onthedot.stores.sqlite import SqliteStore
from onthedot.stores.sqlite.schema import VERSION, check, install, schema_text
from tests.unit.stores.sqlite.peer import FOREVER


async def opened(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    await store.open()
    return store


@contextmanager
def locked(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as foreign:
        foreign.execute("BEGIN EXCLUSIVE")
        yield foreign


@pytest.mark.timed
async def test_add_fails_in_time_while_another_program_locks_the_file(tmp_path: Path) -> None:
    """The refused add does not take effect later."""
    store = await opened(tmp_path / "t.db")
    with locked(tmp_path / "t.db") as foreign:
        began = time.monotonic()
        with pytest.raises(StoreBusy, match="try again"):
            await store.add([NewTask("u1", "a", b"")])
        assert 3 < time.monotonic() - began < 5
        waiting = asyncio.create_task(store.add([NewTask("u2", "a", b"")]))
        await asyncio.sleep(0.5)
        foreign.execute("ROLLBACK")
        assert [added.fresh for added in await waiting] == [True]
    assert [record and record.uuid for record in await store.get(["u1", "u2"])] == [None, "u2"]
    await store.close()


async def test_adds_return_after_their_event_loop_was_blocked(tmp_path: Path) -> None:
    store = await opened(tmp_path / "t.db")
    batcher = AddBatcher(store)
    adds = [asyncio.create_task(batcher.add([NewTask(f"u{number}", "a", b"")])) for number in range(4)]
    await asyncio.sleep(0)  # the first request is sent
    time.sleep(5.5)  # noqa: ASYNC251 - longer than a caller waits for the store
    assert [added.fresh for (added,) in await asyncio.gather(*adds)] == [True] * 4
    await store.close()


async def test_expired_add_has_no_effect(tmp_path: Path) -> None:
    store = await opened(tmp_path / "t.db")
    with locked(tmp_path / "t.db"), pytest.raises(StoreUnavailable):
        await AddBatcher(store, timeout=0.2).add([NewTask("u1", "a", b""), NewTask("u2", "a", b"")])
    assert list(await store.get(["u1", "u2"])) == [None, None]
    await store.add([NewTask("u3", "a", b"")])
    assert list(await store.get(["u1", "u2"])) == [None, None]
    await store.close()


async def test_full_disk_refuses_adds_and_can_be_drained(tmp_path: Path) -> None:
    """After the drain there is space for adds again."""
    store = await opened(tmp_path / "t.db")
    await store.heartbeat("w", b"", FOREVER)
    await store.add([NewTask(f"u{number}", "a", b"x" * 5000) for number in range(20)])
    tables = store.writer.tables
    assert tables is not None
    tables.db.execute(f"PRAGMA max_page_count = {tables.db.execute('PRAGMA page_count').fetchone()[0] + 4}")
    with pytest.raises(StoreFull, match="free some space"):
        await store.add([NewTask("big", "a", b"x" * 100_000)])
    results = await asyncio.gather(
        store.add([NewTask("big", "a", b"x" * 100_000)]),
        store.add([NewTask("small", "a", b"")]),
        return_exceptions=True,
    )
    assert isinstance(results[0], StoreFull)
    assert [added.fresh for added in results[1]] == [True]  # type: ignore[union-attr]
    turn = await store.turn("w", [], ClaimRequest(1, [SlotPool(100, {"a": 100})]))
    assert turn.claim is not None
    outcomes = [Completed(Lease(record.uuid, turn.claim.fence, "w"), keep=0) for record in turn.claim.tasks]
    assert set((await store.turn("w", outcomes, None)).verdicts) == {"ok"}
    assert [added.fresh for added in await store.add([NewTask("big", "a", b"x" * 50_000)])] == [True]
    await store.close()


async def test_deleted_file_is_noticed_while_open(tmp_path: Path) -> None:
    store = await opened(tmp_path / "t.db")
    await store.add([NewTask("u1", "a", b"")])
    for name in ("t.db", "t.db-wal", "t.db-shm"):
        os.unlink(tmp_path / name)  # noqa: PTH108
    with pytest.raises(StoreUnavailable, match="deleted or replaced") as refused:
        await store.add([NewTask("u2", "a", b"")])
    assert refused.value.stored is False
    await store.add([NewTask("u3", "a", b"")])
    assert [record and record.uuid for record in await store.get(["u1", "u2", "u3"])] == [None, None, "u3"]
    await store.close()


async def test_failing_call_does_not_affect_others(tmp_path: Path) -> None:
    store = await opened(tmp_path / "t.db")
    bad = NewTask("bad", "a", object())  # type: ignore[arg-type]
    results = await asyncio.gather(
        *(store.add([NewTask(f"u{number}", "a", b"")]) for number in range(5)),
        store.add([NewTask("beside", "a", b""), bad]),
        *(store.add([NewTask(f"v{number}", "a", b"")]) for number in range(5)),
        return_exceptions=True,
    )
    assert [isinstance(result, Exception) for result in results] == [False] * 5 + [True] + [False] * 5
    assert len((await store.find({}, None, 100)).rows) == 10
    assert dict(await store.tally()) == {("a", "ready"): 10}
    await store.close()


async def test_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.db").write_text("Dear diary, " * 1000)
    with pytest.raises(StoreRefused, match="not an SQLite database"):
        await opened(tmp_path / "t.db")
    assert (tmp_path / "t.db").read_text().startswith("Dear diary")


async def test_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="a folder that exists"):
        await opened(tmp_path / "nowhere" / "t.db")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_folder_without_write_permission_is_refused(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o500)  # noqa: PTH101
    with pytest.raises(StoreRefused, match="may write"):
        await opened(tmp_path / "t.db")


async def test_newer_schema_is_refused(tmp_path: Path) -> None:
    install(str(tmp_path / "t.db"))
    with closing(sqlite3.connect(tmp_path / "t.db")) as db, db:
        db.execute("UPDATE onthedot_sequence SET version = ?", (VERSION + 1,))
    with pytest.raises(StoreRefused, match="upgrade onthedot"):
        await opened(tmp_path / "t.db")


async def test_older_schema_without_a_migration_is_refused(tmp_path: Path) -> None:
    install(str(tmp_path / "t.db"))
    with closing(sqlite3.connect(tmp_path / "t.db")) as db, db:
        db.execute("UPDATE onthedot_sequence SET version = 1")
    words = f"has schema version 1, too old to be migrated to {VERSION}: use another file"
    with pytest.raises(StoreRefused, match=words):
        await opened(tmp_path / "t.db")
    with pytest.raises(StoreRefused, match=words):
        check(str(tmp_path / "t.db"))


async def test_tables_fit_into_a_file_of_the_user(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "t.db")) as db, db:
        db.execute("CREATE TABLE task (mine)")
        db.execute("PRAGMA user_version = 77")
    store = await opened(tmp_path / "t.db")
    await store.add([NewTask("u1", "a", b"")])
    await store.close()
    with closing(sqlite3.connect(tmp_path / "t.db")) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (77,)
        assert db.execute("SELECT * FROM task").fetchall() == []


async def test_schema_can_be_installed_by_hand(tmp_path: Path) -> None:
    path = str(tmp_path / "t.db")
    assert "no such file" in check(path)[1]
    store = connect(f"sqlite:///{path}?auto_schema=0", SystemClock())
    with pytest.raises(StoreRefused, match="onthedot schema install"):
        await store.open()
    assert "run `onthedot schema install`" in check(path)[1]
    with closing(sqlite3.connect(path)) as db:
        db.executescript(schema_text())
    assert "as it should be" in check(path)[1]
    await store.open()
    await store.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite://t.db"])
def test_url_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(StoreRefused, match="memory://"):
        connect(url, SystemClock())


def test_url_with_an_unknown_option_is_refused() -> None:
    with pytest.raises(StoreRefused, match="auto_schema"):
        connect("sqlite:///t.db?journal=off", SystemClock())


async def test_closed_store_is_unavailable(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "t.db")
    with pytest.raises(StoreUnavailable, match="not open") as refused:
        await store.add([])
    assert refused.value.stored is False
    await store.open()
    await store.open()
    await store.close()
    await store.add([NewTask("u1", "a", b"")])
    await store.close()
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.get(["u1"])
    await store.open()
    assert [record and record.uuid for record in await store.get(["u1"])] == ["u1"]
    await store.close()
