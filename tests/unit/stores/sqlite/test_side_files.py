"""Files beside the database: their modes, and what happens when another program removes them."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from onthedot.stores.contract import ClaimRequest, NewTask, Policy, SlotPool
from onthedot.stores.sqlite import SqliteStore
from onthedot.stores.sqlite.presence import Presence
from tests.support.waits import SOON
from tests.unit.stores.sqlite.peer import FOREVER, peers


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


async def open_store(path: Path, session: str) -> SqliteStore:
    store = SqliteStore(path)
    await store.open()
    await store.heartbeat(session, b"", FOREVER)
    return store


async def is_alive(store: SqliteStore, session: str, number: int) -> bool:
    return (await store.turn(session, [], ClaimRequest(number, [SlotPool(1, {"a": 1})]))).alive


async def leave(store: SqliteStore, session: str) -> None:
    await store.close_session(session)
    await store.close()


def modes(folder: Path) -> dict[str, int]:
    found = {path: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
    return {path.suffix[1:] if path.suffix in (".lock", ".hint") else path.name: mode for path, mode in found.items()}


@pytest.mark.usefixtures("usual_umask")
async def test_files_are_private_to_the_user(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "t.db", "me")
    hints = store.hints("me")
    await anext(hints)
    found = modes(tmp_path)
    assert found.pop("t.db-sessions") == 0o700
    assert found == dict.fromkeys(("t.db", "t.db-wal", "t.db-shm", "t.db-write", "lock", "hint"), 0o600)
    await hints.aclose()
    await leave(store, "me")


@pytest.mark.usefixtures("usual_umask")
async def test_side_files_are_as_open_as_an_existing_database_file(tmp_path: Path) -> None:
    (tmp_path / "t.db").touch()
    (tmp_path / "t.db").chmod(0o660)
    store = await open_store(tmp_path / "t.db", "me")
    hints = store.hints("me")
    await anext(hints)
    found = modes(tmp_path)
    assert found.pop("t.db-sessions") == 0o770
    assert set(found.values()) == {0o660}
    await hints.aclose()
    await leave(store, "me")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
@pytest.mark.parametrize("command", [["cat"], ["flock", "--nonblock", "--shared"]], ids=lambda command: command[0])
@pytest.mark.usefixtures("usual_umask")
async def test_another_user_can_neither_read_nor_lock_the_files(command: list[str]) -> None:
    """A lock on `-write` that another user may hold would stop all workers."""
    with public_folder() as folder:
        store = await open_store(folder / "t.db", "me")
        files = private_files(folder)
        assert folder / "t.db-write" in files
        assert await as_another_user(command, folder / "public") == 0, "it may use other files of this folder"
        assert [path.name for path in files if await as_another_user(command, path) == 0] == []
        await leave(store, "me")


@contextmanager
def public_folder() -> Iterator[Path]:
    """A folder that others may enter, with a file that they may read."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "public").touch()
        yield folder


def private_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != "public"]


async def as_another_user(command: list[str], path: Path) -> int:
    rest = ["true"] if command[0] == "flock" else []
    process = await asyncio.create_subprocess_exec(
        *command, path, *rest, user=65534, group=65534, extra_groups=[],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    return await process.wait()


def remove_lock_files(folder: Path) -> None:
    for path in folder.glob("*.lock"):
        path.unlink()


@pytest.mark.parametrize("remove", [remove_lock_files, shutil.rmtree])
async def test_process_whose_lock_file_is_removed_keeps_its_session(
    tmp_path: Path, remove: Callable[[Path], object]
) -> None:
    folder = tmp_path / "t.db-sessions"
    store = await open_store(tmp_path / "t.db", "me")
    hints = store.hints("me")
    await anext(hints)
    await store.add([NewTask("u1", "a", b"", policy=Policy(max_crashes=1))])
    turn = await store.turn("me", [], ClaimRequest(1, [SlotPool(1, {"a": 1})]))
    assert turn.claim is not None
    assert [record.uuid for record in turn.claim.tasks] == ["u1"]
    with peers(tmp_path / "t.db", "p1", "p2") as (one, two):
        assert one.ask("claim", 1) == []
        remove(folder)
        assert (await store.sessions()).keys() == {"me", "p1", "p2"}
        for _ in range(3):  # a process checks the others at most once per second
            await asyncio.sleep(0.5)
            assert one.ask("claim", 1) == two.ask("claim", 1) == []
        assert await is_alive(store, "me", 2)
        assert len(list(folder.glob("*.lock"))) == 3, "each process has created its file again"
        two.kill()
        two.process.wait()
        await asyncio.sleep(1)
        assert await is_alive(store, "me", 3)
        assert (await store.sessions()).keys() == {"me", "p1"}
        (record,) = await store.get(["u1"])
        assert record is not None
        assert (record.state, record.history.crashes) == ("running", 0)
        one.ask("add", "u2")
        assert "a" in (await asyncio.wait_for(anext(hints), SOON)).sources, "the socket is bound again"
    await hints.aclose()
    await leave(store, "me")
    assert not list(folder.glob("*.lock"))


async def test_process_that_died_after_its_lock_file_was_removed_is_reaped(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "t.db", "me")
    with peers(tmp_path / "t.db", "p1") as (peer,):
        await store.add([NewTask("u1", "a", b"")])
        assert peer.ask("claim", 1) == ["u1"]
        remove_lock_files(tmp_path / "t.db-sessions")
        peer.kill()
        peer.process.wait()
        await asyncio.sleep(1)
        turn = await store.turn("me", [], ClaimRequest(1, [SlotPool(1, {"a": 1})]))
        assert turn.claim is not None
        assert [record.uuid for record in turn.claim.tasks] == ["u1"]
    await leave(store, "me")


async def test_lock_of_the_writers_is_created_again(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "t.db", "me")
    (tmp_path / "t.db-write").unlink()
    with peers(tmp_path / "t.db", "p1") as (peer,):
        await store.add([NewTask("u1", "a", b"")])
        assert peer.ask("claim", 1) == ["u1"]
        with (tmp_path / "t.db-write").open() as lock:  # the file that both use now
            fcntl.flock(lock, fcntl.LOCK_EX)
            waiting = asyncio.create_task(store.add([NewTask("u2", "a", b"")]))
            done, _ = await asyncio.wait([waiting], timeout=0.2)
            assert not done
        assert [added.fresh for added in await waiting] == [True]
    await leave(store, "me")


SWEEP = """
import sys
from pathlib import Path
from onthedot.stores.sqlite.presence import Presence
Presence(Path(sys.argv[1])).close(has_sessions=False)
"""


def test_process_that_starts_is_not_swept_before_it_has_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.lockf

    def lock_after_a_sweep(fd: int, command: int) -> None:
        monkeypatch.undo()
        subprocess.run([sys.executable, "-c", SWEEP, str(tmp_path)], check=True)
        lock(fd, command)

    monkeypatch.setattr(fcntl, "lockf", lock_after_a_sweep)
    presence = Presence(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f"{presence.process}.lock"]
    subprocess.run([sys.executable, "-c", SWEEP, str(tmp_path)], check=True)
    assert [path.name for path in tmp_path.iterdir()] == [f"{presence.process}.lock"]
    presence.close(has_sessions=False)
    assert not list(tmp_path.iterdir())
