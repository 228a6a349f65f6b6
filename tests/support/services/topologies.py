"""Several servers together: a cluster of three nodes, and a master with a replica and three Sentinels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.support.services import debian
from tests.support.services.certificates import Certificates
from tests.support.services.valkey import FREE, Server, missing, program
from tests.support.waits import wait_until

_SLOTS = ((0, 5460), (5461, 10922), (10923, 16383))


@contextmanager
def cluster(certificates: Certificates | None = None, *, replicas: bool = False) -> Iterator[list[Server]]:
    """With certificates: TLS, also between the nodes; tests use the plain ports. The server of the wheel has no TLS.

    replicas: three more nodes follow, the replicas of the first three in their order.
    """
    if program() is None:
        missing("Valkey cluster")
    runs = None if certificates is None else debian.wanted("redis-server")
    with ExitStack() as stack:
        nodes: list[Server] = []
        for number in range(2 * len(_SLOTS) if replicas else len(_SLOTS)):
            options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--cluster-port", FREE]
            if certificates is not None:
                options += [*certificates.options(), "--tls-cluster", "yes"]
            node = Server(*options, runs=runs)
            stack.callback(node.close)
            if number < len(_SLOTS):
                node.ask("CLUSTER", "ADDSLOTSRANGE", *_SLOTS[number])
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            nodes.append(node)
        first = nodes[0].port if certificates is None else nodes[0].tls_port
        for node in nodes[1:]:
            node.ask("CLUSTER", "MEET", "127.0.0.1", first, nodes[0].port_of("--cluster-port"))
        wait_until(lambda: all(_joined(node, len(nodes)) for node in nodes))
        for master, replica in zip(nodes, nodes[len(_SLOTS) :], strict=False):
            _replicate(master, replica)
        yield nodes


def slot_owner(nodes: list[Server], key: str) -> int:
    """The number of the node that has the slot of this key, if no slot has moved."""
    slot = int(nodes[0].ask("CLUSTER", "KEYSLOT", key).removeprefix(b":"))
    return next(number for number, (first, last) in enumerate(_SLOTS) if first <= slot <= last)


def _joined(node: Server, nodes: int) -> bool:
    text = node.text("CLUSTER", "INFO")
    return "cluster_state:ok" in text and f"cluster_known_nodes:{nodes}" in text


def _replicate(master: Server, replica: Server) -> None:
    assert replica.ask("CLUSTER", "REPLICATE", master.text("CLUSTER", "MYID")) == b"+OK"
    wait_until(lambda: "master_link_status:up" in replica.text("INFO", "replication"))


@contextmanager
def sentinels() -> Iterator[tuple[list[Server], list[Server]]]:
    """Master and replica, and their Sentinels."""
    if program() is None:
        missing("Valkey sentinels")
    with ExitStack() as stack:
        master = Server("--repl-diskless-sync-delay", "0")
        stack.callback(master.close)
        replica = Server("--replicaof", "127.0.0.1", str(master.port))
        stack.callback(replica.close)
        wait_until(lambda: "state=online" in master.text("INFO", "replication"))
        config = (
            f"sentinel monitor mymaster 127.0.0.1 {master.port} 2\n"
            "sentinel down-after-milliseconds mymaster 500\nsentinel failover-timeout mymaster 5000\n"
        )
        watchers = []
        for _ in range(3):
            watcher = Server(sentinel=config)
            stack.callback(watcher.close)
            watchers.append(watcher)
        wait_until(lambda: all(_sees(watcher) for watcher in watchers))
        yield [master, replica], watchers


def _sees(watcher: Server) -> bool:
    return "slaves=1,sentinels=3" in watcher.text("INFO", "sentinel")
