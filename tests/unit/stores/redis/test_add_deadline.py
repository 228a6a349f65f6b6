"""The error of an add is final: after it, no late request stores the task."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest
import redis

from onthedot import App
from onthedot.errors import StoreUnavailable
from onthedot.stores.contract import DeadlinePassed, NewTask
from onthedot.stores.redis import RedisStore
from onthedot.stores.redis.client import RedisClient
from onthedot.stores.redis.url import parse_url
from tests.support.services import valkey
from tests.support.waits import SOON
from tests.unit.stores.redis.test_connection import stopped
from tests.unit.stores.redis.test_errors import opened

pytestmark = pytest.mark.fault


async def test_add_that_a_paused_server_executes_later_is_not_stored(server: valkey.Server) -> None:
    app = App("shop", store=server.url)

    @app.task
    async def work() -> int:
        return 1

    async with app:
        await work.enqueue()
        with stopped(server), pytest.raises(StoreUnavailable) as caught:
            await work.enqueue()
        assert caught.value.stored is None
        uuid = caught.value.uuid
        assert uuid is not None
        assert server.ask("PING") == b"+PONG"  # after the late request
        with redis.Redis.from_url(server.url) as client:
            assert client.hlen("onthedot:{shop}:task") == 1
        handle = await work.options(uuid=uuid).enqueue()
        assert handle.uuid == uuid
        async with app.running():
            assert await handle.result(timeout=SOON) == 1


async def test_refused_connection_is_known_to_have_stored_nothing() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # without listen: connections are refused
        store = RedisStore(f"redis://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(StoreUnavailable) as caught:
            await store.open()
        assert caught.value.stored is False


async def test_deadline_is_checked_by_the_server_s_time(server: valkey.Server) -> None:
    async with opened(server.url) as store:
        now = store.earliest_now()
        assert now == pytest.approx(time.time() * 1000, abs=1000)
        assert (await store.add([NewTask("early", "a", b"")], now + 1000))[0].fresh
        with pytest.raises(DeadlinePassed) as refused:
            await store.add([NewTask("late", "a", b"")], now - 1)
        assert refused.value.stored is False
        assert now <= refused.value.now <= time.time() * 1000 + 1
        assert [record and record.uuid for record in await store.get(["early", "late"])] == ["early", None]


async def test_add_during_a_connect_that_close_ends_raises_a_store_error() -> None:
    """A server that accepts and never answers: the caller must not see a cancel that nobody sent."""
    accepted: list[asyncio.StreamWriter] = []
    silent = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
    client = RedisClient(parse_url(f"redis://127.0.0.1:{silent.sockets[0].getsockname()[1]}"))
    calls = [asyncio.create_task(client.command("PING")) for _ in range(3)]
    await asyncio.sleep(0.05)
    calls[0].cancel()
    await client.close()
    assert isinstance((await asyncio.gather(calls[0], return_exceptions=True))[0], asyncio.CancelledError)
    for call in calls[1:]:
        with pytest.raises(StoreUnavailable):
            await call
    for writer in accepted:
        writer.close()
    silent.close()
