"""Hostile surroundings that once damaged a store."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from onthedot import App, ArgumentError
from onthedot.stores.contract import ClaimRequest, Limit, NewTask, SlotPool
from onthedot.stores.sqlite import SqliteStore
from onthedot.stores.sqlite.presence import Presence
from tests.support.waits import LONG
from tests.unit.stores.sqlite.peer import FOREVER


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_adds_around_forks_are_kept(tmp_path: Path) -> None:
    """A connection that is open over a fork shares locks with the child, which once lost the WAL."""
    app: App[None] = App("shop", store=f"sqlite:///{tmp_path}/t.db")
    work = app.named("work")
    ending = threading.Event()
    added = [1]

    def adds_all_the_time() -> None:
        while not ending.is_set():
            work.delay()
            added[0] += 1

    work.delay()
    thread = threading.Thread(target=adds_all_the_time)
    thread.start()
    for _ in range(8):
        child = os.fork()
        if child == 0:
            try:
                work.delay()
                app.runtime.portal.close()
            except BaseException:
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ending.set()
    thread.join()
    app.shutdown()
    again: App[None] = App("shop", store=f"sqlite:///{tmp_path}/t.db")
    assert again.runtime.portal.run_sync(lambda client: client.operations.counts()) == {"ready": added[0] + 8}
    again.shutdown()


async def test_failed_check_of_dead_peers_affects_one_call_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(tmp_path / "t.db")
    await store.open()
    await store.add([NewTask("u1", "a", b"")])
    writer = store.writer

    def out_of_descriptors() -> list[object]:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(writer, "reap_dead_peers", out_of_descriptors)
    with pytest.raises(Exception, match="Too many open files"):
        await store.add([NewTask("u2", "a", b"")])
    monkeypatch.undo()
    other = SqliteStore(tmp_path / "t.db")
    await other.open()
    assert [added.fresh for added in await other.add([NewTask("u3", "a", b"")])] == [True]
    assert [added.fresh for added in await store.add([NewTask("u2", "a", b"")])] == [True]
    await other.close()
    await store.close()


def test_unreadable_lock_file_does_not_mean_death(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    presence = Presence(tmp_path)
    (tmp_path / "1-2-3.lock").touch()

    def denied(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    assert not presence.is_dead("1-2-3")
    monkeypatch.undo()
    presence.close(has_sessions=False)


async def test_symbolic_link_opens_the_same_store(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    link = tmp_path / "t.db"
    link.symlink_to(tmp_path / "shared" / "t.db")
    store = SqliteStore(link)
    await store.open()
    assert store.path == str(tmp_path / "shared" / "t.db")
    assert (tmp_path / "shared" / "t.db-sessions").is_dir()
    assert not (tmp_path / "t.db-sessions").exists()
    await store.close()


async def test_new_chore_wakes_a_worker(tmp_path: Path) -> None:
    """A chore belongs to no source, so it needs a hint of its own."""
    store = SqliteStore(tmp_path / "t.db")
    await store.open()
    for session in ("dies", "lives"):
        await store.heartbeat(session, b"", FOREVER)
    hints = store.hints("lives")
    await anext(hints)
    await store.add([NewTask("u1", "a", b"")])
    await asyncio.wait_for(anext(hints), LONG)
    await store.turn("dies", [], ClaimRequest(1, [SlotPool(1, {"a": 1})]))
    hint = asyncio.ensure_future(anext(hints))
    leased = await store.cancel("client", ["u1"])  # it runs: flagged only
    assert leased.tasks == []
    await store.close_session("dies", crashed=True)
    await asyncio.wait_for(hint, LONG)
    await hints.aclose()
    await store.close()


@pytest.mark.timed
async def test_many_limits_can_be_put_at_once(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "t.db")
    await store.open()
    began = time.monotonic()
    await store.put_limits([Limit(f"source{number}", cap=1) for number in range(2000)])
    assert time.monotonic() - began < 1
    assert len(await store.limits()) == 2000
    await store.close()


async def test_task_that_cannot_be_written_fails_alone(tmp_path: Path) -> None:
    app: App[None] = App("shop", store=f"sqlite:///{tmp_path}/t.db")
    work = app.named("work")
    async with app:
        answers = await asyncio.gather(
            work.enqueue(), work.options(unique="k\ud800").enqueue(), work.enqueue(), return_exceptions=True
        )
        assert [isinstance(answer, ArgumentError) for answer in answers] == [False, True, False]
        assert len(await app.find(source="work")) == 2


def test_change_of_folder_does_not_change_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app: App[None] = App("shop", store="sqlite:///t.db")
    app.named("work").delay()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert app.runtime.boot_message().url == f"sqlite:///{tmp_path}/t.db"
    app.shutdown()


@pytest.mark.timed
def test_shutdown_is_bounded_when_the_store_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sqlite3

    from onthedot.engine import worker

    monkeypatch.setattr(worker, "LAST_TURN", 0.5)
    app: App[None] = App("shop", store=f"sqlite:///{tmp_path}/t.db")
    began = threading.Event()
    ends = threading.Event()

    @app.task
    def waits() -> None:
        began.set()
        ends.wait(LONG)

    app.start(auto=True)
    waits.delay()
    assert began.wait(LONG)
    with closing(sqlite3.connect(tmp_path / "t.db", isolation_level=None)) as stranger:
        stranger.execute("BEGIN EXCLUSIVE")
        ends.set()
        moment = time.monotonic()
        app.shutdown(timeout=0.2)
        assert time.monotonic() - moment < 15
        stranger.execute("ROLLBACK")
