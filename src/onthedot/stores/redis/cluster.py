"""The node of a cluster that has the slot of an app: all its keys have one hash tag."""

from __future__ import annotations

from typing import Any

from onthedot.stores.redis import tls
from onthedot.stores.redis.connector import no_retry
from onthedot.stores.redis.errors import is_moved, is_node_lost
from onthedot.stores.redis.url import RedisAddress

_KEY = {"EVALSHA": 3, "EVAL": 3}  # position of the key; of other commands it is the first argument


class ClusterNodes:
    """Calls the node itself, and never follows ASK, as redis-py would.

    While a slot is migrated key by key, the node that has had it answers scripts by ASK, and the node that gets it by
    MOVED. A script that follows ASK would run on a node without the data: its tasks would be lost, and their keys
    would stop the migration. The caller repeats the call until the slot has moved.
    """

    def __init__(self, address: RedisAddress) -> None:
        from redis.asyncio.cluster import ClusterNode, RedisCluster

        settings: dict[str, Any] = {  # no socket_timeout: it creates a task per call and may swallow a cancel
            "username": address.username, "password": address.password, "socket_timeout": None,
            "client_name": "onthedot", "protocol": 2, "max_connections": address.connections, **no_retry(),
            **tls.settings(address),
        }  # fmt: skip
        self.driver: Any = RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in address.hosts], **settings
        )
        self._node: Any = None

    async def node_of(self, key: str) -> Any:
        if self._node is None:
            await self.driver.initialize()
            self._node = self.driver.get_node_from_key(key)
        return self._node

    async def request(self, *command: Any) -> Any:
        node = await self.node_of(command[_KEY.get(command[0], 1)])
        try:
            return await node.execute_command(*command)
        except Exception as error:
            if is_moved(error):
                self._node = self.driver.get_node(host=error.host, port=error.port)  # type: ignore[attr-defined]
            if self._node is None or is_node_lost(error):
                await self.close()  # the next call reads the slots again
            raise

    async def close(self) -> None:
        self._node = None
        await self.driver.aclose()
