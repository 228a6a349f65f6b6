"""A worker whose lease has run out begins nothing until it has a new session. The test drives the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from onthedot import App, current_task
from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreUnavailable
from onthedot.stores.contract import ClaimRequest, HeartbeatResult, Outcome, StoreTraits, TurnResult
from onthedot.stores.memory import MemoryStore
from tests.support.waits import every_chance, until

LEASE = 3_000


class LeasedStore(MemoryStore):
    """A memory store whose sessions need heartbeats. Calls of single verbs can be held or fail."""

    traits = StoreTraits(shared=True, synchronous=True, cancel_safe=True, lease_ms=LEASE)

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.lost_heartbeats = False  # executed, but not answered
        self.lost_closes = False
        self.reply_allowed = asyncio.Event()  # of turns
        self.reply_allowed.set()
        self.claimed: list[str] = []  # sessions of turns that have claimed tasks

    async def heartbeat(self, session: str, info: bytes, lease: int) -> HeartbeatResult:
        answer = await super().heartbeat(session, info, lease)
        if self.lost_heartbeats:
            raise StoreUnavailable("heartbeat: no reply")
        return answer

    async def close_session(self, session: str, *, crashed: bool = False) -> None:
        if self.lost_closes:
            raise StoreUnavailable("close_session: no reply")
        await super().close_session(session, crashed=crashed)

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        answer = await super().turn(session, outcomes, request)
        if answer.claim is not None and answer.claim.tasks:
            self.claimed.append(session)
        await self.reply_allowed.wait()
        return answer


class Shop:
    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.app = App("shop", store="memory://", stop_timeout=0)
        self.began: list[int] = []  # fences of the runs
        self.cancelled: list[int] = []

        @self.app.task(max_crashes=100)
        async def hang() -> None:
            fence = current_task().fence
            self.began.append(fence)
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                self.cancelled.append(fence)
                raise

        self.hang = hang

    async def advance(self, ms: float) -> None:
        self.clock.advance(ms)
        await every_chance()


@pytest.fixture
def shop(clock: ManualClock) -> Shop:
    return Shop(clock)


async def test_fenced_worker_begins_nothing(shop: Shop, clock: ManualClock) -> None:
    """No heartbeat is answered for a lease, while turns work and the old session cannot be closed yet."""
    with shop.app.override(clock=clock):
        store = LeasedStore(clock)
        shop.app.runtime.use_store(store)
        async with shop.app.running():
            worker = shop.app.runtime.worker
            assert worker is not None
            first = worker.session_id
            await shop.hang.enqueue()
            await until(lambda: len(shop.began) == 1)
            store.lost_heartbeats = True
            store.lost_closes = True
            for _ in range(10):
                await shop.advance(LEASE / 10)
            assert shop.cancelled == shop.began
            await shop.hang.enqueue()
            for _ in range(10):
                await shop.advance(LEASE / 10)
            assert len(shop.began) == 1, "the old session cannot be closed, so there is no new one"
            assert store.claimed == [first]
            store.lost_closes = False
            for _ in range(10):
                await shop.advance(LEASE / 10)
            assert len(shop.began) == 1, "no session could be opened"
            assert store.claimed == [first]
            store.lost_heartbeats = False
            for _ in range(100):
                await shop.advance(LEASE / 10)
            assert len(shop.began) == 3
            assert worker.session_id != first
            assert set(store.claimed[1:]) == {worker.session_id}


async def test_reply_of_a_turn_that_arrives_after_the_lease_is_discarded(shop: Shop, clock: ManualClock) -> None:
    with shop.app.override(clock=clock):
        store = LeasedStore(clock)
        shop.app.runtime.use_store(store)
        async with shop.app.running():
            worker = shop.app.runtime.worker
            assert worker is not None
            first = worker.session_id
            store.reply_allowed.clear()
            await shop.hang.enqueue()
            await until(lambda: store.claimed == [first])
            store.reply_allowed.set()
            clock.advance(2 * LEASE)  # the process was stopped; the reply is handled before the timers
            await until(lambda: len(shop.began) == 1)
            assert worker.session_id != first
            assert store.claimed == [first, worker.session_id]


async def test_session_whose_first_heartbeat_was_not_answered_is_replaced(shop: Shop, clock: ManualClock) -> None:
    """It exists in the store, but nothing would renew it."""
    with shop.app.override(clock=clock):
        store = LeasedStore(clock)
        shop.app.runtime.use_store(store)
        async with shop.app.running():
            worker = shop.app.runtime.worker
            assert worker is not None
            first = worker.session_id
            await store.close_session(first)
            store.lost_heartbeats = True
            await shop.hang.enqueue()
            await until(lambda: worker.session_id != first)
            unanswered = worker.session_id
            await shop.advance(LEASE / 10)
            store.lost_heartbeats = False
            for _ in range(20):
                await shop.advance(LEASE / 10)
            assert len(shop.began) == 1
            assert unanswered not in store.claimed
            assert shop.cancelled == []
