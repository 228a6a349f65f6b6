"""A server that restarts, and one that is not there: what callers wait for, and what the error of an add states."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from onthedot import App
from onthedot.errors import StoreUnavailable
from onthedot.stores.contract import NewTask
from onthedot.stores.postgres import PostgresStore
from onthedot.stores.postgres.notifier import channel_of
from tests.faults.proxy import proxy
from tests.support.services.ports import free_port
from tests.support.services.postgres import Service
from tests.support.services.postgres_server import Server
from tests.support.waits import until

OUTAGE = 2.0  # seconds
ADDS_PER_SECOND = 100


def ask(url: str, query: str) -> list[tuple[int]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query).fetchall()


@pytest.fixture
def server(postgres: Service, tmp_path: Path) -> Iterator[Server]:
    assert postgres
    server = Server(tmp_path)
    server.make()
    server.start()
    yield server
    server.stop()


async def test_no_add_is_refused_while_the_server_restarts(server: Server) -> None:
    app: App[None] = App("shop", store=server.url)

    @app.task
    async def note(number: int) -> int:
        return number

    async with app:
        await note.enqueue(-1)
        adds = []

        async def add_steadily() -> None:
            while True:
                adds.append(asyncio.create_task(note.enqueue(len(adds))))
                await asyncio.sleep(1 / ADDS_PER_SECOND)

        adding = asyncio.create_task(add_steadily())
        await until(lambda: sum(add.done() for add in adds) > 20)
        await asyncio.to_thread(server.stop)
        await asyncio.sleep(OUTAGE)
        before = len(adds)
        await asyncio.to_thread(server.start)
        await until(lambda: sum(add.done() for add in adds) > before + 20)
        adding.cancel()
        handles = await asyncio.gather(*adds)
        assert before > 100
        assert len({handle.uuid for handle in handles}) == len(adds)
        ((stored,),) = await asyncio.to_thread(ask, server.url, "SELECT count(*) FROM onthedot.task")
        assert stored == len(adds) + 1


@pytest.mark.timed
async def test_an_unreachable_server_is_reported_at_once() -> None:
    store = PostgresStore(f"postgresql://127.0.0.1:{free_port()}/shop")
    began = time.monotonic()
    with pytest.raises(StoreUnavailable) as refused:
        await store.open()
    assert time.monotonic() - began < 0.5
    assert refused.value.stored is False


@pytest.mark.timed
async def test_a_server_that_stays_away_is_awaited_once(server: Server) -> None:
    """Later calls fail at once, until it is reached again."""
    store = PostgresStore(server.url, name="shop")
    await store.open()
    await store.add([NewTask("u1", "a", b"")])
    await asyncio.to_thread(server.stop)
    with pytest.raises(StoreUnavailable) as first:
        await store.add([NewTask("u2", "a", b"")])
    began = time.monotonic()
    with pytest.raises(StoreUnavailable) as second:
        await store.add([NewTask("u2", "a", b"")])
    assert time.monotonic() - began < 0.5
    assert (first.value.stored, second.value.stored) == (False, False)
    await asyncio.to_thread(server.start)
    await store.add([NewTask("u2", "a", b"")])
    await store.close()


async def test_listener_that_is_added_after_an_outage_opens_the_only_connection(postgres: Service, named: str) -> None:
    """It connects while the notifier pauses between two attempts, which must then not open another one."""
    server, _, path = postgres.direct.rpartition("/")
    host, _, port = server.rpartition(":")
    channel = channel_of(named)

    def listening() -> int:
        query = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE %s AND state = 'idle'"
        ((count,),) = postgres.ask(query, f"LISTEN%{channel}%")
        return int(count)

    with proxy(int(port)) as link:
        store = PostgresStore(f"{host}:{link.port}/{path}", name=named)
        await store.open()
        first = store.hints("first")
        await anext(first)
        assert listening() == 1
        link.cut_off()

        async def is_noticed() -> bool:
            try:
                await anext(store.hints("too early"))
            except StoreUnavailable:
                return True
            return False

        await until(is_noticed)
        await until(is_noticed)  # the notifier's first attempt came before this one
        link.restore()
        second = store.hints("second")
        await anext(second)
        assert (await anext(first)).resync, "hints may have been lost meanwhile"
        assert listening() == 1
        await store.close()
