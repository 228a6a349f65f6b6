"""Errors of a server: it stops, restarts, loses scripts, is full, refuses."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

import pytest

from onthedot import App
from onthedot.errors import StoreFull, StoreRefused, StoreUnavailable
from onthedot.model.uuid7 import new_uuid
from onthedot.stores.contract import ClaimRequest, Completed, Hint, Hints, Lease, NewTask, SlotPool
from onthedot.stores.redis import RedisStore
from onthedot.stores.schemes import apps_in
from tests.support.services import valkey
from tests.support.services.ports import free_port
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
    """Claims and settles until it is stopped, with repeats."""

    def __init__(self, store: RedisStore, name: str = "w") -> None:
        self.store = store
        self.name = name
        self.number = 0
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

    async def work(self, number: int) -> None:
        ends: list[Completed] = []
        while len(self.runs) < number or ends:
            ends = await self.turn(ends)
            if not ends:
                await asyncio.sleep(0.001)


async def _insist(call: Any, *args: Any) -> Any:
    """Repeats the call with the same arguments until it is answered, as the engine does."""
    while True:
        try:
            return await call(*args)
        except StoreUnavailable:
            await asyncio.sleep(0.01)


async def test_flushed_scripts_are_sent_again(server: valkey.Server) -> None:
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


async def test_broken_connections_neither_lose_nor_repeat_tasks(server: valkey.Server) -> None:
    async with opened(server.url) as store:
        await store.heartbeat("w", b"", 60_000)
        tasks = new(2000)
        worker = Worker(store)
        working = asyncio.create_task(worker.work(len(tasks)))
        for start in range(0, len(tasks), 20):
            await _insist(store.add, tasks[start : start + 20])
            if start % 100 == 0:
                server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        await working
        assert sorted(worker.runs) == sorted(task.uuid for task in tasks)  # each once: a repeated ask gives the same
        assert (await store.tally()) == {("a", "succeeded"): len(tasks)}


async def test_server_restart_under_load_loses_nothing(safe: valkey.Server) -> None:
    async with opened(safe.url) as store:
        await store.heartbeat("w", b"", 60_000)
        tasks = new(600)
        worker = Worker(store)
        working = asyncio.create_task(worker.work(len(tasks)))
        for start in range(0, len(tasks), 20):
            await _insist(store.add, tasks[start : start + 20])
            if start in (200, 400):
                await asyncio.to_thread(safe.kill)
                await asyncio.to_thread(safe.start, safe.port)
        await working
        assert sorted(worker.runs) == sorted(task.uuid for task in tasks)
        assert (await store.tally()) == {("a", "succeeded"): len(tasks)}


@pytest.mark.timed
@pytest.mark.parametrize("kind", ["redis", "redis+sentinel", "redis+cluster"])
async def test_missing_server_is_reported_at_once(kind: str) -> None:
    port = free_port()
    path = "/mymaster" if kind == "redis+sentinel" else ""
    if kind != "redis":
        import_module("redis.asyncio.cluster")  # it takes long on a busy machine
    store = RedisStore(f"{kind}://127.0.0.1:{port}{path}")
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{port}"):
        await store.open()
    assert time.monotonic() - began < 0.5


@pytest.mark.timed
async def test_unknown_host_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object, **__: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    store = RedisStore("redis://no-such-host.invalid")
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="Name or service not known"):
        await store.open()
    assert time.monotonic() - began < 0.5


@pytest.mark.timed
async def test_server_that_stays_away_is_awaited_once(server: valkey.Server) -> None:
    """Later calls fail at once, until it is reached again."""
    async with opened(server.url) as store:
        await store.add(new(1))
        port = server.port
        server.kill()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await store.add(new(1))
        assert 2 < time.monotonic() - began < 5
        began = time.monotonic()
        with pytest.raises(StoreUnavailable) as second:
            await store.add(new(1))
        assert time.monotonic() - began < 0.5
        assert second.value.stored is False
        server.start(port)
        await store.add(new(1))
        server.kill()
        adding = asyncio.create_task(store.add(new(1)))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(server.start, port)
        assert len(await adding) == 1, "a short outage is bridged again"


async def test_refused_call_does_not_end_the_bridging_of_outages(server: valkey.Server) -> None:
    async with opened(server.url) as store:
        server.ask("SET", f"{store.prefix}schedules", "x")
        with pytest.raises(StoreRefused):
            await store.schedules()
        port = server.port
        server.kill()
        adding = asyncio.create_task(store.add(new(1)))
        await asyncio.sleep(0.3)
        await asyncio.to_thread(server.start, port)
        assert len(await adding) == 1


@pytest.mark.timed
async def test_stopped_server_is_reported_within_five_seconds(server: valkey.Server) -> None:
    async with opened(server.url) as store:
        await store.add(new(1))
        server.stop()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            await store.add(new(1))
        assert time.monotonic() - began < 5


async def test_cancelled_call_does_not_affect_the_next(server: valkey.Server) -> None:
    """At any step: its reply is read and dropped, and the call can be repeated."""
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


async def next_hint(hints: Hints) -> Hint:
    return await asyncio.wait_for(anext(aiter(hints)), SOON)


async def test_broken_subscription_restarts_with_a_resync(server: valkey.Server) -> None:
    async with opened(server.url) as store:
        hints = store.hints("w")
        assert (await next_hint(hints)).resync
        await store.add(new(1, "b"))
        assert (await next_hint(hints)).sources == {"b"}
        server.ask("CLIENT", "KILL", "TYPE", "pubsub")
        with pytest.raises(StoreUnavailable):
            await next_hint(hints)
        assert (await next_hint(hints)).resync
        await store.add(new(1, "c"))
        assert (await next_hint(hints)).sources == {"c"}
        await hints.aclose()


async def test_hint_stream_can_be_cancelled_at_any_step(server: valkey.Server) -> None:
    """Regression: a worker that was stopped while it connected kept listening and never ended."""
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


async def test_store_works_without_the_right_to_publish(server: valkey.Server) -> None:
    server.ask("ACL", "SETUSER", "mute", "on", ">secret", "~onthedot:*", "resetchannels", "+@all", "-publish")
    async with opened(server.url.replace("//", "//mute:secret@")) as store:
        await store.heartbeat("w", b"", 60_000)
        await store.add(new(3))
        worker = Worker(store)
        await worker.work(3)
        assert len(worker.runs) == 3


async def test_user_without_rights_gets_advice(server: valkey.Server) -> None:
    server.ask("ACL", "SETUSER", "guest", "on", ">secret", "~other:*", "+@all")
    async with opened(server.url.replace("//", "//guest:secret@")) as store:
        with pytest.raises(StoreRefused, match=r"&onthedot:\* .*schema print --role"):
            await store.add(new(1))
    with pytest.raises(StoreRefused, match="password"):
        await RedisStore(server.url.replace("//", "//guest:wrong@")).open()


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-random"])
async def test_server_that_may_evict_tasks_is_refused(server: valkey.Server, policy: str) -> None:
    server.ask("CONFIG", "SET", "maxmemory-policy", policy)
    with pytest.raises(StoreRefused, match=policy):
        await RedisStore(server.url).open()


async def test_full_server_refuses_adds_and_can_be_drained(server: valkey.Server) -> None:
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
        assert sum((await store.tally()).values()) == len(stored), "an add was stored in part"
        assert (await store.heartbeat("w", b"", 60_000)).alive
        worker = Worker(store)
        ends: list[Completed] = []
        while len(worker.runs) < len(stored) or ends:
            ends = [Completed(end.lease, keep=0) for end in await worker.turn(ends)]
        assert sorted(worker.runs) == sorted(stored)
        assert set(worker.verdicts) == {"ok"}
        await store.add(new(1))


async def test_worker_notices_flushed_data(server: valkey.Server) -> None:
    """A turn of a session that the server has lost reports that it is not alive."""
    async with opened(server.url) as store:
        await store.heartbeat("w", b"", 60_000)
        server.ask("FLUSHALL")
        turn = await store.turn("w", [], ClaimRequest(1, []))
        assert not turn.alive


async def test_close_leaves_no_connection(server: valkey.Server) -> None:
    async with opened(server.url) as store:
        hints = store.hints("w")
        await next_hint(hints)
        await asyncio.gather(*(store.get(["x"]) for _ in range(40)))
        assert 2 <= len(valkey.connections(server.url)) <= 17
        await hints.aclose()
    await until(lambda: valkey.connections(server.url) == [])


async def test_cancelled_call_ends_at_any_step(server: valkey.Server) -> None:
    """The cancellation is not swallowed."""
    async with opened(server.url) as store:
        for steps in range(30):
            call = asyncio.create_task(store.tally())
            for _ in range(steps):
                await asyncio.sleep(0)
            requested = call.cancel()
            await asyncio.wait([call])
            assert call.cancelled() == requested
        assert await store.tally() == {}


def test_apps_of_a_server_are_listed(server: valkey.Server) -> None:
    """Commands need no name where there is one app."""
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
