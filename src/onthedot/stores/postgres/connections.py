"""Connections: one for each kind of call and each event loop, made when first needed, and again after it broke."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

from onthedot.errors import StoreRefused, StoreUnavailable
from onthedot.stores.postgres.errors import explained, is_lost, is_withdrawn
from onthedot.stores.postgres.tls import tls_of
from onthedot.stores.postgres.url import PostgresAddress

T = TypeVar("T")
Connection: TypeAlias = Any  # asyncpg says nothing about its types

CONNECT = 5.0  # seconds to reach the server
ANSWER = 6.0  # seconds for an answer: a link that went silent must not hold a worker; locks give up after 4 s
LOOK = 15.0  # for one who only looks, perhaps at much
_TRIES = 5  # of a call that the server took back


async def connect(address: PostgresAddress, answer: float = LOOK) -> Connection:
    try:
        asyncpg: Any = import_module("asyncpg")
    except ImportError:
        raise StoreRefused("postgresql:// needs the driver asyncpg: pip install 'onthedot[postgres]'") from None
    try:
        return await asyncpg.connect(
            address.dsn,
            timeout=CONNECT,
            command_timeout=answer,
            statement_cache_size=address.statement_cache_size,
            ssl=tls_of(address),
            server_settings={"application_name": "onthedot"},
        )
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, ValueError) as error:
        raise _unreached(error, address) from error


def _unreached(error: Exception, address: PostgresAddress) -> Exception:
    if isinstance(error, ValueError) and not isinstance(error, OSError):  # one of TLS is both
        return StoreRefused(f"{address.where} cannot be read as an address: {error}")
    return explained(error, address.where)


class PostgresConnection:
    """One connection, one call at a time."""

    def __init__(self, address: PostgresAddress, answer: float = ANSWER) -> None:
        self._address = address
        self._answer = answer
        self.on_timeout: Callable[[], object] = bool  # told of an answer that did not come
        self._lock = asyncio.Lock()
        self._connection: Connection | None = None

    async def row(self, query: str, *args: Any) -> Any:
        return await self._ask(lambda connection: connection.fetchrow(query, *args))

    async def rows(self, query: str, *args: Any) -> Sequence[Any]:
        answer: Sequence[Any] = await self._ask(lambda connection: connection.fetch(query, *args))
        return answer

    async def with_connection(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """The connection itself, for a while."""
        answer: T = await self._ask(work)
        return answer

    async def _ask(self, call: Callable[[Any], Any]) -> Any:
        """Every call may be repeated: once if the connection proves broken, more often if the server took it back."""
        async with self._lock:
            for left in reversed(range(_TRIES)):
                fresh = await self._open()
                assert self._connection is not None
                try:
                    return await call(self._connection)
                except Exception as error:
                    lost = is_lost(error) or isinstance(error, TimeoutError)
                    if lost:
                        self.drop()
                    if isinstance(error, TimeoutError):
                        self.on_timeout()
                    again = is_withdrawn(error) or (lost and not fresh and not isinstance(error, TimeoutError))
                    if not left or not again:
                        raise explained(error, self._address.where) from error
                except BaseException:  # cancelled in mid-call: the answer would come to the next who asks
                    self.drop()
                    raise
        raise StoreUnavailable(f"{self._address.where}: no answer")

    async def _open(self) -> bool:
        """True: it is a new one."""
        if self._connection is not None and not self._connection.is_closed():
            return False
        self._connection = await connect(self._address, self._answer)
        return True

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    def drop_idle(self) -> None:
        if not self._lock.locked():
            self.drop()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed():
            with suppress(Exception):
                await connection.close(timeout=2)


class PostgresConnections:
    """The lines of one event loop: a slow page never stops the queue, and nothing stops a beat."""

    def __init__(self, address: PostgresAddress) -> None:
        self.users: int = 0
        self.turn: PostgresConnection = PostgresConnection(address)
        self.add: PostgresConnection = PostgresConnection(address)
        self.beat: PostgresConnection = PostgresConnection(address)  # and hints, which are as short
        self.look: PostgresConnection = PostgresConnection(address, LOOK)
        self.all: tuple[PostgresConnection, ...] = (self.turn, self.add, self.beat, self.look)

    async def close(self) -> None:
        for connection in self.all:
            await connection.close()
