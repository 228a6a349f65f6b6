"""Prefect: a flow run that waits for events while it is paused, without a request to the server.

It runs in the environment of the flows; ``pip install 'onthedot[prefect]'`` brings Prefect. Workers need no Prefect:
they resume the flow run by one HTTP request.
"""
# Prefect has an environment of its own, and is missing where the checkers run.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from http import HTTPStatus
from typing import Any, Protocol, TypeVar
from uuid import UUID

__all__ = ["Resumable", "prefect_run", "wait_for"]

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

_FIRST_EVENT = 2.0  # seconds for an event that proves that the server has registered a subscription
_FIRST_RENEWAL = 0.5  # seconds from a disconnect to the next subscription; doubled each time
_LAST_RENEWAL = 10.0
_READS = 20  # of a state after an event about it, which may be earlier than its commit
_READ_EVERY = 0.02  # seconds


class Resumable(Protocol[T_co]):
    """An object that a flow run waits for, such as a resume handle."""

    @property
    def id(self) -> str:
        """The key of the pause: a run pauses once for each."""
        ...

    async def status(self) -> str:
        """Returns ``pending``, ``complete``, ``resumed`` or ``expired``. After any but the first, the run goes on."""
        ...

    async def wait(self) -> T_co:
        """Returns the result, or raises, once it is no longer pending."""
        ...


def prefect_run() -> str:
    """Returns the name of the current flow run, ``prefect:<id>``: a resume handle takes it to resume the run."""
    return f"prefect:{_current_run()}"


async def wait_for(handle: Resumable[T], *, suspend: bool = False) -> T:
    """Pauses the current flow run until the handle is complete, and returns its result.

    While the run is paused, it sends no request to the Prefect server: the server notifies it. If the handle was
    complete before the pause, the run resumes itself. A person may resume the run, too; it then waits for the handle
    without a pause. If the run ends while it is paused, as a cancelled one does, Prefect's ``Abort`` is raised.

    Args:
        handle: A resume handle that resumes this run, or any other `Resumable`.
        suspend: False: the process waits. True: it ends, and the run starts again from the top when it is resumed; this
            needs a deployment.
    """
    run = _current_run()
    if suspend:
        await _suspend(run, handle)
    else:
        await _pause(run, handle)
    return await handle.wait()


def _current_run() -> UUID:
    from prefect.context import FlowRunContext

    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        raise RuntimeError("no flow run: prefect_run() and wait_for() are called inside a Prefect flow")
    run: UUID = context.flow_run.id
    return run


async def _suspend(run: UUID, handle: Resumable[Any]) -> None:
    from prefect.client.orchestration import get_client
    from prefect.exceptions import Pause
    from prefect.flow_runs import asuspend_flow_run

    try:
        await asuspend_flow_run(key=handle.id)  # returns if the run was suspended for this handle before
    except Pause:  # ends this process
        if await handle.status() != "pending":
            async with get_client() as client:
                await client.resume_flow_run(run)
        raise


async def _pause(run: UUID, handle: Resumable[Any]) -> None:
    from prefect.client.orchestration import get_client
    from prefect.logging.handlers import APILogHandler
    from prefect.states import Paused
    from prefect.utilities.engine import propose_state

    async with get_client() as client:
        async with _subscription(run) as events:  # before the pause, so that no event is missed
            await APILogHandler.aflush()  # otherwise log lines are sent while the run is paused
            state = await propose_state(client, Paused(pause_key=handle.id), flow_run_id=run)
            if not state.is_paused():
                return  # it was paused for this handle before, and resumed
            paused = PausedRun(client, run, state.timestamp)
            if await handle.status() != "pending":
                await client.resume_flow_run(run)  # refused if the task was faster
                if await paused.goes_on():
                    return
            if await paused.follow(events):
                return
        await paused.follow_renewed()


def _subscription(run: UUID) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
    """The events of the flow run. It ends with the connection: Prefect's own renewal would read no state."""
    from prefect.events.clients import get_events_subscriber
    from prefect.events.filters import EventFilter, EventNameFilter, EventResourceFilter

    wanted = EventFilter(
        event=EventNameFilter(prefix=["prefect.flow-run."]),
        resource=EventResourceFilter(id=[f"prefect.flow-run.{run}"]),
    )
    subscription: AbstractAsyncContextManager[AsyncIterator[Any]] = get_events_subscriber(
        filter=wanted, reconnection_attempts=0
    )
    return subscription


class PausedRun:
    """A flow run that was paused at a time of the server."""

    def __init__(self, client: Any, run: UUID, paused_at: datetime) -> None:
        self._client = client
        self._run = run
        self._paused_at = paused_at

    async def follow(self, events: AsyncIterator[Any], *, is_renewed: bool = False) -> bool:
        """Waits until the run goes on. False: the subscription has ended."""
        try:
            first = await _first_of(events)
            if (first is None or is_renewed) and await self.goes_on():
                return True
            if first is not None and await self._goes_on_after(first):
                return True
            async for event in events:
                if await self._goes_on_after(event):
                    return True
        except Exception as error:
            if not _is_transient(error):
                raise
        return False

    async def follow_renewed(self) -> None:
        """Subscribes again after each disconnect; reads the state each time, since events may have been missed."""
        now = asyncio.get_running_loop().time
        pause = _FIRST_RENEWAL
        while True:
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_RENEWAL)
            began = now()
            try:
                async with _subscription(self._run) as events:
                    if await self.follow(events, is_renewed=True):
                        return
            except Exception as error:
                if not _is_transient(error):
                    raise
            if now() - began > _LAST_RENEWAL:
                pause = _FIRST_RENEWAL

    async def _goes_on_after(self, event: Any) -> bool:
        """Whether this event tells that the run is no longer paused, and so it is."""
        if event.resource.get("prefect.state-type") is None or event.occurred <= self._paused_at:
            return False
        for _ in range(_READS):
            if await self.goes_on():
                return True
            await asyncio.sleep(_READ_EVERY)
        return False

    async def goes_on(self) -> bool:
        """Reads the state once. Raises Abort for a run that has ended or is being cancelled."""
        from prefect.exceptions import Abort

        state = (await self._client.read_flow_run(self._run)).state
        if state.is_final() or state.is_cancelling():
            raise Abort(f"flow run {self._run} is {state.name}, and was waiting for events")
        return bool(state.is_running())


async def _first_of(events: AsyncIterator[Any]) -> Any:
    """The first event; None: none came in time. The event of the pause is one, or an older one that is sent again."""
    try:
        async with asyncio.timeout(_FIRST_EVENT):
            return await anext(events, None)
    except TimeoutError:
        return None


def _is_transient(error: Exception) -> bool:
    """Whether the server may be back soon."""
    import httpx
    from websockets.exceptions import WebSocketException

    answer: Any = getattr(error, "response", None)
    if isinstance(error, httpx.HTTPStatusError) and answer is not None:
        return bool(answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR)
    return isinstance(error, OSError | WebSocketException | httpx.TransportError)
