"""One connection to a server: what is asked goes out at once, and answers come in the order of the questions."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any, cast

from onthedot.stores.redis.errors import ServerError

GOODBYE = 1.0  # seconds: with TLS both sides say it
_PING = b"*1\r\n$4\r\nPING\r\n"
_GRACE = 0.05  # seconds to read what came while something else held the loop


class RedisConnection(asyncio.Protocol):
    """May be shared: an answer is for whoever has asked first of those who wait.

    Who gives up waiting leaves its place, so that nobody gets the answer of another. What goes wrong is an answer, too:
    a future that failed and that nobody looks at any more would be complained about.
    """

    def __init__(self, patience: float, silent: Callable[[], object] = bool) -> None:
        hiredis: Any = import_module("hiredis")
        self._pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command
        self._reader = hiredis.Reader(replyError=ServerError)
        self._garbled: type[Exception] = hiredis.HiredisError
        self._patience = patience
        self._silent = silent  # told of an answer that did not come
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", None)  # there before anything is asked
        self._asked: deque[tuple[asyncio.Future[Any], float]] = deque()  # and when
        self._timer: asyncio.TimerHandle | None = None  # one for all that is asked
        self._room = asyncio.Event()
        self.ready: bool = False  # takes more
        self.close_reason: Exception | None = None  # it is of no more use
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # -- asking

    def request(self, *words: Any) -> asyncio.Future[Any]:
        """The answer; an error is one, too."""
        self._write(self._pack(words))  # first: what cannot be said has no answer, and the server can begin
        return self._expect()

    def request_after_ping(self, *words: Any) -> asyncio.Future[Any]:
        """The same, behind a PING.

        A server that has something to say to several begins with the one it was to answer last. So whom this call tells
        something, as a worker that is handed a task, need not wait until we have our answer.
        """
        self._write(_PING + self._pack(words))
        _, answer = self._expect(), self._expect()
        return answer

    async def ask_all(self, *commands: tuple[Any, ...]) -> list[Any]:
        """In one write. Raises the first error of the answers, when all are there."""
        data = b"".join(map(self._pack, commands))
        answers = [self._expect() for _ in commands]
        self._write(data)
        found = await asyncio.gather(*answers)
        for each in found:
            if isinstance(each, Exception):
                raise each
        return found

    def _expect(self) -> asyncio.Future[Any]:
        answer, now = self._loop.create_future(), self._loop.time()
        if self.close_reason is not None:
            answer.set_result(_copy(self.close_reason))
            return answer
        self._asked.append((answer, now))
        if self._timer is None:
            self._timer = self._loop.call_at(now + self._patience, self._look)
        return answer

    def _write(self, data: bytes) -> None:
        if self.close_reason is None:
            self._transport.write(data)

    @property
    def has_pending(self) -> bool:
        """Answers are to come."""
        return bool(self._asked)

    async def room(self) -> None:
        """Until the server has read most of what it was told, or is gone."""
        await self._room.wait()

    def _look(self, late: asyncio.Future[Any] | None = None) -> None:
        """Whoever has waited longest should have its answer by now."""
        self._timer = None
        if not self._asked:
            return
        first, since = self._asked[0]
        if (due := since + self._patience) > self._loop.time():
            self._timer = self._loop.call_at(due, self._look)
        elif first is not late:
            self._timer = self._loop.call_later(_GRACE, self._look, first)
        else:
            self.drop(TimeoutError(f"no answer within {self._patience:g} s"))
            self._silent()

    # -- being told

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        asked, reader = self._asked, self._reader
        try:
            reader.feed(data)
            while (answer := reader.gets()) is not False:
                if not asked:
                    self.on_push(answer)
                    continue
                future, _ = asked.popleft()
                if not future.done():
                    future.set_result(answer)
        except self._garbled as error:  # another kind of server, or TLS on one side only
            self.drop(error)

    def on_push(self, answer: Any) -> None:
        """Why it will hang up, most likely."""
        self.drop(answer if isinstance(answer, Exception) else ConnectionError("an answer that nobody has asked for"))

    def pause_writing(self) -> None:
        self.ready = False
        self._room.clear()

    def resume_writing(self) -> None:
        self.ready = self.close_reason is None
        self._room.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionResetError("the server has closed the connection"))
        if not self.closed.done():
            self.closed.set_result(None)

    # -- the end

    def drop(self, reason: Exception) -> None:
        """At once: all that wait are told."""
        self._end(reason)
        self._transport.abort()

    async def close(self) -> None:
        """Who still waits is answered first, if that is soon."""
        if self._asked:
            await asyncio.wait([answer for answer, _ in self._asked], timeout=GOODBYE)
        self._end(ConnectionResetError("the connection was closed"))
        self._transport.close()
        await asyncio.wait([self.closed], timeout=GOODBYE)
        self._transport.abort()

    def _end(self, reason: Exception) -> None:
        if self.close_reason is None:
            self.close_reason = reason
        self.ready = False
        self._room.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._asked:
            future, _ = self._asked.popleft()
            if not future.done():
                future.set_result(_copy(self.close_reason))


def _copy(error: Exception) -> Exception:
    """For each who waits: a traceback is of one."""
    return type(error)(*error.args)
