"""Renews a session's lease, and detects its loss."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeAlias

from onthedot.clock.durations import DAY
from onthedot.clock.protocol import Clock
from onthedot.clock.wakeup import WakeUp
from onthedot.observability.events import Observer
from onthedot.stores.contract import Store

_DELEGATE_WAIT = 10_000.0  # ms that a session waits for the delegate's first heartbeat
FOREVER = 100 * 365 * DAY
"""The lease in a store that notices a death by itself."""

OnCancel: TypeAlias = Callable[[str], object]
OnLost: TypeAlias = Callable[[], None]
OnHeartbeat: TypeAlias = Callable[[float, bool, Sequence[str]], None]
"""Age in ms of the heartbeat that was answered; whether the session is alive; uuids of runs that shall end."""


class HeartbeatDelegate(Protocol):
    """Sends heartbeats from another process, which user code in this one cannot delay: the supervisor."""

    def keep(self, session: str, info: bytes, lease: int, on_answer: OnHeartbeat) -> None:
        """Sends heartbeats for this session from now on and reports each answer, from any thread."""
        ...

    def look(self) -> object:
        """Returns after the reports that have arrived were passed on."""
        ...

    def leave(self, session: str) -> None:
        """The session is closed, or shall be."""
        ...


class HeartbeatRunner(Protocol):
    """Runs the heartbeat loop: as a task of this event loop, or in a thread with its own loop."""

    own_loop: bool

    def start(self, heartbeats: Coroutine[Any, Any, None]) -> None: ...
    async def stop(self) -> None:
        """Cancels the loop and waits for its end."""
        ...


class TaskHeartbeatRunner:
    """On the worker's event loop, for a clock that is driven."""

    own_loop = False

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self, heartbeats: Coroutine[Any, Any, None]) -> None:
        self._task = asyncio.create_task(heartbeats)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None


