"""The disk: who adds waits for it, who claims does not, and nothing is without it for long."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from onthedot.errors import StoreUnavailable
from onthedot.stores.contract import ClaimRequest, Completed, Lease, NewTask, SlotPool
from onthedot.stores.sqlite import SqliteStore, fsync_thread, request_thread
from tests.support.waits import until
from tests.unit.stores.sqlite.peer import FOREVER


class Slow:
    """A disk that syncs when it is told to."""

    def __init__(self, sync: Callable[[int], None]) -> None:
        self._sync = sync
        self.spins = threading.Event()
        self.spins.set()
        self.synced = 0
        self.fails = 0
        self.places: list[int] = []  # of the file that was synced: those who have it open together share it

    def __call__(self, fd: int) -> None:
        self.places.append(os.lseek(fd, 1, os.SEEK_CUR))
        self.spins.wait(20)
        if self.fails:
            self.fails -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._sync(fd)
        self.synced += 1


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    slow = Slow(fsync_thread._sync)
    monkeypatch.setattr(fsync_thread, "_sync", slow)
    return slow


@asynccontextmanager
async def opened(path: Path, slow: Slow) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path / "t.db")
    await store.open()
    await store.heartbeat("w", b"", FOREVER)
    try:
        yield store
    finally:
        slow.spins.set()
        await store.close()


def rows(path: Path, table: str) -> int:
    """What others see."""
    with closing(sqlite3.connect(path / "t.db")) as db:
        return int(db.execute(f"SELECT count(*) FROM onthedot_{table}").fetchone()[0])


async def test_who_adds_waits_for_the_disk_and_who_claims_does_not(tmp_path: Path, slow: Slow) -> None:
    async with opened(tmp_path, slow) as store:
        slow.spins.clear()
        adding = asyncio.create_task(store.add([NewTask("u1", "a", b"")]))
        await until(lambda: rows(tmp_path, "task"))
        turn = await store.turn("w", [], ClaimRequest(1, [SlotPool(1, {"a": 1})]))
        assert turn.claim is not None
        assert [record.uuid for record in turn.claim.tasks] == ["u1"]
        await store.turn(
            "w", [Completed(Lease("u1", turn.claim.fence, "w"), b"", 1000)], ClaimRequest(2, [SlotPool(1, {"a": 1})])
        )
        assert not adding.done()
        slow.spins.set()
        assert [one.fresh for one in await adding] == [True]


async def test_the_last_outcomes_wait_for_it_too(tmp_path: Path, slow: Slow) -> None:
    async with opened(tmp_path, slow) as store:
        await store.add([NewTask("u1", "a", b"")])
        turn = await store.turn("w", [], ClaimRequest(1, [SlotPool(1, {"a": 1})]))
        assert turn.claim is not None
        slow.spins.clear()
        last = asyncio.create_task(store.turn("w", [Completed(Lease("u1", turn.claim.fence, "w"), b"", 1000)], None))
        await until(lambda: rows(tmp_path, "history"))
        assert not last.done()
        slow.spins.set()
        assert list((await last).verdicts) == ["ok"]


async def test_what_nobody_waits_for_is_synced_soon(tmp_path: Path, slow: Slow) -> None:
    async with opened(tmp_path, slow) as store:
        await store.add([NewTask("u1", "a", b"")])
        before = slow.synced
        await store.turn("w", [], ClaimRequest(1, [SlotPool(1, {"a": 1})]))
        await until(lambda: slow.synced > before)


async def test_a_sync_that_fails(tmp_path: Path, slow: Slow) -> None:
    """Whoever waited for it is told; then the database itself must have it all before anybody hears that it has."""
    async with opened(tmp_path, slow) as store:
        slow.fails = 1
        with pytest.raises(StoreUnavailable, match="Input/output error"):
            await store.add([NewTask("u1", "a", b"")])
        await store.add([NewTask("u2", "a", b"")])
        assert (tmp_path / "t.db-wal").stat().st_size == 0
        assert all(await store.get(["u1", "u2"]))


async def test_who_adds_what_is_there_already_waits_too(tmp_path: Path, slow: Slow) -> None:
    """It is told that it is stored, and whoever stored it may wait for the disk still."""
    async with opened(tmp_path, slow) as store, opened(tmp_path, slow) as other:
        await asyncio.gather(store.add([NewTask("u0", "a", b"")]), other.add([NewTask("u0", "a", b"")]))
        slow.spins.clear()
        adding = [asyncio.create_task(store.add([NewTask("u1", "a", b"")]))]
        await until(lambda: rows(tmp_path, "task WHERE uuid = 'u1'"))
        adding += [asyncio.create_task(each.add([NewTask("u1", "a", b"")])) for each in (store, other)]
        await asyncio.gather(
            *(each.turn("w", [], ClaimRequest(1, [])) for each in (store, other))
        )  # they come after these
        assert not any(each.done() for each in adding)
        slow.spins.set()
        assert [one.fresh for each in adding for one in await each] == [True, False, False]


async def test_to_try_again_is_not_enough_for_a_disk_that_fails(tmp_path: Path, slow: Slow) -> None:
    """The task is there the second time, and nothing has to be written: it is not safe for that."""
    async with opened(tmp_path, slow) as store:
        with closing(sqlite3.connect(tmp_path / "t.db")) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM onthedot_task").fetchall()  # the WAL cannot be emptied meanwhile
            slow.fails = 1
            for _ in range(3):
                with pytest.raises(StoreUnavailable, match="may be kept or not, try again"):
                    await store.add([NewTask("u1", "a", b"")])
        assert [one.fresh for one in await store.add([NewTask("u1", "a", b"")])] == [False]
        assert (tmp_path / "t.db-wal").stat().st_size == 0


async def test_a_sync_that_fails_is_told_if_nobody_waits(
    tmp_path: Path, slow: Slow, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path, slow) as store:
        await store.add([NewTask("u1", "a", b"")])
        slow.fails = 1
        await store.turn("w", [], ClaimRequest(1, [SlotPool(1, {"a": 1})]))
        await until(lambda: "is not on the disk, until it can be: [Errno 5] Input/output error" in caplog.text)


async def test_a_sync_that_failed_is_not_forgotten_over_a_fork(tmp_path: Path, slow: Slow) -> None:
    """The connection is closed and opened again; somebody else's keeps the WAL."""
    async with opened(tmp_path, slow) as store:
        slow.fails = 1
        with pytest.raises(StoreUnavailable):
            await store.add([NewTask("u1", "a", b"")])
        with closing(sqlite3.connect(tmp_path / "t.db")) as other:
            other.execute("SELECT * FROM onthedot_task").fetchall()
            store.before_fork()
            store.after_fork_in_parent()
            await store.add([NewTask("u2", "a", b"")])
            assert (tmp_path / "t.db-wal").stat().st_size == 0


