"""Calls of one event loop: scripts by their digest, repeated until they are answered."""

from __future__ import annotations

import asyncio
import random
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

from onthedot.errors import StoreRefused, StoreUnavailable
from onthedot.stores.redis.cluster import ClusterNodes
from onthedot.stores.redis.connection import RedisConnection
from onthedot.stores.redis.connections import RedisConnections
from onthedot.stores.redis.connector import Connector
from onthedot.stores.redis.errors import explained, is_node_lost, is_refusal, is_unknown_script, may_pass
from onthedot.stores.redis.scripts import SCRIPTS, TEXTS
from onthedot.stores.redis.server_clock import ServerClock
from onthedot.stores.redis.subscription import RedisSubscription
from onthedot.stores.redis.tls_probe import read_alert
from onthedot.stores.redis.url import RedisAddress, parse_url

PATIENCE = 4.0  # seconds for an answer, with all repeats; a caller of add waits for five
_ALERT_TIMEOUT = 1.0  # seconds for the TLS alert of a server that has closed the connection
REPLICA_TIMEOUT = 2.0  # seconds for replicas to confirm
_WAITING_VERBS = ("add", "adopt")  # a lost call of these is not repaired by a retry or a crash
_ADD = "add"  # it may hand a task off, and its error tells whether the tasks are stored
_SCAN_TIMEOUT = 10.0  # seconds for a scan of all keys of a server
_UNLINKED = 1000  # keys per command
_APP_KEYS = "onthedot:{*}:[sw]*s"
_PARTS = ("sequences", "schedules", "workers")  # an app that has anything has one of these keys
_OLDEST_VERSION = (6, 2)

_Request: TypeAlias = Callable[..., Awaitable[Any]]


