"""A worker whose lease has run out begins nothing until it has a new session. The test drives the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from onthedot import App, current_task
from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreUnavailable
from onthedot.stores.contract import (
    ClaimRequest,
    HeartbeatResult,
    Outcome,
    StoreIdentity,
    StoreTraits,
    TurnResult,
)
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
        self.read_allowed = asyncio.Event()
        self.read_allowed.set()
        self.reads = 0
        self.claimed: list[str] = []  # sessions of turns that have claimed tasks
        self.data_set = ""  # another id of its data, if they were replaced
        self.is_behind = False  # it shows an older state, in which no fence was given out

    async def heartbeat(self, session: str, info: bytes, lease: int) -> HeartbeatResult:
        answer = await super().heartbeat(session, info, lease)
        if self.lost_heartbeats:
            raise StoreUnavailable("heartbeat: no reply")
        return answer

    async def close_session(self, session: str, *, crashed: bool = False) -> None:
        if self.lost_closes:
            raise StoreUnavailable("close_session: no reply")
        await super().close_session(session, crashed=crashed)

    async def results(self, uuids: Sequence[str]) -> Sequence[bytes | None]:
        self.reads += 1
        await self.read_allowed.wait()
        return await super().results(uuids)

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        answer = await super().turn(session, outcomes, request)
        if answer.claim is not None and answer.claim.tasks:
            self.claimed.append(session)
        if answer.claim is not None and answer.claim.identity is not None:
            identity = StoreIdentity(
                self.data_set or answer.claim.identity.id, 0 if self.is_behind else answer.claim.identity.last_fence
            )
            answer = replace(answer, claim=replace(answer.claim, identity=identity))
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


async def test_loss_of_data_is_reported_if_the_reply_that_shows_it_arrives_after_the_lease(
    shop: Shop, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Later replies do not show it: the fences of an older state grow beyond those that the worker knows."""
    with shop.app.override(clock=clock):
        store = LeasedStore(clock)
        shop.app.runtime.use_store(store)
        async with shop.app.running():
            worker = shop.app.runtime.worker
            assert worker is not None
            first = worker.session_id
            await shop.hang.enqueue()
            await until(lambda: store.claimed == [first])
            await until(lambda: len(shop.began) == 1)
            store.reply_allowed.clear()
            store.is_behind = True
            await shop.hang.enqueue()
            await until(lambda: store.claimed == [first, first])
            store.is_behind = False
            store.reply_allowed.set()
            clock.advance(2 * LEASE)
            await until(lambda: worker.session_id != first)
    lines = [record.getMessage() for record in caplog.records if "went back to an older state" in record.getMessage()]
    assert len(lines) == 1


async def test_session_that_cannot_be_closed_claims_nothing(shop: Shop, clock: ManualClock) -> None:
    """The data were replaced, and nothing renews the old session any more."""
    with shop.app.override(clock=clock):
        store = LeasedStore(clock)
        shop.app.runtime.use_store(store)
        async with shop.app.running():
            worker = shop.app.runtime.worker
            assert worker is not None
            first = worker.session_id
            await until(lambda: worker.turns > 0)
            store.data_set = "other data"
            store.lost_closes = True
            await shop.hang.enqueue()
            await until(lambda: worker.last_error is not None)
            claimed = len(store.claimed)
            await shop.hang.enqueue()
            worker.recheck()  # it has no hints either
            for _ in range(5):
                await shop.advance(LEASE / 10)
            assert len(store.claimed) == claimed
            assert shop.began == []
            store.lost_closes = False
            for _ in range(20):
                await shop.advance(LEASE / 10)
            assert len(shop.began) == 2
            assert set(store.claimed[claimed:]) == {worker.session_id}
            assert worker.session_id != first


@pytest.mark.parametrize("executor", ["async", "thread"])
@pytest.mark.parametrize("is_noticed", [False, True])
async def test_task_whose_inputs_arrive_after_the_lease_does_not_begin(
    clock: ManualClock, executor: str, is_noticed: bool
) -> None:
    """is_noticed: the run was ended while it waited. Otherwise the process was stopped, and the reply comes first."""
    app = App("shop", store="memory://", stop_timeout=0, defaults={"max_crashes": 100})
    fences: list[int] = []

    @app.task
    async def one() -> int:
        return 1

    @app.task
    async def add_in_loop(number: int) -> None:
        fences.append(current_task().fence)

    @app.task
    def add_in_thread(number: int) -> None:
        fences.append(current_task().fence)

    with app.override(clock=clock):
        store = LeasedStore(clock)
        app.runtime.use_store(store)
        async with app.running():
            worker = app.runtime.worker
            assert worker is not None
            first = worker.session_id
            store.read_allowed.clear()
            await (one.s() | (add_in_loop if executor == "async" else add_in_thread)).enqueue()
            await until(lambda: store.reads == 1)
            if not is_noticed:
                store.read_allowed.set()
            clock.advance(2 * LEASE)
            await until(lambda: worker.session_id != first)
            store.read_allowed.set()
            for _ in range(20):
                await every_chance()
                clock.advance(LEASE / 10)
            await until(lambda: fences)
    claims = len(store.claimed)
    assert claims == 3, "the second claim of the linked task"
    assert len(fences) == 1
