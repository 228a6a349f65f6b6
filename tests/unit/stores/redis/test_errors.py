"""What a server does to those who use it: it goes, comes back, forgets scripts, is full, forbids."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from onthedot import App
from onthedot.errors import StoreFull, StoreRefused, StoreUnavailable
from onthedot.model.uuid7 import new_uuid
from onthedot.stores.contract import ClaimRequest, Completed, Hint, Hints, Lease, NewTask, SlotPool
from onthedot.stores.redis import RedisStore
from onthedot.stores.schemes import apps_in
from tests.support.services import valkey
from tests.support.waits import SOON, until

pytestmark = pytest.mark.fault


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[RedisStore]:
    store = RedisStore(url)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def new(number: int, source: str = "a", size: int = 2) -> list[NewTask]:
    return [NewTask(new_uuid(), source, b"x" * size) for _ in range(number)]


class Worker:
    """Claims and settles until it is told to stop, however often it must ask."""

    def __init__(self, store: RedisStore, name: str = "w") -> None:
        self.store, self.name, self.number = store, name, 0
        self.runs: list[str] = []
        self.verdicts: list[str] = []

    async def turn(self, ends: Sequence[Completed] = (), room: int = 20) -> list[Completed]:
        self.number += 1
        request = ClaimRequest(self.number, [SlotPool(room, {"a": room})])
        turn = await _insist(self.store.turn, self.name, ends, request)
        assert turn.claim is not None
        self.verdicts += turn.verdicts
        self.runs += [record.uuid for record in turn.claim.tasks]
        return [Completed(Lease(record.uuid, turn.claim.fence, self.name)) for record in turn.claim.tasks]

    async def work(self, wanted: int) -> None:
        ends: list[Completed] = []
        while len(self.runs) < wanted or ends:
            ends = await self.turn(ends)
            if not ends:
                await asyncio.sleep(0.001)


async def _insist(call: Any, *args: Any) -> Any:
    """As the engine does: again, with the same arguments, until there is an answer."""
    while True:
        try:
            return await call(*args)
        except StoreUnavailable:
            await asyncio.sleep(0.01)


async def test_scripts_that_were_forgotten_are_sent_again(server: valkey.Server) -> None:
    async with opened(server.url) as store:
        await store.heartbeat("w", b"", 60_000)
        for tasks in (new(3), new(2)):
            server.ask("SCRIPT", "FLUSH")
            await store.add(tasks)
        worker = Worker(store)
        server.ask("SCRIPT", "FLUSH")
        ends = await worker.turn()
        server.ask("SCRIPT", "FLUSH")
        await worker.turn(ends)
        assert worker.verdicts == ["ok"] * 5


async def test_cut_connections_lose_and_double_nothing(server: valkey.Server) -> None:
    async with opened(server.url) as store:
        await store.heartbeat("w", b"", 60_000)
        tasks, worker = new(2000), Worker(store)
        working = asyncio.create_task(worker.work(len(tasks)))
        for start in range(0, len(tasks), 20):
            await _insist(store.add, tasks[start : start + 20])
            if start % 100 == 0:
                server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await working
        assert sorted(worker.runs) == sorted(task.uuid for task in tasks)  # each once: a repeated ask gives the same
        assert (await store.tally()) == {("a", "succeeded"): len(tasks)}


async def test_a_restart_under_load(safe: valkey.Server) -> None:
    async with opened(safe.url) as store:
        await store.heartbeat("w", b"", 60_000)
        tasks, worker = new(600), Worker(store)
        working = asyncio.create_task(worker.work(len(tasks)))
        for start in range(0, len(tasks), 20):
            await _insist(store.add, tasks[start : start + 20])
            if start in (200, 400):
                await asyncio.to_thread(safe.kill)
                await asyncio.to_thread(safe.start, safe.port)
        await working
        assert sorted(worker.runs) == sorted(task.uuid for task in tasks)
        assert (await store.tally()) == {("a", "succeeded"): len(tasks)}


async def test_who_is_not_there_is_said_within_five_seconds() -> None:
    port = valkey.free_port()
    began = time.monotonic()
    store = RedisStore(f"redis://127.0.0.1:{port}")
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}"):
        await store.open()
    assert time.monotonic() - began < 5


async def test_who_goes_is_said_within_five_seconds(server: valkey.Server) -> None:
    async with opened(server.url) as store:
        await store.add(new(1))
        server.stop()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await store.add(new(1))
        assert time.monotonic() - began < 5


async def test_a_cancelled_call_leaves_no_answer_to_the_next(server: valkey.Server) -> None:
    """Wherever it is cancelled: its answer is read and thrown away, and the call can be repeated."""
    async with opened(server.url) as store:
        await store.add(new(1))
        for steps in range(12):
            (task,) = new(1)
            call = asyncio.create_task(store.add([task]))
            for _ in range(steps):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
            assert await store.notes("nobody", 0, 1) == []
            (added,) = await store.add([task])
            assert added.uuid == task.uuid
            (found,) = await store.get([task.uuid])
            assert found is not None
        assert sum((await store.tally()).values()) == 13


async def heard(hints: Hints) -> Hint:
    return await asyncio.wait_for(anext(aiter(hints)), 5)


async def test_a_cut_subscription_begins_again_with_a_resync(server: valkey.Server) -> None:
    async with opened(server.url) as store:
        hints = store.hints("w")
        assert (await heard(hints)).resync
        await store.add(new(1, "b"))
        assert (await heard(hints)).sources == {"b"}
        server.ask("CLIENT", "KILL", "TYPE", "pubsub")
        with pytest.raises(StoreUnavailable):
            await heard(hints)
        assert (await heard(hints)).resync
        await store.add(new(1, "c"))
        assert (await heard(hints)).sources == {"c"}
        await hints.aclose()


async def test_who_listens_can_be_stopped_at_any_step(server: valkey.Server) -> None:
    """A worker that was stopped while it connected went on listening, and never ended."""
    async with opened(server.url) as store:
        for steps in range(40):
            listening = asyncio.ensure_future(_listen(store))
            for _ in range(steps):
                await asyncio.sleep(0)
            listening.cancel()
            assert await asyncio.wait([listening], timeout=SOON) == ({listening}, set())


async def _listen(store: RedisStore) -> None:
    hints = store.hints("w")
    try:
        async for _ in hints:
            pass
    finally:
        await hints.aclose()


async def test_without_the_right_to_publish_all_but_hints_works(server: valkey.Server) -> None:
    server.ask("ACL", "SETUSER", "mute", "on", ">secret", "~onthedot:*", "resetchannels", "+@all", "-publish")
    async with opened(server.url.replace("//", "//mute:secret@")) as store:
        await store.heartbeat("w", b"", 60_000)
        await store.add(new(3))
        worker = Worker(store)
        await worker.work(3)
        assert len(worker.runs) == 3


async def test_a_user_who_may_not_is_refused_in_words(server: valkey.Server) -> None:
    server.ask("ACL", "SETUSER", "guest", "on", ">secret", "~other:*", "+@all")
    async with opened(server.url.replace("//", "//guest:secret@")) as store:
        with pytest.raises(StoreRefused, match=r"&onthedot:\* .*schema print --role"):
            await store.add(new(1))
    with pytest.raises(StoreRefused, match="password"):
        await RedisStore(server.url.replace("//", "//guest:wrong@")).open()


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random"])
async def test_a_server_that_may_drop_tasks_is_refused(server: valkey.Server, policy: str) -> None:
    server.ask("CONFIG", "SET", "maxmemory-policy", policy)
    with pytest.raises(StoreRefused, match=policy):
        await RedisStore(server.url).open()


async def test_a_full_server_takes_nothing_more_and_can_be_worked_off(server: valkey.Server) -> None:
    async with opened(server.url) as store:
        await store.heartbeat("w", b"", 60_000)
        server.ask("CONFIG", "SET", "maxmemory", "8mb")
        stored: list[str] = []

        async def fill() -> None:
            while True:
                tasks = new(50, size=2000)
                await store.add(tasks)
                stored.extend(task.uuid for task in tasks)

        with pytest.raises(StoreFull, match="maxmemory"):
            await fill()
        assert sum((await store.tally()).values()) == len(stored), "half of an addition is there"
        assert (await store.heartbeat("w", b"", 60_000)).alive
        worker = Worker(store)
        ends: list[Completed] = []
        while len(worker.runs) < len(stored) or ends:
            ends = [Completed(end.lease, keep=0) for end in await worker.turn(ends)]
        assert sorted(worker.runs) == sorted(stored)
        assert set(worker.verdicts) == {"ok"}
        await store.add(new(1))


async def test_flushed_data_is_noticed(server: valkey.Server) -> None:
    """A session that the server does not know any more is told so."""
    async with opened(server.url) as store:
        await store.heartbeat("w", b"", 60_000)
        server.ask("FLUSHALL")
        turn = await store.turn("w", [], ClaimRequest(1, []))
        assert not turn.alive


async def test_no_connection_is_left(server: valkey.Server) -> None:
    async with opened(server.url) as store:
        hints = store.hints("w")
        await heard(hints)
        await asyncio.gather(*(store.get(["x"]) for _ in range(40)))
        assert 2 <= len(valkey.connections(server.url)) <= 17
        await hints.aclose()
    await until(lambda: valkey.connections(server.url) == [])


async def test_a_call_that_is_cancelled_ends(server: valkey.Server) -> None:
    """At whichever of its steps: it does not go on as if nothing had been."""
    async with opened(server.url) as store:
        for steps in range(30):
            call = asyncio.create_task(store.tally())
            for _ in range(steps):
                await asyncio.sleep(0)
            asked = call.cancel()
            await asyncio.wait([call])
            assert call.cancelled() == asked
        assert await store.tally() == {}


def test_whose_tasks_a_server_has(server: valkey.Server) -> None:
    """So that nobody has to say the name of the only app there is."""
    assert apps_in(server.url) == []
    server.ask("SET", "others", "1")
    for name in ("shop", "mail"):
        app = App(name, store=server.url)
        app.named("send").delay()
        app.shutdown()
    assert apps_in(server.url) == ["mail", "shop"]
    command = [sys.executable, "-m", "onthedot", "task", "list", "--store", server.url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "several apps: mail, shop; say which by -n" in done.stderr) == (2, True)
    done = subprocess.run([*command, "-n", "mail"], capture_output=True, text=True, check=True)
    assert done.stdout.count("send") == 1
