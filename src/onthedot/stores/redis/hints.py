"""Hints over publish and subscribe: may be lost; after every (re)connect comes a resync."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from onthedot.stores.contract import HandoffMessage, Hint, LeasedTasks, Record
from onthedot.stores.redis.errors import explained
from onthedot.stores.redis.record_format import decode, unpack_leased, unpack_message
from onthedot.stores.redis.subscription import RedisSubscription
from onthedot.stores.redis.uuid_format import to_uuids


class RedisHintStream:
    """A class and not a generator: one that is thrown away in mid-wait must not complain about it."""

    def __init__(
        self, session: str, subscribe: Callable[[str], Awaitable[RedisSubscription]],
        knowing: Callable[[Callable[[], list[Record]]], Awaitable[list[Record]]], where: str,
    ) -> None:  # fmt: skip
        self._session = session
        self._subscribe = subscribe
        self._with_policies = knowing
        self._where = where
        self._ear: RedisSubscription | None = None
        self._closed = False

    def __aiter__(self) -> RedisHintStream:
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
            caller, sources, recheck = decode(data)
            if caller == self._session:
                return None
            return Hint(sources=frozenset(sources), recheck=recheck)
        if not data:
            return None  # a beat: only that it lives
        (kind, *more), rest = unpack_message(data)
        if kind == "leased":
            number, fence = more
            leased = LeasedTasks(fence, await self._with_policies(partial(unpack_leased, rest)))
            return Hint(handoff=HandoffMessage(number, leased))
        if kind == "ended":
            return Hint(ended=frozenset(to_uuids(rest)))
        reason: str = more[0]
        return Hint(cancel_requests=dict.fromkeys(to_uuids(rest), reason))

    def _hang_up(self) -> None:
        ear, self._ear = self._ear, None
        if ear is not None:
            ear.drop(ConnectionAbortedError("nobody listens any more"))

    async def aclose(self) -> None:
        self._closed = True
        self._hang_up()
