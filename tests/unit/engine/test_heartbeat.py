"""Who keeps a session alive: the process itself, and its helper outside of it. By a clock that the test turns."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from onthedot.clock.manual import ManualClock
from onthedot.engine.heartbeat import Heartbeat, OnHeartbeat, TaskHeartbeatRunner
from onthedot.observability.logs import LogObserver
from onthedot.stores.contract import HeartbeatResult
from onthedot.stores.memory import MemoryStore
from tests.support.waits import every_chance, until

LEASE = 3000


class Leased(MemoryStore):
    """Wants beats, and knows when they came."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.beats: list[float] = []
        self.crashed: list[str] = []

    async def heartbeat(self, session: str, info: bytes, lease: int) -> HeartbeatResult:
        self.beats.append(self.clock.now())
        return await super().heartbeat(session, info, lease)

    async def close_session(self, session: str, *, crashed: bool = False) -> None:
        if crashed:
            self.crashed.append(session)
        await super().close_session(session, crashed=crashed)


class Helping:
    """Says what the test lets it say, when it is looked at or at once."""

    def __init__(self) -> None:
        self.heard: OnHeartbeat | None = None
        self.kept: list[bytes] = []
        self.left: list[str] = []
        self.unheard: list[Callable[[], tuple[float, bool, Sequence[str]]]] = []

    def keep(self, session: str, info: bytes, lease: int, heard: OnHeartbeat) -> None:
        self.kept.append(info)
        self.heard = heard

    def look(self) -> None:
        while self.unheard:
            self.say(*self.unheard.pop(0)())

    def say(self, ago: float, alive: bool, cancel: Sequence[str] = ()) -> None:
        assert self.heard is not None
        self.heard(ago, alive, cancel)

    def leave(self, session: str) -> None:
        self.left.append(session)


class Kept:
    def __init__(self, clock: ManualClock, helper: Helping | None) -> None:
        self.clock, self.store, self.helper = clock, Leased(clock), helper
        self.cancelled: list[str] = []
        self.lost = 0
        logs = LogObserver(logging.getLogger("onthedot"))
        self.keeper = Heartbeat(self.store, "w", b"first", clock, logs, TaskHeartbeatRunner(), LEASE, helper)

    def _lost(self) -> None:
        self.lost += 1

    async def pass_by(self, ms: float) -> None:
        self.clock.advance(ms)
        await every_chance()

    @property
    def own(self) -> int:
        """Beats of its own, after the one that opens."""
        return len(self.store.beats) - 1


@asynccontextmanager
async def kept(clock: ManualClock, helper: Helping | None) -> AsyncIterator[Kept]:
    it = Kept(clock, helper)
    await it.keeper.open(it.cancelled.append, it._lost)
    await every_chance()
    yield it
    await it.keeper.close()


async def test_alone_it_beats_three_times_a_lease(clock: ManualClock) -> None:
    async with kept(clock, None) as it:
        for _ in range(6):
            await it.pass_by(LEASE / 3)
        assert (it.own, it.lost) == (6, 0)


async def test_with_a_helper_it_need_not(clock: ManualClock) -> None:
    helper = Helping()
    async with kept(clock, helper) as it:
        for _ in range(30):
            helper.say(0, True)
            await it.pass_by(LEASE / 3)
        assert (it.own, it.lost) == (0, 0)
    assert helper.left == ["w"]


async def test_a_helper_that_falls_silent_is_not_missed(clock: ManualClock) -> None:
    helper = Helping()
    async with kept(clock, helper) as it:
        helper.say(0, True)
        await it.pass_by(LEASE / 2)
        assert it.own == 1
        for _ in range(6):
            await it.pass_by(LEASE / 3)
        assert (it.own, it.lost) == (7, 0)
        helper.say(0, True)  # it is back
        await it.pass_by(LEASE / 3)
        assert it.own == 7


async def test_what_was_said_meanwhile_is_heard_before_it_is_judged(clock: ManualClock) -> None:
    """The process was stopped for ten leases, and the helper was not."""
    helper = Helping()
    async with kept(clock, helper) as it:
        helper.say(0, True)
        helper.unheard = [lambda: (LEASE / 6, True, ("u1",))]
        await it.pass_by(10 * LEASE)
        assert (it.lost, it.cancelled) == (0, ["u1"])
        for _ in range(6):
            await it.pass_by(LEASE / 3)
        assert it.lost == 0, "it beats by itself again"


async def test_words_that_are_old_keep_nothing_alive(clock: ManualClock) -> None:
    helper = Helping()
    async with kept(clock, helper) as it:
        helper.unheard = [lambda: (2 * LEASE, True, ())]
        await it.pass_by(10 * LEASE)
        assert it.lost == 1
        assert it.store.crashed == ["w"], "the store closes the session"


async def test_a_session_that_the_helper_finds_dead_is_lost(clock: ManualClock) -> None:
    helper = Helping()
    async with kept(clock, helper) as it:
        helper.say(0, False)
        await until(lambda: it.lost == 1)
        await it.pass_by(10 * LEASE)
        assert (it.lost, it.own) == (1, 0)


async def test_the_helper_is_told_what_is_new(clock: ManualClock) -> None:
    helper = Helping()
    async with kept(clock, helper) as it:
        await it.keeper.update_info(b"second")
        await it.keeper.update_info(b"second")
    assert helper.kept == [b"first", b"second"]
