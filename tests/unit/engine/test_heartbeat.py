"""Heartbeats of a session, by the process itself and by its delegate. The test drives the clock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from onthedot.clock.manual import ManualClock
from onthedot.clock.system import SystemClock
from onthedot.engine.heartbeat import Heartbeat, OnHeartbeat, TaskHeartbeatRunner
from onthedot.errors import StoreUnavailable
from onthedot.observability.logs import LogObserver
from onthedot.stores.contract import HeartbeatResult
from onthedot.stores.memory import MemoryStore
from tests.support.waits import every_chance, until

LEASE = 3000


class RecordingStore(MemoryStore):
    """Records the times of heartbeats and the sessions that were closed as crashed."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.heartbeats: list[float] = []
        self.crashed: list[str] = []
        self.opened = 0  # less the number of closes

    async def open(self) -> None:
        self.opened += 1

    async def close(self) -> None:
        for _ in range(10):  # it takes a while
            await asyncio.sleep(0)
        self.opened -= 1

    async def heartbeat(self, session: str, info: bytes, lease: int) -> HeartbeatResult:
        self.heartbeats.append(self.clock.now())
        return await super().heartbeat(session, info, lease)

    async def close_session(self, session: str, *, crashed: bool = False) -> None:
        if crashed:
            self.crashed.append(session)
        await super().close_session(session, crashed=crashed)


class FakeDelegate:
    """Reports what the test gives it, at once or at the next `look`."""

    def __init__(self) -> None:
        self.on_heartbeat: OnHeartbeat | None = None
        self.infos: list[bytes] = []
        self.closed: list[str] = []
        self.unread: list[Callable[[], tuple[float, bool, Sequence[str]]]] = []

    def keep(self, session: str, info: bytes, lease: int, on_answer: OnHeartbeat) -> None:
        self.infos.append(info)
        self.on_heartbeat = on_answer

    def look(self) -> None:
        while self.unread:
            self.report(*self.unread.pop(0)())

    def report(self, age: float, alive: bool, cancel: Sequence[str] = ()) -> None:
        assert self.on_heartbeat is not None
        self.on_heartbeat(age, alive, cancel)

    def leave(self, session: str) -> None:
        self.closed.append(session)


class Fixture:
    def __init__(self, clock: ManualClock, delegate: FakeDelegate | None) -> None:
        self.clock = clock
        self.store = RecordingStore(clock)
        self.cancelled: list[str] = []
        self.lost = 0
        logs = LogObserver(logging.getLogger("onthedot"))
        self.heartbeat = Heartbeat(self.store, "w", b"first", clock, logs, TaskHeartbeatRunner(), LEASE, delegate)

    def on_lost(self) -> None:
        self.lost += 1

    async def advance(self, ms: float) -> None:
        self.clock.advance(ms)
        await every_chance()

    @property
    def own(self) -> int:
        """Heartbeats of the process, after the one that opens the session."""
        return len(self.store.heartbeats) - 1


@asynccontextmanager
async def open_session(clock: ManualClock, delegate: FakeDelegate | None) -> AsyncIterator[Fixture]:
    it = Fixture(clock, delegate)
    await it.heartbeat.open(it.cancelled.append, it.on_lost)
    await every_chance()
    yield it
    await it.heartbeat.close()


async def test_process_without_delegate_sends_three_heartbeats_per_lease(clock: ManualClock) -> None:
    async with open_session(clock, None) as it:
        for _ in range(6):
            await it.advance(LEASE / 3)
        assert (it.own, it.lost) == (6, 0)


