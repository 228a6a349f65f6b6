"""The connections of one event loop by which calls go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from onthedot.stores.redis.connection import RedisConnection
from onthedot.stores.redis.errors import is_answer


class RedisConnections:
    """One for all: a server answers one after the other anyway. Who waits for replicas has one for itself meanwhile."""

    def __init__(self, connect: Callable[[], Coroutine[Any, Any, RedisConnection]], most: int) -> None:
        self._connect = connect
        self._connection: RedisConnection | None = None
        self._opening: asyncio.Task[RedisConnection] | None = None
        self._idle: list[RedisConnection] = []
        self._closed = False
        self._room: asyncio.Semaphore | None = asyncio.Semaphore(most - 1) if most > 1 else None

    @property
    def ready(self) -> bool:
        """What is asked now goes out at once, and its line minds the time."""
        return self._connection is not None and self._connection.ready

    @property
    def has_pending(self) -> bool:
        """Whether answers are to come on the shared connection."""
        return self._connection is not None and self._connection.has_pending

    async def request(self, *words: Any, behind: bool = False) -> Any:
        connection = self._connection
        if connection is None or not connection.ready:
            connection = await self._shared()
        answer = await (connection.request_after_ping(*words) if behind else connection.request(*words))
        if isinstance(answer, Exception):
            _judge(connection, answer)
            raise answer
        return answer

    async def ask_alone(self, *commands: tuple[Any, ...]) -> list[Any]:
        """In one round trip, by a line on which nobody else waits."""
        if self._room is None:
            return await _all(await self._shared(), commands)
        async with self._room:
            self._idle = [connection for connection in self._idle if connection.close_reason is None]
            line = self._idle.pop() if self._idle else await self._connect()
            try:
                return await _all(line, commands)
            finally:
                self._put_back(line)

    def _put_back(self, connection: RedisConnection) -> None:
        """Unless there are answers to come, which somebody has given up."""
        if connection.has_pending or self._closed:
            connection.drop(ConnectionAbortedError("given up"))
        elif connection.close_reason is None:
            self._idle.append(connection)

    async def _shared(self) -> RedisConnection:
        connection = self._connection
        if connection is None or connection.close_reason is not None:
            connection = await self._open()
        while not connection.ready and connection.close_reason is None:
            await connection.room()
        return connection

    async def _open(self) -> RedisConnection:
        """Once for all who want it, also if the first of them gives up."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._connect())
            self._opening.add_done_callback(self._opened)
        return await asyncio.shield(self._opening)

    def _opened(self, opening: asyncio.Task[RedisConnection]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._connection = opening.result()

    def drop_idle(self, reason: Exception) -> None:
        connections, self._idle = self._idle, []
        if self._connection is not None and not self._connection.has_pending:
            connections.append(self._connection)
        for connection in connections:
            connection.drop(reason)

    async def close(self) -> None:
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        connections, self._idle = self._idle, []
        await asyncio.gather(
            *(connection.close() for connection in (self._connection, *connections) if connection is not None)
        )


async def _all(connection: RedisConnection, commands: tuple[tuple[Any, ...], ...]) -> list[Any]:
    try:
        return await connection.ask_all(*commands)
    except Exception as error:
        _judge(connection, error)
        raise


def _judge(connection: RedisConnection, error: Exception) -> None:
    """Of a server that is no master any more nothing else is wanted."""
    if not is_answer(error):
        connection.drop(error)
