"""A store that a test slows down or takes away, its change feed, and the messages of listeners."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreUnavailable
from onthedot.operations import Operations
from onthedot.operations.change_feed import ChangeFeed
from onthedot.operations.feed_listener import FeedListener, FeedMessage, TransitionsMessage
from onthedot.stores.contract import ChangePage, ClaimRequest, Ended, Lease, NewTask, SlotPool
from onthedot.stores.memory import MemoryStore

WORKER = "w"


class SlowStore(MemoryStore):
    """Counts reads, which may take time or fail."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self._clock_of_test = clock
        self.reads = 0
        self.duration = 0.0
        self.is_away = False

    async def changes(self, after: str, limit: int, resolve: int = 0) -> ChangePage:
        self.reads += 1
        if self.is_away:
            raise StoreUnavailable("no route")
        self._clock_of_test.advance(self.duration)
        return await super().changes(after, limit, resolve)


class Shop:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = SlowStore(self.clock)
        self.feed: ChangeFeed = Operations(self.store, "c", self.clock).feed
        self.number = 0

    async def add(self, *uuids: str, source: str = "a") -> None:
        await self.store.add([NewTask(uuid, source, b"{}") for uuid in uuids])

    async def fail(self, uuid: str) -> None:
        await self.store.heartbeat(WORKER, b"{}", 10**9)
        self.number += 1
        turn = await self.store.turn(WORKER, [], ClaimRequest(self.number, [SlotPool(100, {"a": 100})]))
        assert turn.claim is not None
        await self.store.turn(WORKER, [Ended(Lease(uuid, turn.claim.fence, WORKER), "failed", b"boom")], None)

    async def step(self, ms: float = 0) -> None:
        """Time passes, and everything that is due happens."""
        self.clock.advance(ms)
        for _ in range(30):
            await asyncio.sleep(0)

    async def pause(self) -> float:
        """The pause that begins now, in ms."""
        await self.step()
        due = self.clock.next_timer()
        assert due is not None
        return due - self.clock.now()


@asynccontextmanager
async def opened() -> AsyncIterator[Shop]:
    shop = Shop()
    try:
        yield shop
    finally:
        await shop.feed.close()
        assert not shop.feed.is_reading


def waiting(listener: FeedListener) -> list[FeedMessage]:
    """All messages that wait."""
    messages: list[FeedMessage] = []
    while True:
        try:
            listener.next().send(None)
        except StopIteration as answer:
            messages.append(answer.value)
        else:
            return messages


def of_kind(kind: str, messages: Sequence[FeedMessage]) -> list[object]:
    return [message.data for message in messages if message.kind == kind]


def uuids(messages: Sequence[FeedMessage]) -> list[str]:
    found: list[str] = []
    for data in of_kind("transitions", messages):
        assert isinstance(data, TransitionsMessage)
        assert data.more == 0
        found += [transition.uuid for transition in data.transitions]
    return found


def invalidated(messages: Sequence[FeedMessage]) -> set[str]:
    return {data["what"] for data in of_kind("invalidate", messages) if isinstance(data, dict)}
