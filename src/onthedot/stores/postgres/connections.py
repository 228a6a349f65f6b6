"""Connections: one per kind of call and event loop, opened when first needed and again after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

from onthedot.errors import StoreRefused, StoreUnavailable
from onthedot.stores.postgres.errors import is_lost, is_withdrawn, translate
from onthedot.stores.postgres.tls import tls_of
from onthedot.stores.postgres.url import PostgresAddress

T = TypeVar("T")
Connection: TypeAlias = Any  # asyncpg has no type information

CONNECT_TIMEOUT = 5.0  # seconds
ANSWER_TIMEOUT = 6.0  # seconds; a dead connection must not block a worker, and locks are given up after 4 s
READ_TIMEOUT = 15.0  # seconds; a read may be large
_TRIES = 5  # of a call that the server withdrew


async def connect(address: PostgresAddress, timeout: float = READ_TIMEOUT) -> Connection:
    try:
        asyncpg: Any = import_module("asyncpg")
    except ImportError:
        raise StoreRefused("postgresql:// needs the driver asyncpg: pip install 'onthedot[postgres]'") from None
    try:
        return await asyncpg.connect(
            address.dsn,
            timeout=CONNECT_TIMEOUT,
            command_timeout=timeout,
            statement_cache_size=address.statement_cache_size,
            ssl=tls_of(address),
            server_settings={"application_name": "onthedot"},
        )
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise _connect_error(error, address) from error


def _connect_error(error: Exception, address: PostgresAddress) -> Exception:
    if isinstance(error, ValueError) and not isinstance(error, OSError):  # an error of TLS is both
        return StoreRefused(f"{address.where} cannot be read as an address: {error}")
    return translate(error, address.where)


class PostgresConnection:
    """One connection, one call at a time."""

    def __init__(self, address: PostgresAddress, timeout: float = ANSWER_TIMEOUT) -> None:
        self._address = address
        self._timeout = timeout
        self.on_timeout: Callable[[], object] | None = None
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None

    @property
    def server_pid(self) -> int | None:
        """The process of the server behind it; None: not connected."""
        return None if self._connection is None else self._connection.get_server_pid()

    async def row(self, query: str, *args: Any) -> Any:
        return await self._call(lambda connection: connection.fetchrow(query, *args))

    async def rows(self, query: str, *args: Any) -> Sequence[Any]:
        rows: Sequence[Any] = await self._call(lambda connection: connection.fetch(query, *args))
        return rows

    async def with_connection(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Run several calls on the connection itself."""
        answer: T = await self._call(work)
        return answer

    async def _call(self, call: Callable[[Any], Any]) -> Any:
        """Every call can be repeated: once if the connection proves broken, more often if the server withdrew it."""
        async with self._lock:
            for tries_left in reversed(range(_TRIES)):
                is_new = await self._open()
                assert self._connection is not None
                try:
                    return await call(self._connection)
                except TimeoutError as error:
                    self.drop()
                    if self.on_timeout is not None:
                        self.on_timeout()
                    raise translate(error, self._address.where) from error
                except Exception as error:
                    lost = is_lost(error)
                    if lost:
                        self.drop()
                    if not tries_left or not (is_withdrawn(error) or (lost and not is_new)):
                        raise translate(error, self._address.where) from error
                except BaseException:  # cancelled during the call: its answer must not reach the next caller
                    self.drop()
                    raise
        raise StoreUnavailable(f"{self._address.where}: no answer")

    async def _open(self) -> bool:
        """True: it is a new connection."""
        if self._connection is not None and not self._connection.is_closed():
            return False
        self._connection = await connect(self._address, self._timeout)
        return True

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    def drop_idle(self) -> None:
        if not self._lock.locked():
            self.drop()

    async def close(self) -> None:
        connection = self._connection
        self._connection = None
        if connection is not None and not connection.is_closed():
            with suppress(Exception):
                await connection.close(timeout=2)


class PostgresConnections:
    """The connections of one event loop: a slow read never delays the queue, and nothing delays a heartbeat."""

    def __init__(self, address: PostgresAddress) -> None:
        self.turn: PostgresConnection = PostgresConnection(address)
        self.add: PostgresConnection = PostgresConnection(address)
        self.heartbeat: PostgresConnection = PostgresConnection(address)  # also sends hints, which are as short
        self.reads: PostgresConnection = PostgresConnection(address, READ_TIMEOUT)
        self.all: tuple[PostgresConnection, ...] = (self.turn, self.add, self.heartbeat, self.reads)

    def on_timeout(self, callback: Callable[[], object]) -> None:
        """callback: called when an answer did not arrive in time."""
        for connection in self.all:
            connection.on_timeout = callback

    def drop_idle(self) -> None:
        for connection in self.all:
            connection.drop_idle()

    async def close(self) -> None:
        for connection in self.all:
            await connection.close()
