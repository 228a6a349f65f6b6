"""Hints over publish and subscribe: may be lost; after every (re)connect comes a resync."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from onthedot.errors import StoreUnavailable
from onthedot.stores.contract import Held, Hint, Record
from onthedot.stores.redis.faults import explained
from onthedot.stores.redis.rows import decode, to_held, to_news
from onthedot.stores.redis.uuids import to_uuids

_QUIET = 15.0  # seconds after which a silent connection is asked whether it lives; a worker hears its own beats
_ANSWER = 5.0


class Listening:
    """A class and not a generator: one that is thrown away in mid-wait must not complain about it."""

    def __init__(
        self, session: str, subscribe: Callable[[str], Awaitable[Any]],
        knowing: Callable[[Callable[[], list[Record]]], Awaitable[list[Record]]], where: str,
    ) -> None:  # fmt: skip
        self._session = session
        self._subscribe = subscribe
        self._knowing = knowing
        self._where = where
        self._pubsub: Any = None
        self._closed = False

    def __aiter__(self) -> Listening:
        return self

    async def __anext__(self) -> Hint:
        if self._closed:
            raise StopAsyncIteration
        if self._pubsub is None:
            self._pubsub = await self._subscribe(self._session)
            return Hint(resync=True)
        try:
            while True:
                message = await self._message()
                hint = await self._understood(message)
                if hint is not None:
                    return hint
        except BaseException as error:
            await self._hang_up()  # also when the wait is cancelled: what is half read is of no use
            if isinstance(error, Exception):
                raise explained(error, self._where) from error
            raise

    async def _message(self) -> dict[str, Any]:
        """A half-open connection is silent for ever: it is asked now and then."""
        asked: float | None = None
        while True:
            message: dict[str, Any] | None = await self._pubsub.get_message(
                ignore_subscribe_messages=True, timeout=_QUIET if asked is None else _ANSWER
            )
            if message is not None and message["type"] == "message":
                return message
            if message is not None or not self._pubsub.subscribed:
                asked = None
            elif asked is None:
                asked = time.monotonic()
                await self._pubsub.ping()
            else:
                raise StoreUnavailable(f"{self._where}: hints do not come any more; listening anew")

    async def _understood(self, message: dict[str, Any]) -> Hint | None:
        if message["channel"].endswith(b":hints"):
            caller, sources = decode(message["data"])
            return None if caller == self._session else Hint(sources=frozenset(sources))
        if not message["data"]:
            return None  # a beat: only that it lives
        (kind, *more), rest = to_news(message["data"])
        if kind == "held":
            number, fence = more
            return Hint(number=number, held=Held(fence, await self._knowing(partial(to_held, rest))))
        if kind == "ended":
            return Hint(ended=frozenset(to_uuids(rest)))
        reason: str = more[0]
        return Hint(cancel=dict.fromkeys(to_uuids(rest), reason))

    async def _hang_up(self) -> None:
        pubsub, self._pubsub = self._pubsub, None
        if pubsub is not None:
            await asyncio.shield(pubsub.aclose())

    async def aclose(self) -> None:
        self._closed = True
        await self._hang_up()
