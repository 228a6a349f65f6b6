"""Several processes at one file: they wake each other, and what one held when it died is taken over at once."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from itertools import count
from pathlib import Path

import pytest

from onthedot.stores.contract import ClaimRequest, NewTask, Policy, SlotPool
from onthedot.stores.sqlite import SqliteStore
from tests.support.waits import SOON
from tests.unit.stores.sqlite.peer import FOREVER, peers

AT_ONCE = 0.1  # seconds


async def open_store(path: Path, session: str) -> SqliteStore:
    store = SqliteStore(path)
    await store.open()
    await store.heartbeat(session, b"", FOREVER)
    return store


async def leave(store: SqliteStore, session: str) -> None:
    await store.close_session(session)
    await store.close()


async def claim(store: SqliteStore, session: str, number: int, most: int = 10) -> list[str]:
    turn = await store.turn(session, [], ClaimRequest(number, [SlotPool(most, {"a": most})]))
    assert turn.claim is not None
    return [record.uuid for record in turn.claim.tasks]


def files_of(folder: Path) -> list[str]:
    with os.scandir(folder / "t.db-sessions") as entries:
        return sorted(entry.name for entry in entries)


async def test_add_wakes_other_processes(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "t.db", "me")
    with peers(tmp_path / "t.db", "p1", "p2") as (one, two):
        one.say("hint")
        two.say("hint")
        await store.add([NewTask("u1", "a", b"")])
        assert one.hear() == two.hear() == [["a"], {}, []]
        assert one.ask("claim", 5) == ["u1"]
        assert two.ask("claim", 5) == []
    await leave(store, "me")


async def test_dead_sessions_are_not_listed_before_they_are_reaped(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "t.db")
    with peers(tmp_path / "t.db", "p1", "p2") as both:
        await store.open()
        assert (await store.sessions()).keys() == {"p1", "p2"}
        for peer in both:
            peer.kill()
        for peer in both:
            peer.process.wait()
        assert (await store.sessions()) == {}
        await store.close()


async def test_end_of_a_task_reaches_the_waiting_process(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "t.db", "me")
    hints = store.hints("client")
    await anext(hints)
    with peers(tmp_path / "t.db", "p1") as (peer,):
        await store.add([NewTask("u1", "a", b"", policy=Policy(reply_to="client"))])
        assert peer.ask("claim", 5) == ["u1"]
        assert peer.ask("done", "u1") == ["ok"]
        assert (await asyncio.wait_for(anext(hints), SOON)).ended == {"u1"}
    await hints.aclose()
    await leave(store, "me")


async def test_cancel_reaches_the_running_process(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "t.db", "me")
    await store.add([NewTask("u1", "a", b"")])
    with peers(tmp_path / "t.db", "p1") as (peer,):
        assert peer.ask("claim", 5) == ["u1"]
        await store.cancel("me", ["u1"], "no need")
        assert peer.ask("hint")[1] == {"u1": "no need"}
    await leave(store, "me")


async def test_reading_process_notices_a_death(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "t.db")
    with peers(tmp_path / "t.db", "p1") as (peer,):
        await store.open()
        assert peer.ask("add", "u1") == [True]
        assert peer.ask("claim", 5) == ["u1"]
        assert list(await store.sessions()) == ["p1"]
        peer.kill()
        peer.process.wait()
        files = files_of(tmp_path)
        assert dict(await store.sessions()) == {}
        (record,) = await store.get(["u1"])  # nobody is there to take it back
        assert record is not None
        assert (record.state, record.history.session) == ("running", "p1")
        assert await store.position("u1") is None
        assert files_of(tmp_path) == files
    await store.close()


async def test_many_ends_are_sent_in_several_datagrams(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "t.db", "me")
    uuids = [f"{number:036}" for number in range(1000)]
    with peers(tmp_path / "t.db", "p1") as (peer,):
        await store.add([NewTask(uuid, "a", b"", policy=Policy(reply_to="me")) for uuid in uuids])
        hints = store.hints("me")
        await anext(hints)
        assert peer.ask("claim", 1000) == uuids
        assert peer.ask("done", *uuids) == ["ok"] * 1000
        ended: set[str] = set()
        while len(ended) < 1000:
            ended |= (await asyncio.wait_for(anext(hints), SOON)).ended
        await hints.aclose()
    await leave(store, "me")


async def test_process_that_dies_before_it_sends_its_hints_wakes_the_others(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "t.db", "me")
    hints = store.hints("me")
    await anext(hints)
    with peers(tmp_path / "t.db", "p1", "p2") as (victim, other):
        assert other.ask("claim", 1) == []
        victim.say("add and die", "u1")
        while not (await asyncio.wait_for(anext(hints), SOON)).resync:
            pass
        assert other.ask("claim", 1) == ["u1"]
    await hints.aclose()
    await leave(store, "me")


@pytest.mark.timed
async def test_step_of_the_wall_clock_between_two_starts_makes_no_task_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step below one second, which a clock does not tell from drift."""
    early = await open_store(tmp_path / "t.db", "early")
    wall_clock = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: wall_clock() + 900_000_000)
    late = SqliteStore(tmp_path / "t.db")
    monkeypatch.undo()  # the clock is set back
    await late.open()
    await late.heartbeat("late", b"", FOREVER)
    for number, (adder, worker, session) in enumerate([(early, late, "late"), (late, early, "early")]):
        added = time.time()
        await adder.add([NewTask(f"u{number}", "a", b"", after=1000)])
        for claimed in count(1):
            if await claim(worker, session, claimed):
                break
            await asyncio.sleep(0.02)
        assert 1 <= time.time() - added < 1.5
    await leave(early, "early")
    await leave(late, "late")


