"""Tasks that an aborted script left in no place are listed and requeued."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import redis
from click.testing import CliRunner

from onthedot import App, AtMost, TaskCancelled
from onthedot.cli import main
from onthedot.stores.redis import RedisStore
from onthedot.stores.redis.uuid_format import pack_uuid
from tests.support.services import valkey
from tests.support.waits import SOON, until


@asynccontextmanager
async def shop() -> AsyncIterator[App[Any]]:
    app: App[Any] = App(valkey.new_name(), store=valkey.url(), poll_interval=0.2)

    @app.task
    async def send(number: int) -> int:
        return number

    @app.task(limits=[AtMost(1, by="key")])
    async def keyed(key: str) -> None: ...

    async with app:
        yield app
    valkey.forget(RedisStore(valkey.url(), None, app.name).prefix)


def doctor(app: App[Any], *options: str) -> str:
    command = ["doctor", "--store", valkey.url(), "-n", app.name, *options]
    return CliRunner().invoke(main, command).output


async def test_task_in_no_place_is_listed_and_requeued() -> None:
    async with shop() as app:
        store = app.runtime.store
        assert isinstance(store, RedisStore)
        handles = [await app.named("send").enqueue(number=number) for number in range(3)]
        handles += [await app.named("send").options(after=0.1).enqueue(number=number) for number in range(3, 6)]
        assert await store.unplaced() == []
        with redis.Redis.from_url(valkey.url()) as client:
            client.delete(f"{store.prefix}ready:send", *client.scan_iter(f"{store.prefix}alarms*"))
        assert sorted(await store.unplaced()) == sorted(handle.uuid for handle in handles)
        assert "6 tasks in no queue, lease or end" in await asyncio.to_thread(doctor, app)
        async with app.running():
            assert not any([await handle.done() for handle in handles])
            assert "requeued 6 tasks" in await asyncio.to_thread(doctor, app, "--repair")
            assert [await handle.result(SOON) for handle in handles] == [*range(6)]
        assert "in no queue" not in await asyncio.to_thread(doctor, app)
        tally = await store.tally()
        assert tally["send", "succeeded"] == 6
        assert all(number >= 0 for number in tally.values())


async def test_chore_in_no_place_is_requeued() -> None:
    async with shop() as app:
        store = app.runtime.store
        assert isinstance(store, RedisStore)
        handle = await app.named("send").options(after=60).enqueue(number=1)
        await store.cancel("canceller", [handle.uuid])
        await store.close_session("canceller")
        with redis.Redis.from_url(valkey.url()) as client:
            assert client.delete(f"{store.prefix}chores") == 1
        assert await store.unplaced(requeue=True) == [handle.uuid]
        async with app.running():
            assert isinstance(await handle.exception(SOON), TaskCancelled)


async def test_tasks_in_their_places_are_left_alone() -> None:
    """Ready, scheduled, parked, lifted, cancelled and ended ones."""
    async with shop() as app:
        store = app.runtime.store
        assert isinstance(store, RedisStore)
        async with app.running():
            await (await app.named("send").enqueue(number=1)).result(SOON)
            await app.pause("keyed")
            await app.pause("send")
            await app.named("send").enqueue(number=2)
            await app.named("send").options(after=60).enqueue(number=3)
            cancelled = await app.named("send").options(after=60).enqueue(number=4)
            lifted = await app.named("send").options(after=60).enqueue(number=5)
            for _ in range(2):
                await app.named("keyed").enqueue(key="k")
            assert (await store.lift("mover", [lifted.uuid])).tasks
            await store.cancel("canceller", [cancelled.uuid])
            assert await store.unplaced(requeue=True) == []
            await store.close_session("mover")
            await store.close_session("canceller", crashed=True)
            assert await store.unplaced(requeue=True) == []


async def test_record_without_a_readable_uuid_is_shown() -> None:
    async with shop() as app:
        store = app.runtime.store
        assert isinstance(store, RedisStore)
        bad = await app.named("send").enqueue(number=1)
        good = await app.named("send").enqueue(number=2)
        with redis.Redis.from_url(valkey.url()) as client:
            seq: Any = client.hget(f"{store.prefix}ids", pack_uuid(bad.uuid))
            client.hset(f"{store.prefix}task", seq, b"damaged")
        async with app.running():
            assert await good.result(SOON) == 2
            await until(store.set_aside)
        assert "1 record without a readable uuid" in await asyncio.to_thread(doctor, app)
