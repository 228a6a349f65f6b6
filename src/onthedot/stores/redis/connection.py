"""One connection to a server: requests are written at once, and replies come in the order of the requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, cast

from onthedot.stores.redis.errors import ServerError

CLOSE_TIMEOUT = 1.0  # seconds: with TLS both sides close
_TIME = b"*1\r\n$4\r\nTIME\r\n"
_GRACE = 0.05  # seconds to read data that arrived while the event loop was blocked


class _Pending(NamedTuple):
    reply: asyncio.Future[Any]
    since: float


class RedisConnection(asyncio.Protocol):
    """May be shared: a reply belongs to the oldest pending request.

    A cancelled caller keeps its position in the queue of pending requests, so replies stay matched to requests. An
    error is a result, not an exception of the future: asyncio reports exceptions that no one retrieves.
    """

    def __init__(self, patience: float, on_timeout: Callable[[], object] | None = None) -> None:
        hiredis: Any = import_module("hiredis")
        self._pack: Callable[[tuple[Any, ...]], bytes] = hiredis.pack_command
        self._reader = hiredis.Reader(replyError=ServerError)
        self._protocol_error: type[Exception] = hiredis.HiredisError
        self._patience = patience
        self._on_timeout = on_timeout
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", None)  # set before the first request
        self._pending: deque[_Pending] = deque()
        self._timer: asyncio.TimerHandle | None = None  # one for all pending requests
        self._writable = asyncio.Event()
        self.ready: bool = False  # a request is written at once
        self.close_reason: Exception | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()

    # -- requests

    def request(self, *command: Any) -> asyncio.Future[Any]:
        """The reply; an error is one, too."""
        self._write(self._pack(command))  # first: a command that cannot be packed has no reply
        return self._expect()

    def request_after_time(self, *command: Any) -> tuple[asyncio.Future[Any], asyncio.Future[Any]]:
        """The replies of TIME and of the command behind it.

        A server that has data for several clients writes to the one first that it had to answer last. With another
        command before it, an add that hands a task off reaches the worker before its caller gets the reply.
        """
        self._write(_TIME + self._pack(command))
        return self._expect(), self._expect()

    async def request_all(self, *commands: tuple[Any, ...]) -> list[Any]:
        """In one write. After all replies, the first error is raised."""
        data = b"".join(map(self._pack, commands))
        pending = [self._expect() for _ in commands]
        self._write(data)
        replies = await asyncio.gather(*pending)
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def _expect(self) -> asyncio.Future[Any]:
        reply = self._loop.create_future()
        if self.close_reason is not None:
            reply.set_result(_copy(self.close_reason))
            return reply
        now = self._loop.time()
        self._pending.append(_Pending(reply, now))
        if self._timer is None:
            self._timer = self._loop.call_at(now + self._patience, self._check_time)
        return reply

    def _write(self, data: bytes) -> None:
        if self.close_reason is None:
            self._transport.write(data)

    @property
    def has_pending(self) -> bool:
        """Replies are outstanding."""
        return bool(self._pending)

    @property
    def pending_count(self) -> int:
        """The number of outstanding replies."""
        return len(self._pending)

    @property
    def unsent_bytes(self) -> int:
        """Data that waits for the server to read."""
        return self._transport.get_write_buffer_size()

    async def writable(self) -> None:
        """Wait until the server has read most of the data, or the connection is closed."""
        await self._writable.wait()

    def _check_time(self, late: asyncio.Future[Any] | None = None) -> None:
        """The oldest request should have its reply by now."""
        self._timer = None
        if not self._pending:
            return
        oldest = self._pending[0]
        due = oldest.since + self._patience
        if due > self._loop.time():
            self._timer = self._loop.call_at(due, self._check_time)
        elif oldest.reply is not late:
            self._timer = self._loop.call_later(_GRACE, self._check_time, oldest.reply)
        else:
            self.drop(TimeoutError(f"no answer within {self._patience:g} s"))
            if self._on_timeout is not None:
                self._on_timeout()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        pending = self._pending
        reader = self._reader
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not False:
                if not pending:
                    self.on_push(reply)
                    continue
                future = pending.popleft().reply
                if not future.done():
                    future.set_result(reply)
        except self._protocol_error as error:  # another kind of server, or TLS on one side only
            self.drop(error)

    def on_push(self, message: Any) -> None:
        """Data without a request: in most cases the reason why the server will close the connection."""
        if isinstance(message, Exception):
            self.drop(message)
        else:
            self.drop(ConnectionError("an answer without a request"))

    def pause_writing(self) -> None:
        self.ready = False
        self._writable.clear()

    def resume_writing(self) -> None:
        self.ready = self.close_reason is None
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionResetError("the server has closed the connection"))
        if not self.closed.done():
            self.closed.set_result(None)

    # -- the end

    def drop(self, reason: Exception) -> None:
        """At once; all pending requests get the reason."""
        self._end(reason)
        self._transport.abort()

    async def close(self) -> None:
        """After the pending replies, if they come soon."""
        if self._pending:
            await asyncio.wait([pending.reply for pending in self._pending], timeout=CLOSE_TIMEOUT)
        self._end(ConnectionResetError("the connection was closed"))
        self._transport.close()
        await asyncio.wait([self.closed], timeout=CLOSE_TIMEOUT)
        self._transport.abort()

    def _end(self, reason: Exception) -> None:
        if self.close_reason is None:
            self.close_reason = reason
        self.ready = False
        self._writable.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._pending:
            future = self._pending.popleft().reply
            if not future.done():
                future.set_result(_copy(self.close_reason))


def _copy(error: Exception) -> Exception:
    """One per caller: each raises it with its own traceback."""
    return type(error)(*error.args)