class RedisClient:
    """redis-py is used in a cluster and for Sentinel. All other calls use our own connections, which cost less."""

    def __init__(self, address: RedisAddress) -> None:
        self._address = address
        self._cluster: ClusterNodes | None = None
        self._connector = _connector(address)
        self.connections: RedisConnections | None = None  # None: a cluster
        self._closed = False
        self._connect_error: Exception | None = None  # the last one: a request that raises it was not sent
        self._is_reached = False  # by the last call; only a server that was reached is awaited
        self.clock: ServerClock = ServerClock()
        self._waiting_verbs = _WAITING_VERBS if address.wait else ()
        self._subscriptions: weakref.WeakSet[RedisSubscription] = weakref.WeakSet()
        if address.kind == "redis+cluster":
            self._cluster = _cluster(address)
            self._request: _Request = self._cluster.request
            self._request_add = self._request
        else:
            self.connections = RedisConnections(self._connect, address.connections)
            self._request = self.connections.request
            self._request_add = partial(self.connections.request, clock=self.clock)

    async def _connect(self) -> RedisConnection:
        if self._closed:
            raise closed(self._address)
        try:
            return await self._connector.connect(partial(RedisConnection, PATIENCE, self._drop_idle))
        except Exception as error:
            self._connect_error = error
            raise

    async def check(self, prefix: str) -> None:
        """Refuse a server on which tasks could get lost."""
        request = self._request
        if self._cluster is not None:
            request = (await self._until_answered(self._cluster.node_of, prefix)).execute_command
        server = info_fields(await self._until_answered(request, "INFO", "server"))
        memory = info_fields(await self._until_answered(request, "INFO", "memory"))
        self.clock.set_by_reply(await self._until_answered(request, "TIME"))
        version = tuple(map(int, server.get("redis_version", "99.0").split(".")[:2]))
        if version < _OLDEST_VERSION:
            raise StoreRefused(f"{self._address.shown} has version {version[0]}.{version[1]}; 6.2 or newer is needed")
        policy = memory.get("maxmemory_policy", "noeviction")
        if policy.startswith("allkeys"):
            raise StoreRefused(
                f"{self._address.shown} may drop tasks when its memory is full (maxmemory-policy {policy}); "
                "use noeviction, or one that begins with volatile-"
            )

    async def call(self, verb: str, prefix: str, *args: Any) -> Any:
        """One script, which is one transaction."""
        request = self._request_add if verb == _ADD else self._request
        if verb in self._waiting_verbs:
            request = partial(self._request_and_wait, prefix)
        return await self._until_answered(request, "EVALSHA", SCRIPTS[verb].sha, 1, prefix, *args)

    async def command(self, *args: Any) -> Any:
        """One command that only reads."""
        return await self._until_answered(self._request, *args)

    async def _request_and_wait(self, prefix: str, *args: Any) -> Any:
        """WAIT confirms the last write of its connection. A repeated call may write nothing: a PUBLISH does."""
        assert self.connections is not None, "a cluster has no wait"
        replicas = self._address.wait
        write = ("PUBLISH", f"{prefix}waited", "")
        wait = ("WAIT", replicas, round(REPLICA_TIMEOUT * 1000))
        answer, _, confirmed = await self.connections.request_alone(args, write, wait)
        if confirmed < replicas:
            raise StoreUnavailable(
                f"{self._address.shown}: stored, but {confirmed} of {replicas} replicas had it after "
                f"{REPLICA_TIMEOUT:g} s (wait= in the URL): it is lost if the master dies now; the same call again "
                "does no harm"
            )
        return answer

    async def _until_answered(self, request: Any, *args: Any) -> Any:
        deadline = time.monotonic() + PATIENCE
        pause = 0.01
        may_be_stored = False
        has_timer = self._has_shared_timer(request)
        while True:
            try:
                if has_timer:
                    return await request(*args)
                async with asyncio.timeout(deadline - time.monotonic()):
                    answer = await request(*args)
                self._is_reached = True
                return answer
            except Exception as error:
                has_timer = False  # a repeat has less time
                may_be_stored = may_be_stored or not (error is self._connect_error or is_refusal(error))
                if isinstance(error, TimeoutError) and self._cluster is not None:
                    self._drop_idle()
                if is_unknown_script(error):  # a new server, or its scripts were flushed
                    args = ("EVAL", TEXTS[args[1]], *args[2:])
                    continue
                if self._may_repeat(error) and time.monotonic() + pause < deadline:
                    await asyncio.sleep(pause * random.uniform(0.5, 1))
                    pause = min(pause * 2, 0.5)
                    continue
                self._is_reached = not may_pass(error)
                explanation = explained(await self._explain_disconnect(error), self._address.shown)
                if isinstance(explanation, StoreUnavailable) and not may_be_stored:
                    explanation.stored = False
                raise explanation from error

    def _may_repeat(self, error: Exception) -> bool:
        """An outage is bridged. A server that was not there before either is reported at once."""
        if not may_pass(error):
            return False
        return self._is_reached or is_refusal(error) or not is_node_lost(error)

    def _has_shared_timer(self, request: Any) -> bool:
        """A ready connection has one timer for all its calls, which is cheaper than a timer per call."""
        if self.connections is None or not self.connections.ready:
            return False
        return request in (self._request, self._request_add)

    async def _explain_disconnect(self, error: Exception) -> Exception:
        """The server may have closed the connection because it requires a client certificate."""
        if self._address.kind == "rediss" and "tls_cert" not in self._address.options and may_pass(error):
            return await read_alert(self._address, _ALERT_TIMEOUT) or error
        return error

    def _drop_idle(self) -> None:
        """After a timeout, the other connections may be dead, too: each would cost a call, and hints would be lost."""
        reason = ConnectionAbortedError("another connection went silent")
        if self.connections is not None:
            self.connections.drop_idle(reason)
        for subscription in list(self._subscriptions):
            subscription.drop(reason)

    async def listen(self, prefix: str, *channels: str) -> RedisSubscription:
        """A subscription on a connection of its own."""
        at = None
        if self._cluster is not None:  # any node of a cluster gets all messages
            node = await self._until_answered(self._cluster.node_of, prefix)
            at = (node.host, node.port)
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._subscribe(at, channels)
        except Exception as error:
            raise explained(error, self._address.shown) from error

    async def _subscribe(self, at: tuple[str, int] | None, channels: tuple[str, ...]) -> RedisSubscription:
        subscription = await self._connector.connect(partial(RedisSubscription, PATIENCE), at)
        try:
            await subscription.subscribe(*channels)
        except BaseException:
            subscription.drop(ConnectionAbortedError("not subscribed"))
            raise
        self._subscriptions.add(subscription)
        return subscription

    async def apps(self) -> list[str]:
        """The names of the apps that have keys here. It scans all keys of the server, a thousand at a time."""
        try:
            async with asyncio.timeout(_SCAN_TIMEOUT):
                keys = [key.decode() async for key in self._keys(_APP_KEYS)]
        except TimeoutError:
            raise StoreRefused(f"{self._address.shown} has too many keys to list its apps; name one by -n") from None
        except Exception as error:
            if "NOPERM" in str(error) or "no permissions" in str(error):
                advice = f"{self._address.shown}: this user may not list the apps: name one by -n"
                raise StoreRefused(advice) from error
            raise explained(error, self._address.shown) from error
        named = (key.removeprefix("onthedot:{").partition("}:") for key in keys)
        return sorted({name for name, _, part in named if part in _PARTS})

    async def _keys(self, pattern: str) -> AsyncIterator[bytes]:
        if self._cluster is not None:
            async for key in self._cluster.driver.scan_iter(match=pattern, count=1000):
                yield key
            return
        cursor = b"0"
        found: set[bytes] = set()  # SCAN may return a key twice
        while True:
            cursor, keys = await self._request("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
            for key in keys:
                if key not in found:
                    yield key
            found.update(keys)
            if cursor == b"0":
                return

    async def remove_keys(self, prefix: str) -> None:
        """Delete all keys that begin with this prefix, which has a hash tag."""
        await self._until_answered(self._request, "UNLINK", f"{prefix}none")  # refused before the scan, if at all
        pattern = "".join(f"\\{each}" if each in "*?[]\\" else each for each in prefix) + "*"
        try:
            keys = [key async for key in self._keys(pattern)]
        except Exception as error:
            raise explained(error, self._address.shown) from error
        for start in range(0, len(keys), _UNLINKED):
            await self._until_answered(self._request, "UNLINK", *keys[start : start + _UNLINKED])

    @property
    def has_pending(self) -> bool:
        """Replies are outstanding."""
        return self.connections is not None and self.connections.has_pending

    async def close(self) -> None:
        self._closed = True
        if self.connections is not None:
            await self.connections.close()
        await asyncio.gather(*(subscription.close() for subscription in list(self._subscriptions)))
        await self._connector.close()
        if self._cluster is not None:
            await self._cluster.close()


def apps_in(url: str) -> list[str]:
    """The apps of a server, so that a command needs no name where there is only one."""

    async def list_apps() -> list[str]:
        client = RedisClient(parse_url(url))
        try:
            return await client.apps()
        finally:
            await client.close()

    return asyncio.run(list_apps())


def info_fields(info: Any) -> dict[str, str]:
    """Of INFO: bytes, or a dict of redis-py."""
    if isinstance(info, bytes):
        info = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
    return {str(name): str(value) for name, value in info.items()}


def _connector(address: RedisAddress) -> Connector:
    try:
        import_module("hiredis")
        return Connector(address)
    except ImportError:
        raise _without_drivers(address) from None


def _cluster(address: RedisAddress) -> ClusterNodes:
    try:
        return ClusterNodes(address)
    except ImportError:
        raise _without_drivers(address) from None


def _without_drivers(address: RedisAddress) -> StoreRefused:
    return StoreRefused(
        f"{address.shown} needs the drivers redis and hiredis: pip install 'onthedot[redis]' brings them"
    )


def closed(address: RedisAddress) -> StoreUnavailable:
    return StoreUnavailable(f"{address.shown} is not open on this event loop")
