"""The writer: what gathers is one transaction, answers go where they were asked, the WAL stays short."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import ClaimRequest, Completed, Lease, NewTask, Policy, SlotPool
from onthedot.stores.sqlite import SqliteStore
from onthedot.stores.sqlite.writer_thread import WriterThread
from tests.support.waits import every_chance
from tests.unit.stores.sqlite.peer import FOREVER


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of calls of each transaction."""
    seen: list[int] = []
    commit = WriterThread.commit_together

    def counted(self: WriterThread, tables: object, calls: list[object]) -> object:
        seen.append(len(calls))
        return commit(self, tables, calls)  # type: ignore[arg-type]

    monkeypatch.setattr(WriterThread, "commit_together", counted)
    return seen


async def test_concurrent_adds_share_transactions(tmp_path: Path, transactions: list[int]) -> None:
    store = SqliteStore(tmp_path / "t.db")
    await store.open()
    transactions.clear()
    added = await asyncio.gather(*(store.add([NewTask(f"u{number}", "a", b"")]) for number in range(100)))
    assert all(one.fresh for (one,) in added)
    assert sum(transactions) == 100
    assert len(transactions) < 10
    await store.close()


async def test_idle_turn_writes_nothing(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "t.db")
    await store.open()
    await store.heartbeat("w", b"", FOREVER)
    await store.turn("w", [], ClaimRequest(1, [SlotPool(5, {"a": 5})]))  # the first that names a source writes it down
    wal = tmp_path / "t.db-wal"
    before = wal.stat().st_mtime_ns
    for number in range(2, 5):
        await store.turn("w", [], ClaimRequest(number, [SlotPool(5, {"a": 5})]))
    assert wal.stat().st_mtime_ns == before
    await store.close()


async def test_fork_does_not_make_a_gap_in_the_claim_numbers(tmp_path: Path) -> None:
    """The connection is closed and opened again, and the number of a claim that took nothing is in no table."""
    store = SqliteStore(tmp_path / "t.db")
    await store.open()
    await store.heartbeat("w", b"", FOREVER)
    await store.add([NewTask("u1", "a", b"")])
    claims = [await store.turn("w", [], ClaimRequest(number, [SlotPool(5, {"a": 5})])) for number in (1, 2)]
    store.before_fork()
    store.after_fork_in_parent()
    claims.append(await store.turn("w", [], ClaimRequest(3, [SlotPool(5, {"a": 5})])))
    assert [[record.uuid for record in turn.claim.tasks] for turn in claims if turn.claim] == [["u1"], [], []]
    await store.close()


async def test_delay_counts_from_the_call(tmp_path: Path) -> None:
    """Also while another program holds the file; the same is true of all times relative to the add."""
    clock = ManualClock()
    store = SqliteStore(tmp_path / "t.db", clock)
    await store.open()
    called = int(clock.now())
    with closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        delayed = NewTask("u1", "a", b"", after=1500, unique="k", policy=Policy(unique_for=2000))
        adding = asyncio.create_task(store.add([delayed, NewTask("u2", "a", b"")]))
        await every_chance()
        clock.advance(2000)
        other.execute("COMMIT")
    await adding
    first, second = await store.get(["u1", "u2"])
    assert first is not None
    assert second is not None
    assert (first.added, first.due) == (called, called + 1500)
    assert (second.added, second.due) == (called, called)
    assert [one.fresh for one in await store.add([NewTask("u3", "a", b"", unique="k")])] == [True]
    await store.heartbeat("w", b"", FOREVER)
    turn = await store.turn("w", [], ClaimRequest(1, [SlotPool(5, {"a": 5})]))
    assert turn.claim is not None
    assert [record.uuid for record in turn.claim.tasks] == ["u2", "u1", "u3"], "by when they were due"
    await store.close()


async def test_store_is_used_from_several_event_loops(tmp_path: Path) -> None:
    """Each loop opens and closes it; the last close ends its threads."""
    before = set(threading.enumerate())
    store = SqliteStore(tmp_path / "t.db")

    async def use(name: str) -> None:
        await store.open()
        for number in range(20):
            await store.add([NewTask(f"{name}-{number}", "a", b"")])
        await store.close()

    with ThreadPoolExecutor(4) as threads:
        uses = [threads.submit(asyncio.run, use(name)) for name in "abcd"]
        for each in uses:
            await asyncio.wrap_future(each)  # an error of one is the reason of what follows
    new = set(threading.enumerate()) - before
    assert not [thread for thread in new if thread.name.startswith("onthedot-sqlite")]
    await store.open()
    assert dict(await store.tally()) == {("a", "ready"): 80}
    await store.close()


async def test_closed_event_loop_does_not_affect_others(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "t.db")
    await store.open()

    def leave() -> None:
        loop = asyncio.new_event_loop()
        coroutine = store.add([NewTask("u1", "a", b"")])
        loop.call_soon(coroutine.send, None)
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
        coroutine.close()

    await asyncio.to_thread(leave)
    await store.add([NewTask("u2", "a", b"")])
    assert [record and record.uuid for record in await store.get(["u2"])] == ["u2"]
    await store.close()


async def test_wal_stays_short(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "t.db")
    await store.open()
    await store.heartbeat("w", b"", FOREVER)
    sizes: list[int] = []
    for number in range(60):
        await store.add([NewTask(f"u{number}-{each}", "a", b"x" * 2000) for each in range(200)])
        turn = await store.turn("w", [], ClaimRequest(number + 1, [SlotPool(200, {"a": 200})]))
        assert turn.claim is not None
        outcomes = [Completed(Lease(record.uuid, turn.claim.fence, "w"), keep=0) for record in turn.claim.tasks]
        reading = asyncio.create_task(store.find({"tag": "none"}, None, 100))
        await store.turn("w", outcomes, None)
        await reading
        sizes.append((tmp_path / "t.db-wal").stat().st_size)
    assert max(sizes) < 16 << 20
    await store.close()
    with closing(sqlite3.connect(tmp_path / "t.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
