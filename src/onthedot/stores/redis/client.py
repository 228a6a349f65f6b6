"""The connections of one event loop, and how a script is called: by its digest, until it is answered."""

from __future__ import annotations

import asyncio
import random
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias, cast

from onthedot.errors import StoreRefused, StoreUnavailable
from onthedot.stores.redis import tls
from onthedot.stores.redis.connection import RedisConnection
from onthedot.stores.redis.connections import RedisConnections
from onthedot.stores.redis.connector import Connector, no_retry
from onthedot.stores.redis.errors import explained, is_unknown_script, may_pass
from onthedot.stores.redis.scripts import SCRIPTS, TEXTS
from onthedot.stores.redis.subscription import RedisSubscription
from onthedot.stores.redis.tls_probe import read_alert
from onthedot.stores.redis.url import RedisAddress, place_of

PATIENCE = 4.0  # seconds for an answer, tries and all: whoever adds waits for five
_LISTEN = 1.0  # seconds, after all tries: for why a server hung up
_CONFIRM = 2.0  # seconds for replicas to have it
_ADDING = ("add", "adopt")  # nothing brings it back, all else is redone
_TELLING = ("add",)  # somebody waits for what they bring
_SEARCH = 10.0  # seconds for turning over all keys of a server
_SEQUENCES = "onthedot:{*}:sequences"  # every app has one
_OLDEST = (6, 2)

_Ask: TypeAlias = Callable[..., Awaitable[Any]]


class RedisClient:
    """redis-py knows its way in a cluster, and to sentinels. All else goes by our own connections: they cost less."""

    def __init__(self, address: RedisAddress) -> None:
        self._place = address
        self._redis: Any = _cluster(address) if address.kind == "redis+cluster" else None
        self._door = _door(address)
        self._connections = RedisConnections(self._connect, address.connections) if self._redis is None else None
        self._closed = False
        self._waits = _ADDING if address.wait else ()
        self._ears: weakref.WeakSet[RedisSubscription] = weakref.WeakSet()
        self._ask: _Ask = (
            cast("Any", self._redis).execute_command if self._connections is None else self._connections.request
        )
        self._tell: _Ask = self._ask if self._connections is None else partial(self._connections.request, behind=True)

    async def _connect(self) -> RedisConnection:
        if self._closed:
            raise closed(self._place)
        return await self._door.connect(partial(RedisConnection, PATIENCE, self._drop_idle))

    async def check(self, prefix: str) -> None:
        """Refuses a server on which tasks could get lost."""
        where = {} if self._redis is None else {"target_nodes": await self._until_answered(self._node, prefix)}
        server = fields(await self.do("INFO", "server", **where))
        memory = fields(await self.do("INFO", "memory", **where))
        version = tuple(map(int, server.get("redis_version", "99.0").split(".")[:2]))
        if version < _OLDEST:
            raise StoreRefused(f"{self._place.shown} has version {version[0]}.{version[1]}; 6.2 or newer is needed")
        policy = memory.get("maxmemory_policy", "noeviction")
        if policy.startswith("allkeys"):
            raise StoreRefused(
                f"{self._place.shown} may drop tasks when its memory is full (maxmemory-policy {policy}); "
                "use noeviction, or one that begins with volatile-"
            )

    async def _node(self, prefix: str) -> Any:
        await self._redis.initialize()
        return self._redis.get_node_from_key(prefix)

    async def call(self, verb: str, prefix: str, *args: Any) -> Any:
        """One script, which is one transaction."""
        request = self._tell if verb in _TELLING else self._ask
        if verb in self._waits:
            request = partial(self._ask_and_wait, prefix)
        return await self._until_answered(request, "EVALSHA", SCRIPTS[verb].sha, 1, prefix, *args)

    async def do(self, *words: Any, **options: Any) -> Any:
        """One command that only reads."""
        return await self._until_answered(partial(self._ask, **options) if options else self._ask, *words)

    async def _ask_and_wait(self, prefix: str, *words: Any) -> Any:
        """WAIT goes by what its own line has written last, and a repeated call may write nothing: a message is sent."""
        assert self._connections is not None, "a cluster has no wait"
        wanted, mark = self._place.wait, ("PUBLISH", f"{prefix}waited", "")
        answer, _, there = await self._connections.ask_alone(words, mark, ("WAIT", wanted, round(_CONFIRM * 1000)))
        if there < wanted:
            raise StoreUnavailable(
                f"{self._place.shown}: stored, but {there} of {wanted} replicas had it after {_CONFIRM:g} s (wait= in "
                "the URL): it is lost if the master dies now; the same call again does no harm"
            )
        return answer

    async def _until_answered(self, once: Any, *args: Any) -> Any:
        until, pause, minded = time.monotonic() + PATIENCE, 0.01, self._has_shared_timer(once)
        while True:
            try:
                if minded:
                    return await once(*args)
                async with asyncio.timeout(until - time.monotonic()):
                    return await once(*args)
            except Exception as error:
                minded = False  # from now on there is less time
                if isinstance(error, TimeoutError) and self._redis is not None:
                    self._drop_idle()
                if is_unknown_script(error):  # a new server, or somebody has flushed them
                    args = ("EVAL", TEXTS[args[1]], *args[2:])
                    continue
                if may_pass(error) and time.monotonic() + pause < until:
                    await asyncio.sleep(pause * random.uniform(0.5, 1))
                    pause = min(pause * 2, 0.5)
                    continue
                raise explained(await self._explain_disconnect(error), self._place.shown) from error

    def _has_shared_timer(self, once: Any) -> bool:
        """A line that can be asked at once looks at the clock for all who wait: cheaper than a timer a call."""
        return self._connections is not None and self._connections.ready and once in (self._ask, self._tell)

    async def _explain_disconnect(self, error: Exception) -> Exception:
        """A connection that broke may have been a server that wants a certificate of ours."""
        if self._place.kind == "rediss" and "tls_cert" not in self._place.options and may_pass(error):
            return await read_alert(self._place, _LISTEN) or error
        return error

    def _drop_idle(self) -> None:
        """A connection went silent: the others may be, too. Each would cost a call, and that of hints not be missed."""
        reason = ConnectionAbortedError("another connection went silent")
        if self._connections is not None:
            self._connections.drop_idle(reason)
        for ear in list(self._ears):
            ear.drop(reason)

    async def listen(self, prefix: str, *channels: str) -> RedisSubscription:
        """A subscription on a connection of its own."""
        at = None
        if self._redis is not None:  # what one node is told, all are
            node = await self._until_answered(self._node, prefix)
            at = (node.host, node.port)
        try:
            async with asyncio.timeout(PATIENCE):
                return await self._subscribed(at, channels)
        except Exception as error:
            raise explained(error, self._place.shown) from error

    async def _subscribed(self, at: tuple[str, int] | None, channels: tuple[str, ...]) -> RedisSubscription:
        ear = await self._door.connect(partial(RedisSubscription, PATIENCE), at)
        try:
            await ear.subscribe(*channels)
        except BaseException:
            ear.drop(ConnectionAbortedError("not subscribed"))
            raise
        self._ears.add(ear)
        return ear

    async def apps(self) -> list[str]:
        """The names of those that have keys here. It turns over every key of the server, a thousand at a time."""
        try:
            async with asyncio.timeout(_SEARCH):
                keys = [key.decode() async for key in self._keys(_SEQUENCES)]
        except TimeoutError:
            raise StoreRefused(
                f"{self._place.shown} has too many keys to find out whose tasks are in it; say the name of the app: -n"
            ) from None
        except Exception as error:
            if "NOPERM" in str(error) or "no permissions" in str(error):
                says = f"{self._place.shown}: this user may not see which apps there are: say which by -n"
                raise StoreRefused(says) from error
            raise explained(error, self._place.shown) from error
        return sorted(key.removeprefix("onthedot:{").removesuffix("}:sequences") for key in keys)

    async def _keys(self, pattern: str) -> AsyncIterator[bytes]:
        if self._redis is not None:
            async for key in self._redis.scan_iter(match=pattern, count=1000):
                yield key
            return
        cursor, found = b"0", set[bytes]()  # one may come twice
        while True:
            cursor, keys = await self._ask("SCAN", cursor, "MATCH", pattern, "COUNT", 1000)
            for key in keys:
                if key not in found:
                    yield key
            found.update(keys)
            if cursor == b"0":
                return

    @property
    def has_pending(self) -> bool:
        """Whether answers of the server are to come."""
        return self._connections is not None and self._connections.has_pending

    async def close(self) -> None:
        self._closed = True
        if self._connections is not None:
            await self._connections.close()
        await asyncio.gather(*(ear.close() for ear in list(self._ears)))
        await self._door.close()
        if self._redis is not None:
            await self._redis.aclose()