class Heartbeat:
    """Opens the session, then sends three heartbeats per lease.

    Without an answer for one lease, by the monotonic clock, other workers may run the same tasks, so the session is
    fenced: it claims nothing more, and its runs end. In production the loop runs in a thread with its own event loop
    and connection, so a task that blocks the worker's loop does not lose the session; only a call that holds the GIL
    for a lease does.

    With a delegate it sends its own heartbeats only after half a lease without a report: the delegate is stopped or
    disconnected then.
    """

    def __init__(
        self,
        store: Store,
        session: str,
        info: bytes,
        clock: Clock,
        observer: Observer,
        runner: HeartbeatRunner,
        lease_ms: int | None,
        delegate: HeartbeatDelegate | None = None,
    ) -> None:
        """lease_ms: None if the store notices a death by itself."""
        self._store = store
        self._session = session
        self._info = info
        self._clock = clock
        self._observer = observer
        self._runner = runner
        self._is_leased = lease_ms is not None
        self._delegate = delegate if self._is_leased else None
        self._lease = lease_ms or FOREVER
        self._is_store_open = not runner.own_loop  # on the runner's loop
        self._delegate_started = WakeUp(clock)
        self._wakeup: WakeUp | None = None  # on the runner's loop
        self.is_open: bool = False  # the first heartbeat was answered, and it was not closed since
        self._alive = True
        self._fenced = False
        self._failed = False  # the last heartbeat
        self._confirmed_at = 0.0  # when the last answered heartbeat was sent
        self._next = 0.0  # when to send one
        self._on_cancel: OnCancel | None = None

    async def open(self, on_cancel: OnCancel, on_lost: OnLost) -> None:
        """on_cancel: a run shall end. on_lost: the session is dead, and its runs do not count any more.

        Both are called on the loop of this call.
        """
        loop = asyncio.get_running_loop()

        def cancel_threadsafe(uuid: str) -> None:
            loop.call_soon_threadsafe(on_cancel, uuid)

        def lost_threadsafe() -> None:
            loop.call_soon_threadsafe(on_lost)

        self._on_cancel = cancel_threadsafe
        sent = self._clock.now()
        self._next = sent + self._lease / 3
        self._inform_delegate()  # first: if this process dies now, the delegate knows which session to close
        await self._store.heartbeat(self._session, self._info, self._lease)
        self._confirmed_at = sent  # without an answer the session may exist, and nothing would renew it
        self.is_open = True
        if not self._is_leased:
            return
        self._runner.start(self._run(lost_threadsafe))
        if self._delegate is not None and self._runner.own_loop:
            await self._delegate_started.wait(_DELEGATE_WAIT)  # otherwise the first task could cost the session

    def is_fenced(self) -> bool:
        """The session may not act: it is dead, or no heartbeat of the last lease was answered. Then it stays fenced.

        From any thread. The process may have been stopped, so the delegate's reports are read first.
        """
        if not self.is_open:
            return True
        if not self._fenced and self._time_left() <= 0 and self._delegate is not None:
            self._delegate.look()
        if self._time_left() <= 0 or not self._alive:
            self._fenced = True
        return self._fenced

    def _time_left(self) -> float:
        return self._confirmed_at + self._lease - self._clock.now()

    async def update_info(self, info: bytes) -> None:
        """Writes the description of the worker if it has changed."""
        if info == self._info:
            return
        before = self._info
        self._info = info
        try:
            self._inform_delegate()
            await self._store.heartbeat(self._session, info, self._lease)
        except BaseException:
            self._info = before
            raise

    def _inform_delegate(self) -> None:
        if self._delegate is not None:
            self._delegate.keep(self._session, self._info, self._lease, self._on_delegate_report)

    def _on_delegate_report(self, age: float, alive: bool, cancel: Sequence[str]) -> None:
        self._confirmed_at = max(self._confirmed_at, self._clock.now() - age)
        self._next = max(self._next, self._confirmed_at + self._lease / 2)
        self._alive = self._alive and alive
        self._cancel(cancel)
        self._delegate_started.set_threadsafe()
        if not alive and self._wakeup is not None:
            self._wakeup.set_threadsafe()

    def _cancel(self, uuids: Sequence[str]) -> None:
        assert self._on_cancel is not None
        for uuid in uuids:
            self._on_cancel(uuid)

    # -- on the runner's loop

    async def _run(self, on_lost: OnLost) -> None:
        try:
            await self._send_heartbeats()
            on_lost()
            if self._alive:
                await self._report_death()
        finally:
            if self._runner.own_loop and self._is_store_open:
                await self._close_store()

    async def _close_store(self) -> None:
        """Also if the runner is stopped meanwhile: otherwise connections would stay open."""
        closing = asyncio.create_task(self._store.close())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await closing
            raise

    async def _send_heartbeats(self) -> None:
        self._wakeup = WakeUp(self._clock)
        while True:
            self._wakeup.clear()
            if self._delegate is not None:
                self._delegate.look()  # before it sends a heartbeat of its own
            if self.is_fenced():
                return
            now = self._clock.now()
            if now < self._next:
                await self._wakeup.wait(min(self._next - now, self._time_left()))
            else:
                await self._send_heartbeat(now, self._time_left())

    async def _send_heartbeat(self, sent: float, left: float) -> None:
        try:
            async with asyncio.timeout(max(0.001, min(left, self._lease / 3) / 1000)):  # then another one still helps
                await self._open_store()
                answer = await self._store.heartbeat(self._session, self._info, self._lease)
        except Exception as error:  # noqa: BLE001 - reported, and repeated soon
            self._failed = True
            self._observer.store_failed("heartbeat", error)
            self._next = self._clock.now() + self._lease / 10
            return
        self._report_recovery()
        self._alive = answer.alive
        self._confirmed_at = max(self._confirmed_at, sent)
        self._next = sent + self._lease / 3
        self._cancel([lease.uuid for lease in answer.cancel_requests])

    async def _report_death(self) -> None:
        """Its runs have ended: other workers get the tasks as soon as the store can be reached."""
        while True:
            try:
                await self._open_store()
                await self._store.close_session(self._session, crashed=True)
                self._report_recovery()
                return
            except Exception as error:  # noqa: BLE001 - reported, and repeated
                self._failed = True
                self._observer.store_failed("heartbeat", error)
            await WakeUp(self._clock).wait(self._lease / 10)

    def _report_recovery(self) -> None:
        if self._failed:
            self._failed = False
            self._observer.store_recovered("heartbeat")

    async def _open_store(self) -> None:
        if not self._is_store_open:
            await self._store.open()
            self._is_store_open = True

    async def close(self) -> None:
        """Also if the store does not answer, the session may not act any more: nothing would renew it."""
        await self._runner.stop()
        self.is_open = False
        try:
            await self._store.close_session(self._session, crashed=self._fenced)
        finally:
            if self._delegate is not None:
                self._delegate.leave(self._session)  # also if the store was not reached: the delegate tries again
