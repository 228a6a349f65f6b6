"""Keeps a session alive, and notices when it is not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol

from onthedot.clock.protocol import Clock
from onthedot.clock.system import SystemClock
from onthedot.clock.wakeup import WakeUp
from onthedot.observability.logs import LogObserver
from onthedot.stores.contract import HeartbeatResult, Store

_HELP = 10_000.0  # ms that a session waits for a helper before it begins without
FOREVER = 100 * 365 * 86_400_000
"""The lease in a store that sees a death by itself."""

Cancel = Callable[[str], object]
Lost = Callable[[], None]
Heard = Callable[[float, bool, Sequence[str]], None]
"""How long ago, in ms, the beat was sent that was answered; whether the session lives; its runs that shall end."""


class HeartbeatDelegate(Protocol):
    """Beats from another process, which nothing that runs in this one can hinder: the supervisor's, if there is one."""

    def keep(self, session: str, info: bytes, lease: int, heard: Heard) -> None:
        """From now on, this one. heard() comes from any thread; it need not come."""
        ...

    def look(self) -> object:
        """What was said up to now has been heard when this returns."""
        ...

    def leave(self, session: str) -> None:
        """It is closed, or shall be."""
        ...


class Heartbeat:
    """Opens the session, then beats three times a lease.

    No answered beat for a whole lease, by the monotonic clock: others may run what runs here, so it is ended (the
    session fences itself). By real time it beats from a thread with a loop and a connection of its own, so that a task
    that blocks the event loop does not cost the session; only a call that holds the GIL for a lease does.

    With a helper it beats only if it has heard of no beat for half a lease: then the helper is stopped, or cut off.
    """

    def __init__(
        self,
        store: Store,
        session: str,
        info: bytes,
        clock: Clock,
        logs: LogObserver,
        helper: HeartbeatDelegate | None = None,
    ) -> None:
        self._store = store
        self._session = session
        self._info = info
        self._clock = clock
        self._logs = logs
        self._delegate = None if store.traits.lease_ms is None else helper
        self._task: asyncio.Task[None] | None = None
        self._thread: _Thread | None = None
        self._opened = True  # on the loop that beats
        self._begun: WakeUp | None = None  # here: the helper has
        self._wake: WakeUp | None = None  # on the loop that beats
        self._alive = True
        self._answered = self._next = 0.0  # when the last beat that was answered was sent; when to send one
        self._cancel: Cancel = repr

    async def open(self, cancel: Cancel, lost: Lost) -> None:
        """cancel(uuid): somebody wants this run to end. lost(): the session is dead, what runs counts no more."""
        lease, self._answered = self._store.traits.lease_ms or FOREVER, self._clock.now()
        self._next = self._answered + lease / 3
        self._begun = WakeUp(self._clock)
        self._ask_delegate()  # first: if this process dies now, it knows what to bury
        await self._store.heartbeat(self._session, self._info, lease)
        if self._store.traits.lease_ms is None:
            return
        if not isinstance(self._clock, SystemClock):
            self._cancel = cancel
            self._task = asyncio.create_task(self._send_heartbeats(lease, lost))
            return
        loop = asyncio.get_running_loop()

        def cancel_there(uuid: str) -> None:
            loop.call_soon_threadsafe(cancel, uuid)

        def lost_there() -> None:
            loop.call_soon_threadsafe(lost)

        self._cancel = cancel_there
        self._thread = _Thread(self._apart(self._send_heartbeats(lease, lost_there)))
        if self._delegate is not None:
            await self._begun.wait(_HELP)  # else the very first task could cost the session

    def is_confirmed(self) -> bool:
        """The session lives: a beat that was sent less than a lease ago was answered."""
        return self._alive and self._clock.now() < self._answered + (self._store.traits.lease_ms or FOREVER)

    async def update_info(self, info: bytes) -> None:
        """What the session says of itself; written only if it is something new."""
        if info != self._info:
            before, self._info = self._info, info
            try:
                self._ask_delegate()
                await self._store.heartbeat(self._session, info, self._store.traits.lease_ms or FOREVER)
            except BaseException:
                self._info = before
                raise

    def _ask_delegate(self) -> None:
        if self._delegate is not None:
            self._delegate.keep(self._session, self._info, self._store.traits.lease_ms or FOREVER, self._heard)

    def _heard(self, ago: float, alive: bool, cancel: Sequence[str]) -> None:
        self._answered = max(self._answered, self._clock.now() - ago)
        self._next = max(self._next, self._answered + (self._store.traits.lease_ms or FOREVER) / 2)
        self._alive = self._alive and alive
        for uuid in cancel:
            self._cancel(uuid)
        if self._begun is not None:
            self._begun.set_threadsafe()
        if not alive and self._wake is not None:
            self._wake.set_threadsafe()

    async def _apart(self, beating: Coroutine[Any, Any, None]) -> None:
        """On the loop of the thread, where the store has to be opened, too: with the first beat."""
        self._opened = False
        try:
            await beating
        finally:
            if self._opened:
                await self._store.close()

    async def _ask(self, lease: int) -> HeartbeatResult:
        if not self._opened:
            await self._store.open()
            self._opened = True
        return await self._store.heartbeat(self._session, self._info, lease)

    async def _send_heartbeats(self, lease: int, lost: Lost) -> None:
        self._wake = WakeUp(self._clock)
        while True:
            self._wake.clear()
            if self._delegate is not None:
                self._delegate.look()  # this process may have been stopped, while the helper went on
            now = self._clock.now()
            left = self._answered + lease - now
            if left <= 0 or not self._alive:
                break
            if now < self._next:
                await self._wake.wait(min(self._next - now, left))
            else:
                await self._send_heartbeat(lease, now, left)
        lost()
        if self._alive:
            await self._report_death(lease)

    async def _send_heartbeat(self, lease: int, sent: float, left: float) -> None:
        try:
            async with asyncio.timeout(max(0.001, left / 1000)):
                beat = await self._ask(lease)
        except Exception as error:  # noqa: BLE001 - told, and tried again soon
            self._logs.error_throttled("beat", error)
            self._next = self._clock.now() + lease / 10
            return
        self._alive = beat.alive
        self._answered, self._next = max(self._answered, sent), sent + lease / 3
        for lease_of in beat.cancel_requests:
            self._cancel(lease_of.uuid)

    async def _report_death(self, lease: int) -> None:
        """Its runs have been ended: as soon as the store can be reached, others shall have them."""
        while True:
            try:
                await self._ask(0)
                return
            except Exception as error:  # noqa: BLE001 - likewise
                self._logs.error_throttled("beat", error)
            await WakeUp(self._clock).wait(lease / 10)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        if self._thread is not None:
            await self._thread.stop()
            self._thread = None
        try:
            await self._store.close_session(self._session)
        finally:
            if self._delegate is not None:
                self._delegate.leave(self._session)  # also if the store was not reached: the helper goes on trying


class _Thread:
    """Runs a coroutine in an event loop of its own, until it is stopped."""

    def __init__(self, work: Coroutine[Any, Any, None]) -> None:
        self._here = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._here.create_future()
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(work)
        self._thread = threading.Thread(target=self._run, name="onthedot-keeper", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._task)
        finally:
            self._loop.close()
            with suppress(RuntimeError):  # who waits for it has gone
                self._here.call_soon_threadsafe(self._over.set_result, None)

    async def stop(self) -> None:
        with suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(self._task.cancel)
        await self._over
        self._thread.join()
