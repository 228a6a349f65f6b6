"""How one comes in: where the server is, by TLS or not, and who one is."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from onthedot.stores.redis import tls
from onthedot.stores.redis.connection import GOODBYE, RedisConnection
from onthedot.stores.redis.url import RedisAddress

CONNECT = 2.0  # seconds, with the greeting

SomeLine = TypeVar("SomeLine", bound=RedisConnection)


class Connector:
    def __init__(self, address: RedisAddress) -> None:
        tls.check(address)
        self._place = address
        self._context: ssl.SSLContext | None = None
        self._watchers: Any = _sentinels(address) if address.kind == "redis+sentinel" else None

    async def connect(self, made: Callable[[], SomeLine], at: tuple[str, int] | None = None) -> SomeLine:
        """`at` a node of a cluster; else where the server is now."""
        if self._context is None:
            self._context = tls.context(self._place)
        host, port = at or await self._where()
        try:
            async with asyncio.timeout(CONNECT):
                return await self._enter(made, host, port)
        except TimeoutError:
            raise TimeoutError(f"no connection to {host}:{port} within {CONNECT:g} s") from None

    async def _where(self) -> tuple[str, int]:
        """A sentinel knows which one is the master now."""
        if self._watchers is None:
            return self._place.hosts[0]
        found: tuple[str, int] = await self._watchers.discover_master(self._place.service)
        return found

    async def _enter(self, made: Callable[[], SomeLine], host: str, port: int) -> SomeLine:
        loop, goodbye = asyncio.get_running_loop(), None if self._context is None else GOODBYE
        _, connection = await loop.create_connection(made, host, port, ssl=self._context, ssl_shutdown_timeout=goodbye)
        try:
            await connection.ask_all(*self._greeting())
        except BaseException:
            connection.drop(ConnectionAbortedError("not let in"))
            raise
        return connection

    def _greeting(self) -> list[tuple[Any, ...]]:
        address, said = self._place, list[tuple[Any, ...]]()
        if address.username:
            said.append(("AUTH", address.username, address.password or ""))
        elif address.password:
            said.append(("AUTH", address.password))
        said.append(("CLIENT", "SETNAME", "onthedot"))
        if address.db:
            said.append(("SELECT", address.db))
        return said

    async def close(self) -> None:
        for each in () if self._watchers is None else self._watchers.sentinels:
            await each.aclose()


def _sentinels(address: RedisAddress) -> Any:
    login = {name.removeprefix("sentinel_"): address.options[name] for name in address.options if "sentinel" in name}
    asked = {"socket_timeout": CONNECT, **no_retry(), **login, **tls.settings(address)}
    return import_module("redis.asyncio.sentinel").Sentinel(address.hosts, sentinel_kwargs=asked)


def no_retry() -> dict[str, Any]:
    """For redis-py: who calls tries again, and knows for how long."""
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    return {"retry": Retry(NoBackoff(), 0), "socket_connect_timeout": CONNECT}
