"""Requests that the server executes after their caller gave up: here, because its process was paused."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager

import asyncpg
import pytest

from onthedot import App, TaskNotFound
from onthedot.errors import StoreUnavailable
from onthedot.stores.contract import Completed, DeadlinePassed, Lease, NewTask
from onthedot.stores.postgres import PostgresStore
from onthedot.stores.postgres.connections import PostgresConnection
from tests.support.services.postgres import Service
from tests.support.waits import SOON, every_chance, until
from tests.unit.stores.postgres.shop import LEASE, Worker, opened, states

BACKENDS = "SELECT pid FROM pg_stat_activity WHERE application_name = 'onthedot' AND pid <> ALL (%s)"


@contextmanager
def paused_backend(postgres: Service, connection: PostgresConnection) -> Iterator[int]:
    """The server process of a connection is paused inside the block; gives its pid."""
    if postgres.server is None:
        pytest.skip("the server runs elsewhere: its processes cannot be paused")
    pid = connection.server_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGCONT)


async def gone(postgres: Service, pid: int) -> None:
    """Waits until a process of the server has executed what it had received, and ended."""
    await until(lambda: not postgres.ask("SELECT FROM pg_stat_activity WHERE pid = %s", pid))


async def test_a_claim_that_is_executed_late_takes_nothing(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        worker = Worker(store, "w")
        await store.heartbeat("w", b"", LEASE)
        await worker.claim(total=0)
        await store.add([NewTask("u1", "a", b"")])
        with paused_backend(postgres, store.connections.turn) as pid:
            late = asyncio.create_task(worker.claim())
            await every_chance()  # it is sent
            late.cancel()
            await asyncio.wait([late])
            worker.number -= 1  # the caller repeats the request that was not answered, and continues
            claimed = await worker.claim()
            assert [record.uuid for record in claimed.tasks] == ["u1"]
            await worker.claim(outcomes=[Completed(Lease("u1", claimed.fence, "w"))])
            await store.add([NewTask("u2", "a", b"")])
        await gone(postgres, pid)
        assert await states(store, "u1", "u2") == ["succeeded", "ready"]
        assert [record.uuid for record in (await worker.claim()).tasks] == ["u2"]


async def test_an_add_that_is_executed_after_its_deadline_stores_nothing(postgres: Service, named: str) -> None:
    async with opened(postgres, named) as store:
        await store.add([NewTask("u0", "a", b"")])
        with paused_backend(postgres, store.connections.add) as pid:
            deadline = store.earliest_now() + 50
            late = asyncio.create_task(store.add([NewTask("u1", "a", b"")], deadline))
            await every_chance()  # it is sent
            late.cancel()
            await asyncio.wait([late])
            await until(lambda: store.earliest_now() > deadline)
        await gone(postgres, pid)
        assert await states(store, "u1") == [None]


async def test_an_add_that_waits_for_a_lock_until_its_deadline_stores_nothing(postgres: Service, named: str) -> None:
    """The deadline is checked again at the end: the wait is inside the statement that inserts."""
    async with opened(postgres, named) as store:
        await store.add([NewTask("u0", "a", b"")])
        locking = await asyncpg.connect(postgres.url)
        try:
            await locking.execute("BEGIN; LOCK TABLE onthedot.place IN ACCESS EXCLUSIVE MODE")
            deadline = store.earliest_now() + 200
            late = asyncio.create_task(store.add([NewTask("u1", "a", b"")], deadline))
            await until(lambda: store.earliest_now() > deadline)
        finally:
            await locking.close()
        with pytest.raises(DeadlinePassed) as refused:
            await late
        assert refused.value.now > deadline
        assert refused.value.stored is False
        assert await states(store, "u1") == [None]


async def test_a_task_of_an_add_to_a_paused_server_does_not_appear_later(postgres: Service, named: str) -> None:
    """The error leaves open whether it was stored. When the server runs again it is absent; a repeat runs once."""
    app: App[None] = App(named, store=postgres.url)
    ran: list[int] = []

    @app.task
    async def note(number: int) -> None:
        ran.append(number)

    async with app:
        await note.enqueue(1)
        pids = [pid for (pid,) in postgres.ask(BACKENDS, postgres.kept_pids())]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnavailable) as unknown:
                await note.enqueue(2)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        uuid = unknown.value.uuid
        assert unknown.value.stored is None
        assert uuid is not None
        await until(lambda: len(postgres.ask("SELECT FROM pg_stat_activity WHERE pid = ANY (%s)", pids)) < len(pids))
        with pytest.raises(TaskNotFound):
            await app.get(uuid)
        again = await note.options(uuid=uuid).enqueue(2)
        async with app.running():
            await again.result(timeout=20)
        assert sorted(ran) == [1, 2]


async def test_adds_that_were_answered_while_the_loop_was_blocked_return(postgres: Service, named: str) -> None:
    """Their callers would have given up meanwhile."""
    app: App[None] = App(named, store=postgres.url)

    @app.task
    async def note(number: int) -> None: ...

    async with app:
        await note.enqueue(0)
        adds = [asyncio.create_task(note.enqueue(number)) for number in range(1, 5)]
        await every_chance()  # they are sent
        time.sleep(5.5)  # noqa: ASYNC251 - longer than a caller waits for the store
        handles = await asyncio.gather(*adds)
        stored = postgres.ask(
            "SELECT uuid FROM onthedot.task WHERE app = (SELECT id FROM onthedot.app WHERE name = %s)", named
        )
    assert {handle.uuid for handle in handles} < {uuid for (uuid,) in stored}
    assert len(stored) == 5


@pytest.mark.parametrize("after", [0, 60_000])
async def test_a_repeated_add_hints_tasks_that_are_still_pending(postgres: Service, named: str, after: int) -> None:
    """The hint follows the answer. A call whose answer was lost has sent none."""
    new = NewTask("u1", "b", b"", after=after)
    async with opened(postgres, named) as store, opened(postgres, named) as other:
        hints = other.hints("w")
        assert (await anext(hints)).resync
        await store.add([NewTask("u0", "a", b"")])
        lost = asyncio.create_task(store.add([new]))
        await every_chance()
        lost.cancel()
        await asyncio.wait([lost])
        await until(lambda: _is_stored(store, "u1"))
        assert [added.fresh for added in await store.add([new])] == [False]
        async with asyncio.timeout(SOON):
            while "b" not in (await anext(hints)).sources:
                pass
        await hints.aclose()


async def _is_stored(store: PostgresStore, uuid: str) -> bool:
    return await states(store, uuid) != [None]
