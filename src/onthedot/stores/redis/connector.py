"""Opens connections: address of the server, TLS, authentication."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from onthedot.stores.redis import tls
from onthedot.stores.redis.connection import CLOSE_TIMEOUT, RedisConnection
from onthedot.stores.redis.url import RedisAddress

CONNECT_TIMEOUT = 2.0  # seconds, with authentication

ConnectionT = TypeVar("ConnectionT", bound=RedisConnection)


class Connector:
    """Connects to the server, or to the master that Sentinel names."""

    def __init__(self, address: RedisAddress) -> None:
        tls.check(address)
        self._address = address
        self._context: ssl.SSLContext | None = None
        self._sentinel: Any = _sentinel(address) if address.kind == "redis+sentinel" else None

    async def connect(self, create: Callable[[], ConnectionT], node: tuple[str, int] | None = None) -> ConnectionT:
        """node: of a cluster; None: the current master."""
        if self._context is None:
            self._context = tls.context(self._address)
        host, port = node or await self._master()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                return await self._open(create, host, port)
        except TimeoutError:
            raise TimeoutError(f"no connection to {host}:{port} within {CONNECT_TIMEOUT:g} s") from None

    async def _master(self) -> tuple[str, int]:
        if self._sentinel is None:
            return self._address.hosts[0]
        found: tuple[str, int] = await self._sentinel.discover_master(self._address.service)
        return found

    async def _open(self, create: Callable[[], ConnectionT], host: str, port: int) -> ConnectionT:
        loop = asyncio.get_running_loop()
        timeout = None if self._context is None else CLOSE_TIMEOUT
        _, connection = await loop.create_connection(
            create, host, port, ssl=self._context, ssl_shutdown_timeout=timeout
        )
        try:
            await connection.request_all(*self._first_commands())
        except BaseException:
            connection.drop(ConnectionAbortedError("not authenticated"))
            raise
        return connection

    def _first_commands(self) -> list[tuple[Any, ...]]:
        address = self._address
        commands: list[tuple[Any, ...]] = []
        if address.username:
            commands.append(("AUTH", address.username, address.password or ""))
        elif address.password:
            commands.append(("AUTH", address.password))
        commands.append(("CLIENT", "SETNAME", "onthedot"))
        if address.db:
            commands.append(("SELECT", address.db))
        return commands

    async def close(self) -> None:
        if self._sentinel is not None:
            for client in self._sentinel.sentinels:
                await client.aclose()


def _sentinel(address: RedisAddress) -> Any:
    login = {name.removeprefix("sentinel_"): address.options[name] for name in address.options if "sentinel" in name}
    options = {"socket_timeout": CONNECT_TIMEOUT, **no_retry(), **login, **tls.settings(address)}
    return import_module("redis.asyncio.sentinel").Sentinel(address.hosts, sentinel_kwargs=options)


def no_retry() -> dict[str, Any]:
    """For redis-py: our caller repeats the call, within its own deadline."""
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    return {"retry": Retry(NoBackoff(), 0), "socket_connect_timeout": CONNECT_TIMEOUT}
