"""The data of a file are lost or replaced while a store has it open."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from onthedot import App, IntervalSchedule
from onthedot.errors import StoreUnavailable
from onthedot.stores.contract import ClaimRequest, NewTask, SlotPool, StoreIdentity
from onthedot.stores.sqlite import SqliteStore
from tests.support.waits import until
from tests.unit.stores.sqlite.peer import FOREVER


def copy_data(source: Path, target: Path) -> None:
    """As `sqlite3 source ".backup target"` does; the target stays the same file."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


def remove_database(path: Path) -> None:
    for side in ("", "-wal", "-shm"):
        Path(f"{path}{side}").unlink()


async def identity(store: SqliteStore, session: str, number: int) -> StoreIdentity | None:
    """None: the session is not known any more."""
    turn = await store.turn(session, [], ClaimRequest(number, [SlotPool(9, {"a": 9})]))
    return None if turn.claim is None else turn.claim.identity


async def opened(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    await store.open()
    await store.heartbeat("w", b"", FOREVER)
    return store


async def test_replaced_file_has_another_identity(tmp_path: Path) -> None:
    store = await opened(tmp_path / "t.db")
    before = await identity(store, "w", 1)
    other = await opened(tmp_path / "other.db")
    await other.close()
    (tmp_path / "other.db").rename(tmp_path / "t.db")
    (tmp_path / "t.db-wal").unlink()
    (tmp_path / "t.db-shm").unlink()
    with pytest.raises(StoreUnavailable, match="replaced"):
        await identity(store, "w", 2)
    assert await identity(store, "w", 2) is None
    await store.heartbeat("w2", b"", FOREVER)
    after = await identity(store, "w2", 1)
    assert before is not None
    assert after is not None
    assert before.id != after.id
    await store.close()


@pytest.mark.parametrize("in_place", [False, True])
async def test_older_copy_has_the_same_identity_and_a_lower_fence(tmp_path: Path, in_place: bool) -> None:
    path = tmp_path / "t.db"
    store = await opened(path)
    await store.add([NewTask("a1", "a", b"")])
    older = await identity(store, "w", 1)
    copy_data(path, tmp_path / "copy.db")
    await store.add([NewTask("a2", "a", b""), NewTask("b1", "b", b"")])  # the copy does not know the source b
    newer = await identity(store, "w", 2)
    if in_place:
        copy_data(tmp_path / "copy.db", path)
    else:
        shutil.copy(tmp_path / "copy.db", tmp_path / "new.db")
        (tmp_path / "new.db").rename(path)
        (tmp_path / "t.db-wal").unlink()
        (tmp_path / "t.db-shm").unlink()
        with pytest.raises(StoreUnavailable, match="replaced"):
            await identity(store, "w", 3)
    restored = await identity(store, "w", 3)
    assert older is not None
    assert newer is not None
    assert restored is not None
    assert {older.id, newer.id, restored.id} == {older.id}
    # The task is leased again to the same session, whose requests are lost.
    assert restored.last_fence == older.last_fence + 1
    await store.add([NewTask("b2", "b", b"")])
    assert [record and record.source for record in await store.get(["a1", "b1", "b2"])] == ["a", None, "b"]
    await store.close()


async def test_worker_declares_again_after_its_file_was_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The session is unknown in the new file, and so are limits and schedules."""
    path = tmp_path / "t.db"
    app = App("shop", store=f"sqlite:///{path}", poll_interval=1)
    runs: list[datetime] = []
    most = 0
    running = 0

    @app.schedule(IntervalSchedule(0.5))
    async def tick() -> None:
        runs.append(datetime.now(UTC))

    @app.task(concurrency=1)
    async def alone() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1

    async with app, app.running():
        await until(lambda: len(runs) >= 2)
        remove_database(path)
        replaced = datetime.now(UTC)
        await until(lambda: sum(run > replaced for run in runs) >= 2)
        for handle in [await alone.enqueue() for _ in range(5)]:
            await handle
    assert most == 1
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len([message for message in errors if "may be gone" in message]) == 1, errors
