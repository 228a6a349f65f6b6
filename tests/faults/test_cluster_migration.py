"""The slot of an app moves to another node of the cluster: nothing acknowledged is lost, and work continues."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import redis

from onthedot.errors import StoreError
from onthedot.stores.contract import NewTask
from onthedot.stores.redis import RedisStore, client
from tests.faults import LONG
from tests.faults.cluster_load import ROUNDS, cluster_load
from tests.faults.run_log import RunLog
from tests.support.services.topologies import cluster
from tests.support.services.valkey import Server
from tests.support.waits import wait_until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(1800 if LONG else 180)]

PREFIX = "onthedot:{shop}:"
STEPS = 40  # of a migration by key, one per 50 ms


class Migration:
    """Moves the slot of the app, by commands to the nodes."""

    def __init__(self, nodes: list[Server], clients: list[Any]) -> None:
        self._nodes = nodes
        self._clients = clients
        self.slot: int = clients[0].execute_command("CLUSTER", "KEYSLOT", PREFIX)
        self.aim()

    def aim(self) -> None:
        """From the node that has the slot to the next one. All nodes must agree on the former."""
        wait_until(lambda: len(self._owners()) == 1)
        (owner,) = self._owners()
        target = (owner + 1) % len(self._nodes)
        self._source = self._clients[owner]
        self._target = self._clients[target]
        self._target_port = self._nodes[target].port
        self._source_id = _id(self._source)
        self.target_id = _id(self._target)

    def _owners(self) -> list[int]:
        return [number for number, one in enumerate(self._clients) if self._owns(one)]

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
        wait_until(lambda: not self._owns(self._source))

    def by_key(self) -> None:
        self.begin()
        keys: int = self._source.execute_command("CLUSTER", "COUNTKEYSINSLOT", self.slot)
        while self.move_keys(max(5, keys // STEPS)):
            time.sleep(0.05)  # the pace of a migration
        self.end()


def _id(one: Any) -> str:
    text: bytes = one.execute_command("CLUSTER", "MYID")
    return text.decode()


@contextmanager
def migration() -> Iterator[tuple[str, Migration]]:
    with cluster() as nodes, ExitStack() as stack:
        clients = [stack.enter_context(redis.Redis.from_url(node.url)) for node in nodes]
        yield f"redis+cluster://127.0.0.1:{nodes[0].port}", Migration(nodes, clients)


@pytest.mark.timed
@pytest.mark.parametrize("how", ["by_key", "at_once"])
async def test_slot_moves_under_load(how: str, run_log: RunLog) -> None:
    """Every add during the migration is acknowledged or certainly not stored."""
    with migration() as (url, moving):
        async with cluster_load(url, run_log) as load:
            load.start()
            for _ in range(ROUNDS):
                await load.grow()
                move: Callable[[], None] = getattr(moving, how)
                await asyncio.to_thread(move)
                await load.recover()
                await load.grow()
                await asyncio.to_thread(moving.aim)
            await load.stop()
        assert load.unknown == []
        await asyncio.to_thread(load.check, f"Redis cluster, {ROUNDS} slot migrations {how}")
        load.app.shutdown()


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
