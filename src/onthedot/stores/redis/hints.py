"""Hints by publish and subscribe. They may be lost; each (re)connect gives a resync."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from onthedot.stores.contract import HandoffMessage, Hint, LeasedTasks, Record
from onthedot.stores.redis.errors import explained
from onthedot.stores.redis.record_format import decode, unpack_leased, unpack_message
from onthedot.stores.redis.subscription import Message, RedisSubscription
from onthedot.stores.redis.uuid_format import to_uuids


class RedisHintStream:
    """A class and not a generator: asyncio reports a generator that is dropped while it waits."""

    def __init__(
        self,
        session: str,
        subscribe: Callable[[str], Awaitable[RedisSubscription]],
        with_policies: Callable[[Callable[[], list[Record]]], Awaitable[list[Record]]],
        where: str,
    ) -> None:
        self._session = session
        self._subscribe = subscribe
        self._with_policies = with_policies
        self._where = where
        self._subscription: RedisSubscription | None = None
        self._closed = False

    def __aiter__(self) -> RedisHintStream:
        return self

    async def __anext__(self) -> Hint:
        if self._closed:
            raise StopAsyncIteration
        if self._subscription is None:
            self._subscription = await self._subscribe(self._session)
            return Hint(resync=True)
        try:
            while True:
                hint = await self._to_hint(await self._subscription.message())
                if hint is not None:
                    return hint
        except BaseException as error:
            self._drop()  # also after a cancel: the next caller begins with a resync
            if isinstance(error, Exception):
                raise explained(error, self._where) from error
            raise

    async def _to_hint(self, message: Message) -> Hint | None:
        if message.channel.endswith(b":hints"):
            caller, sources, recheck = decode(message.data)
            if caller == self._session:
                return None
            return Hint(sources=frozenset(sources), recheck=recheck)
        if not message.data:
            return None  # a heartbeat of this session
        (kind, *details), rest = unpack_message(message.data)
        if kind == "leased":
            number, fence = details
            leased = LeasedTasks(fence, await self._with_policies(partial(unpack_leased, rest)))
            return Hint(handoff=HandoffMessage(number, leased))
        if kind == "ended":
            return Hint(ended=frozenset(to_uuids(rest)))
        if kind == "items":
            return Hint(new_items=frozenset(to_uuids(rest)))
        reason: str = details[0]
        return Hint(cancel_requests=dict.fromkeys(to_uuids(rest), reason))

    def _drop(self) -> None:
        if self._subscription is not None:
            self._subscription.drop(ConnectionAbortedError("the hint stream was closed"))
            self._subscription = None

    async def aclose(self) -> None:
        self._closed = True
        self._drop()
