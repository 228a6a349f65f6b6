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

from onthedot.client.add_batcher import AddBatcher
from onthedot.errors import StoreUnavailable
from onthedot.stores.contract import ClaimRequest, Completed, Lease, NewTask, SlotPool
from onthedot.stores.sqlite import SqliteStore, fsync_thread, request_thread
from tests.support.waits import until
from tests.unit.stores.sqlite.peer import FOREVER


class Slow:
    """A disk whose syncs the test controls."""

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
    """Rows that another connection sees."""
    with closing(sqlite3.connect(path / "t.db")) as db:
        return int(db.execute(f"SELECT count(*) FROM onthedot_{table}").fetchone()[0])


async def test_add_waits_for_the_fsync_and_claim_does_not(tmp_path: Path, slow: Slow) -> None:
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


@pytest.mark.parametrize("size", [1, 2])
async def test_add_on_a_disk_that_hangs_may_be_stored(tmp_path: Path, slow: Slow, size: int) -> None:
    tasks = [NewTask(f"u{number}", "a", b"") for number in range(size)]
    async with opened(tmp_path, slow) as store:
        slow.spins.clear()
        with pytest.raises(StoreUnavailable) as unknown:
            await AddBatcher(store).add(tasks)
        assert (list(unknown.value.uuids), unknown.value.stored) == ([task.uuid for task in tasks], None)
        slow.spins.set()
        assert [added.fresh for added in await AddBatcher(store).add(tasks)] == [False] * size
        turn = await store.turn("w", [], ClaimRequest(1, [SlotPool(9, {"a": 9})]))
        assert turn.claim is not None
        assert [record.uuid for record in turn.claim.tasks] == [task.uuid for task in tasks]


async def test_last_outcomes_wait_for_the_fsync(tmp_path: Path, slow: Slow) -> None:
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


async def test_commit_without_a_waiting_call_is_synced_soon(tmp_path: Path, slow: Slow) -> None:
    async with opened(tmp_path, slow) as store:
        await store.add([NewTask("u1", "a", b"")])
        before = slow.synced
        await store.turn("w", [], ClaimRequest(1, [SlotPool(1, {"a": 1})]))
        await until(lambda: slow.synced > before)


async def test_failed_fsync_is_reported_until_the_database_is_safe(tmp_path: Path, slow: Slow) -> None:
    """The waiting call fails; later calls succeed only after a complete checkpoint."""
    async with opened(tmp_path, slow) as store:
        slow.fails = 1
        with pytest.raises(StoreUnavailable, match="Input/output error"):
            await store.add([NewTask("u1", "a", b"")])
        await store.add([NewTask("u2", "a", b"")])
        assert (tmp_path / "t.db-wal").stat().st_size == 0
        assert all(await store.get(["u1", "u2"]))


async def test_repeated_add_waits_for_the_fsync_too(tmp_path: Path, slow: Slow) -> None:
    """Its answer is that the task is stored, but the fsync of the first add may be pending."""
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


async def test_repeated_add_is_not_safe_after_a_failed_fsync(tmp_path: Path, slow: Slow) -> None:
    """The second add finds the task and writes nothing, but the task is not durable yet."""
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


async def test_failed_fsync_is_logged_without_a_waiting_call(
    tmp_path: Path, slow: Slow, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path, slow) as store:
        await store.add([NewTask("u1", "a", b"")])
        slow.fails = 1
        await store.turn("w", [], ClaimRequest(1, [SlotPool(1, {"a": 1})]))
        await until(lambda: "is not on the disk, until it can be: [Errno 5] Input/output error" in caplog.text)


async def test_failed_fsync_is_remembered_over_a_fork(tmp_path: Path, slow: Slow) -> None:
    """The connection is closed and opened again; another connection keeps the WAL."""
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


async def test_wal_stays_open_with_the_connection(tmp_path: Path, slow: Slow) -> None:
    """A descriptor that is opened later does not get a write error that another process has seen."""
    async with opened(tmp_path, slow) as store:
        for number in range(3):
            await store.add([NewTask(f"u{number}", "a", b"")])
    assert slow.places == list(range(1, len(slow.places) + 1))
    assert len(slow.places) >= 3


async def test_hanging_fsync_does_not_block_close(tmp_path: Path, slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_acknowledged_adds_survive_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After each answer, the test restores the state of the last sync, as after a power cut."""
    real = fsync_thread._sync
    files = ("t.db", "t.db-wal")
    synced: list[list[bytes]] = []

    def remembered(fd: int) -> None:
        """All that is in the files now is on the disk when the sync is over."""
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
