"""The slot of an app moves to another node of the cluster: nothing acknowledged is lost, and work continues."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import redis

from onthedot import App
from onthedot.errors import StoreError, StoreUnavailable
from onthedot.stores.contract import NewTask
from onthedot.stores.redis import RedisStore, client
from tests.support.services.topologies import cluster
from tests.support.services.valkey import Server
from tests.support.waits import SOON, until

pytestmark = [pytest.mark.fault, pytest.mark.once]

PREFIX = "onthedot:{shop}:"


class Migration:
    """Moves the slot of the app, by commands to the nodes."""

    def __init__(self, nodes: list[Server], clients: list[Any]) -> None:
        self._clients = clients
        self.slot: int = clients[0].execute_command("CLUSTER", "KEYSLOT", PREFIX)
        owners = [number for number, one in enumerate(clients) if self._owns(one)]
        assert len(owners) == 1
        self._source = clients[owners[0]]
        self._target = clients[(owners[0] + 1) % len(nodes)]
        self._target_port = nodes[(owners[0] + 1) % len(nodes)].port
        self._source_id = _id(self._source)
        self.target_id = _id(self._target)

    def _owns(self, one: Any) -> bool:
        try:
            one.execute_command("GET", PREFIX)
        except redis.exceptions.ResponseError:
            return False
        return True

    def begin(self) -> None:
        self._target.execute_command("CLUSTER", "SETSLOT", self.slot, "IMPORTING", self._source_id)
        self._source.execute_command("CLUSTER", "SETSLOT", self.slot, "MIGRATING", self.target_id)

    def move_keys(self, number: int = 100_000) -> int:
        """Raises BUSYKEY if the target has one of them."""
        keys = self._source.execute_command("CLUSTER", "GETKEYSINSLOT", self.slot, number)
        if keys:
            self._source.execute_command("MIGRATE", "127.0.0.1", self._target_port, "", 0, 5000, "KEYS", *keys)
        return len(keys)

    def end(self) -> None:
        for one in (self._target, self._source, *self._clients):
            one.execute_command("CLUSTER", "SETSLOT", self.slot, "NODE", self.target_id)

    def at_once(self) -> None:
        """Valkey 9 moves a slot in one step."""
        try:
            self._source.execute_command(
                "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", self.slot, self.slot, "NODE", self.target_id
            )
        except redis.exceptions.ResponseError as error:
            pytest.skip(f"this server migrates slots key by key only: {error}")
        deadline = time.monotonic() + SOON
        while self._owns(self._source):
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def by_key(self) -> None:
        self.begin()
        while self.move_keys(5):
            time.sleep(0.05)
        self.end()


def _id(one: Any) -> str:
    text: bytes = one.execute_command("CLUSTER", "MYID")
    return text.decode()


@contextmanager
def migration() -> Iterator[tuple[str, Migration]]:
    with cluster() as nodes, ExitStack() as stack:
        clients = [stack.enter_context(redis.Redis.from_url(node.url)) for node in nodes]
        yield f"redis+cluster://127.0.0.1:{nodes[0].port}", Migration(nodes, clients)


async def add_all_the_time(work: Any, handles: list[Any], stop: asyncio.Event) -> None:
    while not stop.is_set():
        try:
            handles.append(await work.enqueue(len(handles)))
        except StoreUnavailable as error:
            if error.stored is not False:  # the nodes have not refused it
                raise
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["by_key", "at_once"])
async def test_slot_moves_under_load(how: str) -> None:
    with migration() as (url, moving):
        app = App("shop", store=url, stop_timeout=0)

        @app.task
        async def work(number: int) -> int:
            return number

        async with app.running():
            handles: list[Any] = []
            stop = asyncio.Event()
            adding = asyncio.create_task(add_all_the_time(work, handles, stop))
            await until(lambda: len(handles) > 50)
            move: Callable[[], None] = getattr(moving, how)
            await asyncio.to_thread(move)
            before = len(handles)
            await until(lambda: len(handles) > before + 50)
            stop.set()
            await adding
            assert [await handle.result(timeout=SOON) for handle in handles] == list(range(len(handles)))


async def test_nothing_is_stored_while_the_slot_is_between_two_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PATIENCE", 0.5)
    with migration() as (url, moving):
        store = RedisStore(url, None, "shop")
        await store.open()
        await store.add([NewTask("before", "a", b"")])
        moving.begin()
        while moving.move_keys(3):
            with pytest.raises(StoreError) as caught:
                await store.add([NewTask("between", "a", b"")])
            assert caught.value.stored is False
        moving.end()
        await store.add([NewTask("after", "a", b"")])
        found = await store.get(["before", "between", "after"])
        assert [record and record.uuid for record in found] == ["before", None, "after"]
        await store.close()
