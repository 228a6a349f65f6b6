"""A connection that has subscribed: what it hears is kept until somebody takes it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from onthedot.stores.redis.connection import RedisConnection

_QUIET = 15.0  # seconds after which a silent connection is asked whether it lives; a worker hears its own beats
_ANSWER = 5.0


class RedisSubscription(RedisConnection):
    def __init__(self, patience: float) -> None:
        super().__init__(patience)
        self._heard: deque[tuple[bytes, bytes]] = deque()
        self._told: asyncio.Future[None] | None = None
        self._last = 0.0  # when anything was heard
        self._quiet: asyncio.TimerHandle | None = None

    async def subscribe(self, *channels: str) -> None:
        """The server confirms each; or says no once, and then the other answers never come."""
        data = self._pack(("SUBSCRIBE", *channels))
        answers = [self._expect() for _ in channels]
        self._write(data)
        for answer in answers:
            said = await answer
            if isinstance(said, Exception):
                raise said
        self._last = self._loop.time()
        self._quiet = self._loop.call_later(_QUIET, self._listen)

    async def message(self) -> tuple[bytes, bytes]:
        """Channel and data of the next. Raises why there are no more."""
        while not self._heard:
            if self.close_reason is not None:
                raise self.close_reason
            self._told = self._loop.create_future()
            await self._told
        return self._heard.popleft()

    def on_push(self, answer: Any) -> None:
        if isinstance(answer, Exception):
            super().on_push(answer)
            return
        self._last = self._loop.time()
        if answer[0] == b"message":
            self._heard.append((answer[1], answer[2]))
            self._tell()

    def _listen(self, asked: float | None = None) -> None:
        """A half-open connection is silent for ever: it is asked now and then."""
        now = self._loop.time()
        if asked is not None and self._last < asked:
            self.drop(TimeoutError("hints do not come any more; listening anew"))
        elif self._last + _QUIET > now:
            self._quiet = self._loop.call_at(self._last + _QUIET, self._listen)
        else:
            self._write(self._pack(("PING",)))
            self._quiet = self._loop.call_later(_ANSWER, self._listen, now)

    def _end(self, reason: Exception) -> None:
        super()._end(reason)
        if self._quiet is not None:
            self._quiet.cancel()
        self._tell()

    def _tell(self) -> None:
        if self._told is not None and not self._told.done():
            self._told.set_result(None)
