"""The data of a file are lost or replaced while a store has it open."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from onthedot.errors import StoreUnavailable
from onthedot.stores.contract import ClaimRequest, NewTask, SlotPool, StoreIdentity
from onthedot.stores.sqlite import SqliteStore
from tests.unit.stores.sqlite.peer import FOREVER


def copy_data(source: Path, target: Path) -> None:
    """As `sqlite3 source ".backup target"` does; the target stays the same file."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


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
        for side in ("t.db-wal", "t.db-shm"):
            (tmp_path / side).unlink()
        with pytest.raises(StoreUnavailable, match="replaced"):
            await identity(store, "w", 3)
        await store.heartbeat("w2", b"", FOREVER)
    restored = await identity(store, "w" if in_place else "w2", 3)
    assert older is not None
    assert newer is not None
    assert restored is not None
    assert {older.id, newer.id, restored.id} == {older.id}
    if in_place:
        assert older.last_fence == restored.last_fence < newer.last_fence
    else:  # the new session has taken over the task of the old one
        assert restored.last_fence == older.last_fence + 1
    await store.add([NewTask("b2", "b", b"")])
    assert [record and record.source for record in await store.get(["a1", "b1", "b2"])] == ["a", None, "b"]
    await store.close()