async def test_heartbeat_that_succeeds_again_is_reported(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_session(clock, None) as it:
        heartbeat = it.store.heartbeat

        async def refuse(session: str, info: bytes, lease: int) -> HeartbeatResult:
            raise StoreUnavailable("down")

        monkeypatch.setattr(it.store, "heartbeat", refuse)
        await it.advance(LEASE / 3)
        monkeypatch.setattr(it.store, "heartbeat", heartbeat)
        await it.advance(LEASE / 3)
    assert [message.partition(" after")[0] for message in caplog.messages] == [
        "heartbeat failed, trying again: down",
        "the store is back",
    ]


async def test_process_with_delegate_sends_no_heartbeats(clock: ManualClock) -> None:
    delegate = FakeDelegate()
    async with open_session(clock, delegate) as it:
        for _ in range(30):
            delegate.report(0, True)
            await it.advance(LEASE / 3)
        assert (it.own, it.lost) == (0, 0)
    assert delegate.closed == ["w"]


async def test_process_sends_heartbeats_when_the_delegate_is_silent(clock: ManualClock) -> None:
    delegate = FakeDelegate()
    async with open_session(clock, delegate) as it:
        delegate.report(0, True)
        await it.advance(LEASE / 2)
        assert it.own == 1
        for _ in range(6):
            await it.advance(LEASE / 3)
        assert (it.own, it.lost) == (7, 0)
        delegate.report(0, True)  # the delegate is back
        await it.advance(LEASE / 3)
        assert it.own == 7


async def test_reports_are_read_before_the_session_is_fenced(clock: ManualClock) -> None:
    """The process was stopped for ten leases; the delegate continued."""
    delegate = FakeDelegate()
    async with open_session(clock, delegate) as it:
        delegate.report(0, True)
        delegate.unread = [lambda: (LEASE / 6, True, ("u1",))]
        await it.advance(10 * LEASE)
        assert (it.lost, it.cancelled) == (0, ["u1"])
        for _ in range(6):
            await it.advance(LEASE / 3)
        assert it.lost == 0, "it sends its own heartbeats again"


async def test_old_reports_do_not_keep_a_session_alive(clock: ManualClock) -> None:
    delegate = FakeDelegate()
    async with open_session(clock, delegate) as it:
        delegate.unread = [lambda: (2 * LEASE, True, ())]
        await it.advance(10 * LEASE)
        assert it.lost == 1
        assert it.store.crashed == ["w"], "the store closes the session"


async def test_session_that_the_delegate_finds_dead_is_lost(clock: ManualClock) -> None:
    delegate = FakeDelegate()
    async with open_session(clock, delegate) as it:
        delegate.report(0, False)
        await until(lambda: it.lost == 1)
        await it.advance(10 * LEASE)
        assert (it.lost, it.own) == (1, 0)


async def test_delegate_gets_only_changed_info(clock: ManualClock) -> None:
    delegate = FakeDelegate()
    async with open_session(clock, delegate) as it:
        await it.heartbeat.update_info(b"second")
        await it.heartbeat.update_info(b"second")
    assert delegate.infos == [b"first", b"second"]


class OwnLoopRunner(TaskHeartbeatRunner):
    """Heartbeats use connections of their own, as those in a thread do."""

    own_loop = True


async def test_connections_of_heartbeats_are_closed_also_if_they_are_stopped_meanwhile(clock: ManualClock) -> None:
    store = RecordingStore(clock)
    logs = LogObserver(logging.getLogger("onthedot"))
    heartbeat = Heartbeat(store, "w", b"", clock, logs, OwnLoopRunner(), LEASE)
    lost = asyncio.Event()
    await heartbeat.open(lambda _: None, lost.set)
    await every_chance()
    clock.advance(LEASE / 3)
    await until(lambda: len(store.heartbeats) == 2)
    assert store.opened == 1
    await store.close_session("w", crashed=True)
    clock.advance(LEASE / 3)
    await lost.wait()
    await heartbeat.close()
    assert store.opened == 0


class OneLostRequest(MemoryStore):
    """Never answers one heartbeat."""

    def __init__(self) -> None:
        super().__init__()
        self.answered = 0
        self.loses = False

    async def heartbeat(self, session: str, info: bytes, lease: int) -> HeartbeatResult:
        if self.loses:
            self.loses = False
            await asyncio.Event().wait()
        self.answered += 1
        return await super().heartbeat(session, info, lease)


async def test_session_survives_a_heartbeat_without_an_answer() -> None:
    store = OneLostRequest()
    logs = LogObserver(logging.getLogger("onthedot"))
    heartbeat = Heartbeat(store, "w", b"", SystemClock(), logs, TaskHeartbeatRunner(), LEASE)
    lost: list[bool] = []
    await heartbeat.open(lambda _: None, lambda: lost.append(True))
    store.loses = True
    await until(lambda: store.answered == 2)
    assert not heartbeat.is_fenced()
    assert lost == []
    await heartbeat.close()