async def test_the_wal_is_held_open(tmp_path: Path, slow: Slow) -> None:
    """Who opens it later does not hear of a write that has failed, if another process was told of it."""
    async with opened(tmp_path, slow) as store:
        for number in range(3):
            await store.add([NewTask(f"u{number}", "a", b"")])
    assert slow.places == list(range(1, len(slow.places) + 1))
    assert len(slow.places) >= 3


async def test_a_disk_that_hangs_does_not_hold_up_the_end(
    tmp_path: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_thread, "PATIENCE", 0.2)
    async with opened(tmp_path, slow) as store:
        slow.spins.clear()
        adding = asyncio.create_task(store.add([NewTask("u1", "a", b"")]))
        await until(lambda: rows(tmp_path, "task"))
        await store.open()
        await store.close_session("w")
        async with asyncio.timeout(10):
            await store.close()
            await store.close()
        assert not adding.done()
        slow.spins.set()
        await adding
        await store.open()


async def test_what_was_acknowledged_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each answer, only what the last sync has written is there, as if the machine had been off since then."""
    real, files = fsync_thread._sync, ("t.db", "t.db-wal")
    synced: list[list[bytes]] = []

    def remembered(fd: int) -> None:
        """What is in the files now is on the disk when the sync is over."""
        now = [(tmp_path / name).read_bytes() for name in files]
        real(fd)
        synced.append(now)

    monkeypatch.setattr(fsync_thread, "_sync", remembered)
    async with opened(tmp_path, Slow(real)) as store:

        async def add(number: int) -> None:
            await store.add([NewTask(f"u{number:03}", "a", b"")])
            after = tmp_path / f"after {number}"
            after.mkdir()
            for name, content in zip(files, synced[-1], strict=True):
                (after / name).write_bytes(content)
            assert rows(after, f"task WHERE uuid = 'u{number:03}'") == 1

        for start in range(0, 60, 6):
            claiming = asyncio.create_task(store.turn("w", [], ClaimRequest(start + 1, [SlotPool(3, {"a": 3})])))
            await asyncio.gather(*(add(number) for number in range(start, start + 6)), claiming)
