"""A node of a cluster fails over to its replica under load: nothing acknowledged is lost, and work continues."""

from __future__ import annotations

import asyncio

import pytest

from tests.faults import LONG
from tests.faults.cluster_load import ROUNDS, ClusterLoad, cluster_load
from tests.faults.run_log import RunLog
from tests.support.services.topologies import cluster, slot_owner
from tests.support.services.valkey import Server
from tests.support.waits import until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(3600 if LONG else 180)]

FAILOVER = 60  # seconds: the nodes agree after their timeout of 2 s, later if the machine is busy


def is_master(node: Server) -> bool:
    return node.text("INFO", "replication").startswith("# Replication\r\nrole:master")


def is_synced(node: Server) -> bool:
    return "master_link_status:up" in node.text("INFO", "replication")


async def fail_over_in_order(load: ClusterLoad, master: Server, replica: Server) -> None:
    """The master stops for a moment, so nothing is lost."""
    load.start()
    await load.grow()
    assert replica.ask("CLUSTER", "FAILOVER") == b"+OK"
    await until(lambda: is_master(replica), timeout=FAILOVER)
    await load.recover()
    await until(lambda: is_synced(master), timeout=FAILOVER)
    await load.grow()
    await load.stop()


async def fail_over_by_death(load: ClusterLoad, master: Server, replica: Server) -> None:
    """The node dies when all acknowledged tasks have been replicated. Others would be lost."""
    assert master.ask("WAIT", 1, 5000) == b":1"
    await asyncio.to_thread(master.kill)
    load.start()
    await until(lambda: is_master(replica), timeout=FAILOVER)
    await load.recover()
    await load.grow()
    await asyncio.to_thread(master.start, master.port)
    await until(lambda: is_synced(master), timeout=FAILOVER)
    await load.stop()


@pytest.mark.timed
async def test_node_of_a_cluster_fails_over_under_load(run_log: RunLog) -> None:
    with cluster(replicas=True) as nodes:
        owner = slot_owner(nodes, "onthedot:{shop}:")
        first = nodes[owner]
        second = nodes[owner + 3]
        seed = nodes[(owner + 1) % 3]
        async with cluster_load(f"redis+cluster://127.0.0.1:{seed.port}", run_log) as load:
            for _ in range(ROUNDS):
                await fail_over_in_order(load, first, second)
                await fail_over_by_death(load, second, first)
        await asyncio.to_thread(load.check, f"Redis cluster, {ROUNDS} failovers in order and {ROUNDS} by a death")
        load.app.shutdown()
