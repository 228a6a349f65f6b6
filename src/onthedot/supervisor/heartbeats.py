"""Beats for a worker process from outside of it, and buries its session as soon as it dies."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from onthedot.clock.system import SystemClock
from onthedot.stores import connect
from onthedot.supervisor.messages import SessionSpec, SupervisorMessage

_LAST_WORDS = 2.0  # seconds that a supervisor which ends gives the stores
_under_way: set[asyncio.Task[None]] = set()


async def wait_for_reaps() -> None:
    """The sessions of processes that have ended are in no store any more, or it cannot be told."""
    if _under_way:
        await asyncio.wait(_under_way, timeout=_LAST_WORDS)
    if _under_way:
        for task in _under_way:
            task.cancel()
        await asyncio.wait(_under_way)


class ChildHeartbeat:
    """One session, over a connection of its own.

    What goes wrong here is not told: the worker hears of no beat, beats by itself, and tells.
    """

    def __init__(self, session: SessionSpec, say: Callable[[SupervisorMessage], None]) -> None:
        self.session = session  # may be replaced by one of the same name that says more
        self._say = say
        self._store = connect(session.store, SystemClock(), session.app)
        self._opened = False
        self._over = asyncio.Event()
        self._died = False
        task = asyncio.create_task(self._keep())
        _under_way.add(task)
        task.add_done_callback(_under_way.discard)

    def end(self, *, died: bool) -> None:
        """died: what it ran shall be run by others, now. Else it is closed; but a beat may have opened it again."""
        if not self._over.is_set():
            self._died = died
            self._over.set()

    async def _keep(self) -> None:
        try:
            alive = True
            while alive and not self._over.is_set():
                lease = self.session.lease / 1000
                try:
                    alive = await self._beat(lease)
                    pause = lease / 3
                except Exception:  # noqa: BLE001 - as said above
                    pause = lease / 10
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._over.wait(), pause)
            await self._over.wait()
            await self._bury()
        finally:
            if self._opened:
                await self._store.close()

    async def _beat(self, lease: float) -> bool:
        async with asyncio.timeout(lease):
            if not self._opened:
                await self._store.open()
                self._opened = True
            sent, said = time.monotonic(), self.session
            beat = await self._store.heartbeat(said.name, said.info, said.lease)
        self._say(
            SupervisorMessage(
                session=said.name, sent=sent, alive=beat.alive, cancel=tuple(each.uuid for each in beat.cancel_requests)
            )
        )
        return beat.alive

    async def _bury(self) -> None:
        """Until the store has heard it, or the lease is over: then it knows by itself."""
        until, pause = time.monotonic() + self.session.lease / 1000, 0.01
        while (left := until - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    if not self._opened:
                        await self._store.open()
                        self._opened = True
                    if self._died:
                        await self._store.close_session(self.session.name, crashed=True)
                    else:
                        await self._store.close_session(self.session.name)
                return
            except Exception:  # noqa: BLE001 - likewise
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)
