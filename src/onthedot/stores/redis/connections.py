"""The connections of one event loop that carry calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from onthedot.stores.redis.connection import RedisConnection
from onthedot.stores.redis.errors import is_answer
from onthedot.stores.redis.server_clock import ServerClock


class RedisConnections:
    """One connection for all calls: a server answers one after the other anyway. Calls with WAIT have their own."""

    def __init__(self, connect: Callable[[], Coroutine[Any, Any, RedisConnection]], most: int) -> None:
        self._connect = connect
        self.shared: RedisConnection | None = None
        self._opening: asyncio.Task[RedisConnection] | None = None
        self._idle: list[RedisConnection] = []
        self._closed = False
        self._free: asyncio.Semaphore | None = asyncio.Semaphore(most - 1) if most > 1 else None

    @property
    def ready(self) -> bool:
        """A request is written at once, and the timer of the connection covers it."""
        return self.shared is not None and self.shared.ready

    @property
    def has_pending(self) -> bool:
        """Replies are outstanding on the shared connection."""
        return self.shared is not None and self.shared.has_pending

    async def request(self, *command: Any, clock: ServerClock | None = None) -> Any:
        """clock: it is set by a TIME before the command."""
        connection = self.shared
        if connection is None or not connection.ready:
            connection = await self._ready_connection()
        if clock is None:
            reply = await connection.request(*command)
        else:
            server_time, answer = connection.request_after_time(*command)
            reply = await answer
            clock.set_by_reply(server_time.result())
        if isinstance(reply, Exception):
            _drop_unless_answer(connection, reply)
            raise reply
        return reply

    async def request_alone(self, *commands: tuple[Any, ...]) -> list[Any]:
        """In one round trip, on a connection without other requests."""
        if self._free is None:
            return await _request_all(await self._ready_connection(), commands)
        async with self._free:
            self._idle = [connection for connection in self._idle if connection.close_reason is None]
            connection = self._idle.pop() if self._idle else await self._connect()
            try:
                return await _request_all(connection, commands)
            finally:
                self._put_back(connection)

    def _put_back(self, connection: RedisConnection) -> None:
        """Unless replies to a cancelled call are outstanding."""
        if connection.has_pending or self._closed:
            connection.drop(ConnectionAbortedError("given up"))
        elif connection.close_reason is None:
            self._idle.append(connection)

    async def _ready_connection(self) -> RedisConnection:
        connection = self.shared
        if connection is None or connection.close_reason is not None:
            connection = await self._open()
        while not connection.ready and connection.close_reason is None:
            await connection.writable()
        return connection

    async def _open(self) -> RedisConnection:
        """Once for all callers, also if the first of them is cancelled."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._connect())
            self._opening.add_done_callback(self._opened)
        opening = self._opening
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if self._closed and opening.cancelled():  # by close(), and not this caller
                raise ConnectionAbortedError("the store was closed") from None
            raise

    def _opened(self, opening: asyncio.Task[RedisConnection]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self.shared = opening.result()

    def drop_idle(self, reason: Exception) -> None:
        idle = self._idle
        self._idle = []
        if self.shared is not None and not self.shared.has_pending:
            idle.append(self.shared)
        for connection in idle:
            connection.drop(reason)

    async def close(self) -> None:
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        connections = self._idle
        self._idle = []
        if self.shared is not None:
            connections.append(self.shared)
        await asyncio.gather(*(connection.close() for connection in connections))


async def _request_all(connection: RedisConnection, commands: tuple[tuple[Any, ...], ...]) -> list[Any]:
    try:
        return await connection.request_all(*commands)
    except Exception as error:
        _drop_unless_answer(connection, error)
        raise


def _drop_unless_answer(connection: RedisConnection, error: Exception) -> None:
    """A server that is not the master any more gets no further calls."""
    if not is_answer(error):
        connection.drop(error)
