"""The connections of one event loop by which calls go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from onthedot.stores.redis.connection import Line
from onthedot.stores.redis.errors import is_answer


class Lines:
    """One for all: a server answers one after the other anyway. Who waits for replicas has one for itself meanwhile."""

    def __init__(self, connect: Callable[[], Coroutine[Any, Any, Line]], most: int) -> None:
        self._connect = connect
        self._line: Line | None = None
        self._opening: asyncio.Task[Line] | None = None
        self._idle: list[Line] = []
        self._closed = False
        self._room: asyncio.Semaphore | None = asyncio.Semaphore(most - 1) if most > 1 else None

    @property
    def ready(self) -> bool:
        """What is asked now goes out at once, and its line minds the time."""
        return self._line is not None and self._line.ready

    async def ask(self, *words: Any, behind: bool = False) -> Any:
        line = self._line
        if line is None or not line.ready:
            line = await self._shared()
        answer = await (line.ask_behind(*words) if behind else line.ask(*words))
        if isinstance(answer, Exception):
            _judge(line, answer)
            raise answer
        return answer

    async def ask_alone(self, *commands: tuple[Any, ...]) -> list[Any]:
        """In one round trip, by a line on which nobody else waits."""
        if self._room is None:
            return await _all(await self._shared(), commands)
        async with self._room:
            self._idle = [line for line in self._idle if line.why is None]
            line = self._idle.pop() if self._idle else await self._connect()
            try:
                return await _all(line, commands)
            finally:
                self._put_back(line)

    def _put_back(self, line: Line) -> None:
        """Unless there are answers to come, which somebody has given up."""
        if line.waited_for or self._closed:
            line.drop(ConnectionAbortedError("given up"))
        elif line.why is None:
            self._idle.append(line)

    async def _shared(self) -> Line:
        line = self._line
        if line is None or line.why is not None:
            line = await self._open()
        while not line.ready and line.why is None:
            await line.room()
        return line

    async def _open(self) -> Line:
        """Once for all who want it, also if the first of them gives up."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._connect())
            self._opening.add_done_callback(self._opened)
        return await asyncio.shield(self._opening)

    def _opened(self, opening: asyncio.Task[Line]) -> None:
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._line = opening.result()

    def drop_idle(self, why: Exception) -> None:
        lines, self._idle = self._idle, []
        if self._line is not None and not self._line.waited_for:
            lines.append(self._line)
        for line in lines:
            line.drop(why)

    async def close(self) -> None:
        self._closed = True
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        lines, self._idle = self._idle, []
        await asyncio.gather(*(line.close() for line in (self._line, *lines) if line is not None))


async def _all(line: Line, commands: tuple[tuple[Any, ...], ...]) -> list[Any]:
    try:
        return await line.ask_all(*commands)
    except Exception as error:
        _judge(line, error)
        raise


def _judge(line: Line, error: Exception) -> None:
    """Of a server that is no master any more nothing else is wanted."""
    if not is_answer(error):
        line.drop(error)
