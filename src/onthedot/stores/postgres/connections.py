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
BRIDGED_OUTAGE = 4.0  # seconds that a call waits for a server that was reached before; an add is given up after 5 s
_TRIES = 5  # of a call that the server withdrew
_TRIES_LOST = 3  # of a call whose connection broke: the call itself may be the cause
_FIRST_PAUSE = 0.02  # seconds between two attempts to connect
_LONGEST_PAUSE = 0.25


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


class Reachability:
    """Whether the server was reached by the last attempt, for all connections of one event loop."""

    def __init__(self) -> None:
        self.is_reached = False


class PostgresConnection:
    """One connection, one call at a time."""

    def __init__(
        self, address: PostgresAddress, timeout: float = ANSWER_TIMEOUT, reachability: Reachability | None = None
    ) -> None:
        self._address = address
        self._timeout = timeout
        self._reachability = reachability or Reachability()
        self.on_timeout: Callable[[], object] | None = None
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None
        self._is_closed = False

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
        """Every call can be repeated: if the connection proves broken, or if the server withdrew it."""
        async with self._lock:
            give_up_at = asyncio.get_running_loop().time() + BRIDGED_OUTAGE
            for sent in range(_TRIES):
                try:
                    connection = await self._open(give_up_at)
                except StoreUnavailable as error:
                    error.stored = None if sent else False
                    raise
                try:
                    return await call(connection)
                except TimeoutError as error:
                    self.drop()
                    if self.on_timeout is not None:
                        self.on_timeout()
                    raise translate(error, self._address.where) from error
                except Exception as error:
                    tries = _TRIES
                    may_repeat = is_withdrawn(error)
                    if is_lost(error):
                        self.drop()
                        tries = _TRIES_LOST
                        may_repeat = True
                    if sent + 1 == tries or not may_repeat:
                        raise translate(error, self._address.where) from error
                except BaseException:  # cancelled during the call: its answer must not reach the next caller
                    self.drop()
                    raise
        raise StoreUnavailable(f"{self._address.where}: no answer")

    async def _open(self, give_up_at: float) -> Connection:
        """The connection. A server that was there a moment ago, as one that restarts, is awaited until `give_up_at`."""
        pause = _FIRST_PAUSE
        while self._connection is None or self._connection.is_closed():
            try:
                connection = await connect(self._address, self._timeout)
            except StoreUnavailable:
                is_over = asyncio.get_running_loop().time() + pause >= give_up_at
                if is_over or self._is_closed or not self._reachability.is_reached:
                    self._reachability.is_reached = False
                    raise
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            if self._is_closed:
                connection.terminate()
                raise StoreUnavailable(f"{self._address.where} is closed")
            self._connection = connection
            self._reachability.is_reached = True
        return self._connection

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    def drop_idle(self) -> None:
        if not self._lock.locked():
            self.drop()

    async def close(self) -> None:
        self._is_closed = True
        connection = self._connection
        self._connection = None
        if connection is not None and not connection.is_closed():
            with suppress(Exception):
                await connection.close(timeout=2)


class PostgresConnections:
    """The connections of one event loop: a slow read never delays the queue, and nothing delays a heartbeat."""

    def __init__(self, address: PostgresAddress) -> None:
        reachability = Reachability()
        self.turn: PostgresConnection = PostgresConnection(address, reachability=reachability)
        self.add: PostgresConnection = PostgresConnection(address, reachability=reachability)
        self.heartbeat: PostgresConnection = PostgresConnection(address, reachability=reachability)  # and short hints
        self.events: PostgresConnection = PostgresConnection(address, reachability=reachability)  # relays and readers
        self.reads: PostgresConnection = PostgresConnection(address, READ_TIMEOUT, reachability)
        self.all: tuple[PostgresConnection, ...] = (self.turn, self.add, self.heartbeat, self.events, self.reads)

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