@pytest.mark.timed
@pytest.mark.parametrize("number", [1, 3])
async def test_tasks_of_a_killed_process_are_requeued_at_once(tmp_path: Path, number: int) -> None:
    store = await open_store(tmp_path / "t.db", "me")
    with peers(tmp_path / "t.db", *(f"p{each}" for each in range(number + 1))) as (victim, *others):
        await store.add([NewTask("u1", "a", b"")])
        assert victim.ask("claim", 1) == ["u1"]
        for other in others:
            assert other.ask("claim", 1) == []
            assert other.ask("hint")[0] == ["a"]  # of the add
            other.say("take over")
        await asyncio.sleep(0.05)
        killed = time.time()
        victim.kill()
        reports = [other.hear() for other in others]
        assert max(taken for _, taken, _ in reports) - killed < AT_ONCE * 3  # all of them look; the first has it
        (first,) = [each for each in reports if each[2]]
        assert first[2] == ["u1"]
        assert first[1] - killed < AT_ONCE
        (record,) = await store.get(["u1"])
        assert record is not None
        assert (record.state, record.history.crashes) == ("running", 1)
        assert set(await store.sessions()) == {"me", *(other.session for other in others)}
        assert not list((tmp_path / "t.db-sessions").glob(f"{victim.process.pid}-*"))
    await leave(store, "me")


async def test_new_process_reaps_earlier_dead_ones(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "t.db", "me")
    await store.add([NewTask("u1", "a", b"")])
    await leave(store, "me")
    with peers(tmp_path / "t.db", "p1") as (peer,):
        assert peer.ask("claim", 1) == ["u1"]
    store = await open_store(tmp_path / "t.db", "me")
    assert await claim(store, "me", 1) == ["u1"]
    await leave(store, "me")


async def test_stopped_process_keeps_its_leases(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "t.db", "me")
    await store.add([NewTask("u1", "a", b"")])
    with peers(tmp_path / "t.db", "p1") as (peer,):
        assert peer.ask("claim", 1) == ["u1"]
        os.kill(peer.process.pid, signal.SIGSTOP)
        await asyncio.sleep(1.2)  # longer than two looks at the locks are apart
        assert await claim(store, "me", 1) == []
        os.kill(peer.process.pid, signal.SIGCONT)
        assert peer.ask("done", "u1") == ["ok"]
    await leave(store, "me")


async def test_closed_process_has_not_crashed(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "t.db", "me")
    await store.add([NewTask("u1", "a", b"")])
    with peers(tmp_path / "t.db", "p1") as (peer,):
        assert peer.ask("claim", 1) == ["u1"]
        peer.ask("close")
        assert await claim(store, "me", 1) == ["u1"]
        (record,) = await store.get(["u1"])
        assert record is not None
        assert record.history.crashes == 0
    await leave(store, "me")


async def test_closed_store_requeues_the_tasks_of_its_clients(tmp_path: Path) -> None:
    first = SqliteStore(tmp_path / "t.db")
    second = await open_store(tmp_path / "t.db", "me")
    await first.open()
    await first.add([NewTask("u1", "a", b"", after=1000)])
    assert (await first.cancel("client", ["u1"])).tasks
    await first.close()
    turn = await second.turn("me", [], ClaimRequest(1, []))
    assert turn.claim is not None
    assert [record.uuid for record in turn.claim.chores] == ["u1"]
    await leave(second, "me")


async def test_forked_child_has_its_own_connection(tmp_path: Path) -> None:
    store = await open_store(tmp_path / "t.db", "me")
    await store.add([NewTask("u1", "a", b"")])
    assert await claim(store, "me", 1) == ["u1"]
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = asyncio.Runner().run(_child(store))
        finally:
            os._exit(code)
    _, status = await asyncio.to_thread(os.waitpid, pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert [added.fresh for added in await store.add([NewTask("u2", "a", b"")])] == [False]
    (record,) = await store.get(["u1"])
    assert record is not None
    assert (record.state, record.history.session) == ("running", "me")
    await leave(store, "me")


async def _child(store: SqliteStore) -> int:
    await store.open()
    await store.heartbeat("child", b"", FOREVER)
    await store.add([NewTask("u2", "a", b"")])
    taken = await claim(store, "child", 1)
    await store.close()
    return 0 if taken == ["u2"] else 2


async def test_apps_of_one_file_are_separate(tmp_path: Path) -> None:
    one, two = (SqliteStore(tmp_path / "t.db", name=name) for name in ("one", "two"))
    await one.open()
    await two.open()
    for store in (one, two):
        await store.heartbeat("w", b"", FOREVER)
        assert [added.fresh for added in await store.add([NewTask("u1", "a", b"", unique="k")])] == [True]
    assert await claim(one, "w", 1) == ["u1"]
    assert [(record and record.state) for record in await two.get(["u1"])] == ["ready"]
    assert dict(await two.tally()) == {("a", "ready"): 1}
    assert len((await one.find({}, None, 10)).rows) == 1
    await one.close()
    assert await claim(two, "w", 1) == ["u1"]
    await two.close()


async def test_store_works_in_a_deep_folder(tmp_path: Path) -> None:
    """The address of a socket is limited in length."""
    deep = tmp_path / ("d" * 100) / "e"
    deep.mkdir(parents=True)
    store = await open_store(deep / "t.db", "me")
    with peers(deep / "t.db", "p1") as (peer,):
        peer.say("hint")
        await store.add([NewTask("u1", "a", b"")])
        assert peer.hear()[0] == ["a"]
    await leave(store, "me")
