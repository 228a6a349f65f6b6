"""A node of a cluster fails over to its replica under load: nothing acknowledged is lost, and work continues."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onthedot import App
from onthedot.errors import StoreUnavailable
from tests.support.services.topologies import cluster, slot_owner
from tests.support.services.valkey import Server
from tests.support.waits import SOON, until

pytestmark = [pytest.mark.fault, pytest.mark.once]

FAILOVER = 60  # seconds: the nodes agree after their timeout of 2 s, later if the machine is busy


class Load:
    """Adds tasks until it is stopped, and keeps the handles of those that are acknowledged."""

    def __init__(self, work: Any) -> None:
        self._work = work
        self._stopped = asyncio.Event()
        self._adding = asyncio.create_task(self._add())
        self.handles: list[Any] = []

    async def _add(self) -> None:
        while not self._stopped.is_set():
            try:
                self.handles.append(await self._work.enqueue(len(self.handles)))
            except StoreUnavailable:
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.01)

    async def grows(self) -> None:
        before = len(self.handles)
        await until(lambda: len(self.handles) > before + 50)

    async def stop(self) -> None:
        self._stopped.set()
        await self._adding
        assert [await handle.result(timeout=SOON) for handle in self.handles] == list(range(len(self.handles)))


def is_master(node: Server) -> bool:
    return node.text("INFO", "replication").startswith("# Replication\r\nrole:master")


def is_synced(node: Server) -> bool:
    return "master_link_status:up" in node.text("INFO", "replication")


async def test_node_fails_over_under_load() -> None:
    """In order, which loses nothing; then by the death of the node, which loses what no replica has."""
    with cluster(replicas=True) as nodes:
        owner = slot_owner(nodes, "onthedot:{shop}:")
        first = nodes[owner]
        second = nodes[owner + 3]
        seed = nodes[(owner + 1) % 3]
        app = App("shop", store=f"redis+cluster://127.0.0.1:{seed.port}", stop_timeout=0)

        @app.task
        async def work(number: int) -> int:
            return number

        async with app.running():
            load = Load(work)
            await load.grows()
            assert second.ask("CLUSTER", "FAILOVER") == b"+OK"
            await until(lambda: is_master(second) and is_synced(first), timeout=FAILOVER)
            await load.grows()
            await load.stop()
            assert second.ask("WAIT", 1, 5000) == b":1"
            await asyncio.to_thread(second.kill)
            load = Load(work)  # what was acknowledged before has been replicated
            await until(lambda: is_master(first), timeout=FAILOVER)
            await load.grows()
            await load.stop()
