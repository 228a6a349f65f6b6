"""Heartbeats for a worker process, sent by its supervisor. The session is reaped as soon as the process dies."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from onthedot.clock.system import SystemClock
from onthedot.stores import connect
from onthedot.stores.contract import Store
from onthedot.supervisor.messages import SessionSpec, SupervisorMessage

_REAP_TIMEOUT = 2.0  # seconds that a supervisor waits for the stores at its end
_running: set[asyncio.Task[None]] = set()


async def wait_for_reaps() -> None:
    """Wait until the sessions of ended processes are closed or reaped, for a bounded time."""
    if _running:
        await asyncio.wait(_running, timeout=_REAP_TIMEOUT)
    if _running:
        for task in _running:
            task.cancel()
        await asyncio.wait(_running)


def reap(session: SessionSpec) -> None:
    """End the session of a process that has died, in the background."""

    async def run() -> None:
        connection = SessionConnection(session)
        try:
            await connection.end_session(died=True)
        finally:
            await connection.close()

    _keep(asyncio.create_task(run()))


def _keep(task: asyncio.Task[None]) -> None:
    _running.add(task)
    task.add_done_callback(_running.discard)


class SessionConnection:
    """A connection of its own to the store of a session, opened when it is needed."""

    def __init__(self, session: SessionSpec) -> None:
        self.session = session
        self.store: Store = connect(session.store, SystemClock(), session.app)
        self._opened = False

    async def open(self) -> None:
        if not self._opened:
            await self.store.open()
            self._opened = True

    async def close(self) -> None:
        if self._opened:
            await self.store.close()

    async def end_session(self, *, died: bool) -> None:
        """Retry until the store has answered, or until the lease is over and the store reaps the session itself."""
        until = time.monotonic() + self.session.lease / 1000
        pause = 0.01
        while (left := until - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    await self.open()
                    if died:
                        await self.store.close_session(self.session.name, crashed=True)
                    else:
                        await self.store.close_session(self.session.name)
                return
            except Exception:  # noqa: BLE001 - a worker that gets no answers logs what goes wrong
                await asyncio.sleep(pause)
                pause = min(pause * 2, 1.0)


class ChildHeartbeat:
    """Heartbeats of one session, over a connection of its own.

    Errors are not logged here: a worker that gets no answers sends its own heartbeats and logs what goes wrong.
    """

    def __init__(self, session: SessionSpec, send: Callable[[SupervisorMessage], None]) -> None:
        self.session = session  # may be replaced by one of the same name with newer info
        self._send = send
        self._connection = SessionConnection(session)
        self._ended = asyncio.Event()
        self._died = False
        _keep(asyncio.create_task(self._run()))

    def end(self, *, died: bool) -> None:
        """Stop the heartbeats. died: reap the session, so that others run its tasks at once. Else it is closed once
        more, since a late heartbeat may have opened it again."""
        if not self._ended.is_set():
            self._died = died
            self._ended.set()

    async def _run(self) -> None:
        try:
            alive = True
            while alive and not self._ended.is_set():
                lease = self.session.lease / 1000
                try:
                    alive = await self._send_heartbeat(lease)
                    pause = lease / 3
                except Exception:  # noqa: BLE001 - see the class
                    pause = lease / 10
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), pause)
            await self._ended.wait()
            await self._connection.end_session(died=self._died)
        finally:
            await self._connection.close()

    async def _send_heartbeat(self, lease: float) -> bool:
        async with asyncio.timeout(lease / 3):  # then another one still helps
            await self._connection.open()
            sent = time.monotonic()
            session = self.session
            answer = await self._connection.store.heartbeat(session.name, session.info, session.lease)
        cancel = tuple(each.uuid for each in answer.cancel_requests)
        self._send(SupervisorMessage(session=session.name, sent=sent, alive=answer.alive, cancel=cancel))
        return answer.alive