def apps_in(url: str) -> list[str]:
    """For people, who need not say the name of the only one."""

    async def look() -> list[str]:
        client = RedisClient(place_of(url))
        try:
            return await client.apps()
        finally:
            await client.close()

    return asyncio.run(look())


def fields(info: Any) -> dict[str, str]:
    """Of INFO, whichever way the driver gives them."""
    if isinstance(info, bytes):
        info = dict(connection.split(":", 1) for connection in info.decode().splitlines() if ":" in connection)
    return {str(name): str(value) for name, value in info.items()}


def _door(address: RedisAddress) -> Connector:
    try:
        import_module("hiredis")
        return Connector(address)
    except ImportError:
        raise _without_drivers(address) from None


def _cluster(address: RedisAddress) -> Any:
    try:
        from redis.asyncio.cluster import ClusterNode, RedisCluster
    except ImportError:
        raise _without_drivers(address) from None
    settings: dict[str, Any] = {  # no socket_timeout: its wait_for makes a task a call, and may swallow a cancel
        "username": address.username, "password": address.password, "socket_timeout": None, "client_name": "onthedot",
        "protocol": 2, "max_connections": address.connections, **no_retry(), **tls.settings(address),
    }  # fmt: skip
    return RedisCluster(startup_nodes=[ClusterNode(host, port) for host, port in address.hosts], **settings)


def _without_drivers(address: RedisAddress) -> StoreRefused:
    return StoreRefused(
        f"{address.shown} needs the drivers redis and hiredis: pip install 'onthedot[redis]' brings them"
    )


def closed(address: RedisAddress) -> StoreUnavailable:
    return StoreUnavailable(f"{address.shown} is not open on this event loop")
