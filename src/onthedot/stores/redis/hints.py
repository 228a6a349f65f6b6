"""Hints over publish and subscribe: may be lost; after every (re)connect comes a resync."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from onthedot.stores.contract import Held, Hint, Record
from onthedot.stores.redis.errors import explained
from onthedot.stores.redis.record_format import decode, to_held, to_news
from onthedot.stores.redis.subscription import Ear
from onthedot.stores.redis.uuid_format import to_uuids


class Listening:
    """A class and not a generator: one that is thrown away in mid-wait must not complain about it."""

    def __init__(
        self, session: str, subscribe: Callable[[str], Awaitable[Ear]],
        knowing: Callable[[Callable[[], list[Record]]], Awaitable[list[Record]]], where: str,
    ) -> None:  # fmt: skip
        self._session = session
        self._subscribe = subscribe
        self._knowing = knowing
        self._where = where
        self._ear: Ear | None = None
        self._closed = False

    def __aiter__(self) -> Listening:
        return self

    async def __anext__(self) -> Hint:
        if self._closed:
            raise StopAsyncIteration
        if self._ear is None:
            self._ear = await self._subscribe(self._session)
            return Hint(resync=True)
        try:
            while True:
                hint = await self._understood(*await self._ear.message())
                if hint is not None:
                    return hint
        except BaseException as error:
            self._hang_up()  # also when the wait is cancelled: whoever listens again wants to look first
            if isinstance(error, Exception):
                raise explained(error, self._where) from error
            raise

    async def _understood(self, channel: bytes, data: bytes) -> Hint | None:
        if channel.endswith(b":hints"):
            caller, sources = decode(data)
            return None if caller == self._session else Hint(sources=frozenset(sources))
        if not data:
            return None  # a beat: only that it lives
        (kind, *more), rest = to_news(data)
        if kind == "held":
            number, fence = more
            return Hint(number=number, held=Held(fence, await self._knowing(partial(to_held, rest))))
        if kind == "ended":
            return Hint(ended=frozenset(to_uuids(rest)))
        reason: str = more[0]
        return Hint(cancel=dict.fromkeys(to_uuids(rest), reason))

    def _hang_up(self) -> None:
        ear, self._ear = self._ear, None
        if ear is not None:
            ear.drop(ConnectionAbortedError("nobody listens any more"))

    async def aclose(self) -> None:
        self._closed = True
        self._hang_up()
