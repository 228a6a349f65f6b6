"""A connection with a subscription: messages are kept until they are read."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, NamedTuple

from onthedot.stores.redis.connection import RedisConnection

QUIET_TIME = 15.0  # seconds without a message before a PING; a worker gets its own heartbeats
PING_TIMEOUT = 5.0


class Message(NamedTuple):
    channel: bytes
    data: bytes


class RedisSubscription(RedisConnection):
    """A subscription notices a half-open connection by a PING after a quiet time."""

    def __init__(self, patience: float) -> None:
        super().__init__(patience)
        self._messages: deque[Message] = deque()
        self._arrival: asyncio.Future[None] | None = None
        self._last = 0.0  # time of the last data
        self._quiet_timer: asyncio.TimerHandle | None = None

    async def subscribe(self, *channels: str) -> None:
        """The server confirms each channel, or refuses once; then the other replies never come."""
        data = self._pack(("SUBSCRIBE", *channels))
        pending = [self._expect() for _ in channels]
        self._write(data)
        for future in pending:
            reply = await future
            if isinstance(reply, Exception):
                raise reply
        self._last = self._loop.time()
        self._quiet_timer = self._loop.call_later(QUIET_TIME, self._check_alive)

    async def message(self) -> Message:
        """The next message. Raises the reason when the connection is closed."""
        while not self._messages:
            if self.close_reason is not None:
                raise self.close_reason
            self._arrival = self._loop.create_future()
            await self._arrival
        return self._messages.popleft()

    def on_push(self, message: Any) -> None:
        if isinstance(message, Exception):
            super().on_push(message)
            return
        self._last = self._loop.time()
        kind, *fields = message
        if kind == b"message":
            self._messages.append(Message(*fields))
            self._wake()

    def _check_alive(self, pinged: float | None = None) -> None:
        now = self._loop.time()
        if pinged is not None and self._last < pinged:
            self.drop(TimeoutError("hints do not come any more; listening anew"))
        elif self._last + QUIET_TIME > now:
            self._quiet_timer = self._loop.call_at(self._last + QUIET_TIME, self._check_alive)
        else:
            self._write(self._pack(("PING",)))
            self._quiet_timer = self._loop.call_later(PING_TIMEOUT, self._check_alive, now)

    def _end(self, reason: Exception) -> None:
        super()._end(reason)
        if self._quiet_timer is not None:
            self._quiet_timer.cancel()
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)
