"""Resume handles count expected events by correlation id; a signal wakes the waiting task or caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec

from onthedot.client.client import StoreClient
from onthedot.client.portal import Portal
from onthedot.clock.durations import Duration, to_duration_ms
from onthedot.codec.annotations import write
from onthedot.codec.body import StoredBody
from onthedot.errors import BadEvent, Expired, TaskNotFound
from onthedot.events.event import Event
from onthedot.flows.signals import new_signal
from onthedot.model.context import running_task
from onthedot.model.counter_names import shared_signal
from onthedot.model.event_origin import event_id
from onthedot.model.flow_names import RESUME
from onthedot.model.value_errors import BadEventField
from onthedot.stores.capabilities import Outbox, capability
from onthedot.stores.contract import (
    BATCH,
    Arrival,
    HandleRecord,
    HandleStatus,
    Links,
    NewSignal,
    NewTask,
    Policy,
    Wait,
)

CompleteHandles: TypeAlias = Callable[[Sequence[str], Sequence[str]], Awaitable[Sequence[HandleRecord]]]
SendSignals: TypeAlias = Callable[[Sequence[NewSignal]], Awaitable[object]]
OnResumed: TypeAlias = Callable[[Sequence[HandleRecord]], None]

SIGNAL = "signal"  # the target of a handle that wakes tasks and callers of `wait()`
_SLACK = 60_000  # ms that the task of a handle waits longer than the handle
_AFTER_EXPIRY = 100  # ms
_MAX_EXPECTED = 100_000
_POLL = 1.0  # seconds


def expectation(
    expected: Mapping[str | tuple[str, ...], int], is_received: Callable[[str], bool]
) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Checked, and in one order: the same expectation is the same handle.

    is_received: whether the callback service receives events of a type

    >>> expectation({("B.C.Failed", "B.C.Ended"): 3}, lambda name: True)
    ((('B.C.Ended', 'B.C.Failed'), 3),)
    """
    if not expected:
        raise BadEvent("expect(): nothing is expected; write {type: number}")
    found: list[tuple[tuple[str, ...], int]] = []
    for types, number in expected.items():
        names = (types,) if isinstance(types, str) else tuple(types)
        if type(number) is not int or not 1 <= number <= _MAX_EXPECTED:
            raise BadEventField(
                f"expect(): {' or '.join(names)}: the number must be 1 to {_MAX_EXPECTED:,}, not {number!r}"
            )
        for name in names:
            if not is_received(name):
                raise BadEvent(f"expect(): {name!r} is not received: add it to Events(results=(…)), or app.on_event(…)")
        found.append((tuple(sorted(set(names))), number))
    return tuple(sorted(found))


def new_handle(
    expected: tuple[tuple[tuple[str, ...], int], ...], correlation_id: str, timeout: Duration, target: str
) -> HandleRecord:
    """A handle whose id derives from what it expects: a flow that runs again finds it."""
    if not correlation_id:
        raise BadEventField("expect(): correlation_id is empty")
    ms = to_duration_ms(timeout, "expect(): timeout", BadEventField)
    if ms <= 0:
        raise BadEventField(f"expect(): timeout must be more than 0 seconds, not {timeout!r}")
    wanted = msgspec.json.encode(expected).decode()
    return HandleRecord(event_id("resume", correlation_id, target, wanted), correlation_id, expected, target, ms)


def resume_signal(handle_id: str) -> str:
    """The name of the signal that wakes the waiters of a handle."""
    return f"resume:{handle_id}"


def resume_task(handle: HandleRecord) -> NewTask:
    """A task that waits for the signal: its end wakes callers outside of tasks, or it resumes a flow of Prefect."""
    wait = Wait(((shared_signal(resume_signal(handle.id)), 1),), handle.timeout + _SLACK)
    return NewTask(
        resume_uuid(handle.id), RESUME, _resume_body(handle), policy=Policy(max_crashes=10), links=Links(waits=wait)
    )


def expiry_task(handle: HandleRecord) -> NewTask:
    """A task that resumes a flow run of Prefect when the handle has expired: the flow then gets `Expired`."""
    uuid = event_id("onthedot.expire", handle.id)
    return NewTask(
        uuid, RESUME, _resume_body(handle), after=handle.timeout + _AFTER_EXPIRY, policy=Policy(max_crashes=10)
    )


def _resume_body(handle: HandleRecord) -> bytes:
    return write(StoredBody(args={"handle": handle.id, "correlation_id": handle.correlation_id}))


def resume_uuid(handle_id: str) -> str:
    return event_id("onthedot.resume", handle_id)


class HandleCompletion:
    """Completes handles and wakes their waiters: after arrivals were stored, and after a handle was created.

    The later of the two sees both sides, so no lock is needed. Every step may be repeated.
    """

    def __init__(
        self, complete_handles: CompleteHandles, signal: SendSignals, on_resumed: OnResumed | None = None
    ) -> None:
        """on_resumed: called with the handles whose waiters were woken."""
        self._complete_handles = complete_handles
        self._signal = signal
        self._on_resumed = on_resumed

    async def complete(self, correlation_ids: Sequence[str]) -> None:
        complete = await self._complete_handles(correlation_ids, ())
        for start in range(0, len(complete), BATCH):
            page = complete[start : start + BATCH]
            await self._signal([new_signal(resume_signal(each.id), signal_id=each.id) for each in page])
        resumed = [each.id for each in complete if each.target == SIGNAL]
        if resumed:
            await self._complete_handles((), resumed)
        if self._on_resumed is not None:
            self._on_resumed(complete)


def expected_events(handle: HandleRecord, arrivals: Sequence[Arrival]) -> list[Event[Any]]:
    """The events that the handle counts, in order of arrival."""
    counted = {name for types, _ in handle.expected for name in types}
    return [Event.from_dict(msgspec.json.decode(each.event)) for each in arrivals if each.type in counted]


def expired(handle: HandleRecord, events: Sequence[Event[Any]]) -> Expired:
    missing: dict[tuple[str, ...], int] = {}
    for types, number in handle.expected:
        left = number - sum(event.type in types for event in events)
        if left > 0:
            missing[types] = left
    return Expired(events, missing)


class ResumeHandle:
    """Waits for the events that ``app.expect`` expects.

    It completes once, when all of them are stored, whether they came early, late, twice or while no service ran.
    """

    def __init__(self, portal: Portal, outbox_portal: Portal, correlation_id: str, handle_id: str = "") -> None:
        self._portal = portal
        self._outbox_portal = outbox_portal
        self.correlation_id: str = correlation_id
        """The correlation id of the events that count."""
        self.id: str = handle_id
        """Derives from the correlation id and from what is expected; empty until a handle of an id alone was read."""

    async def status(self) -> HandleStatus:
        """Returns ``"pending"``, ``"complete"``, ``"resumed"`` or ``"expired"``. Raises LookupError: not kept."""
        return (await self._read()).status

    async def wait(self) -> list[Event[Any]]:
        """Returns the events in order of arrival. Raises `Expired` after the timeout of the handle.

        Inside a task it waits without a slot: the run ends, and another one continues here.
        """
        await self.complete()
        handle = await self._read()
        await self._wait(handle)
        await self.complete()
        while (handle := await self._read()).status == "pending" and running_task() is None:
            await asyncio.sleep(_POLL)  # an operator, or the stop of a memory store, has ended the task of the handle
            await self._wait(handle)
            await self.complete()
        arrivals = await self._outbox_portal.run(lambda client: _outbox(client).arrivals(self.correlation_id))
        events = expected_events(handle, arrivals)
        if handle.status in ("complete", "resumed"):
            return events
        raise expired(handle, events)

    async def complete(self) -> None:
        """Counts the events that have come; the callback service does it for every event that comes."""
        completion = HandleCompletion(self._complete_handles, self._send)
        await completion.complete([self.correlation_id])

    async def _complete_handles(self, ids: Sequence[str], resumed: Sequence[str]) -> Sequence[HandleRecord]:
        return await self._outbox_portal.run(lambda client: _outbox(client).complete_handles(ids, resumed))

    async def _send(self, signals: Sequence[NewSignal]) -> Sequence[bool]:
        return await self._portal.run(lambda client: client.store.signal(signals))

    async def _wait(self, handle: HandleRecord) -> None:
        """Inside a task it always waits, also if all is there: the steps of every run are the same."""
        now = await self._portal.run(_now)
        left = max(0.0, handle.expires_at - now) / 1000
        context = running_task()
        with suppress(TimeoutError, TaskNotFound):  # the status decides; a handle of a task has no task of its own
            if context is not None:
                await context.wait_for(resume_signal(handle.id), timeout=left)
            elif handle.status == "pending":
                uuid = resume_uuid(handle.id)
                await self._portal.run(lambda client: client.wait_for_end(uuid, left), waits=True)

    async def _read(self) -> HandleRecord:
        handles = await self._outbox_portal.run(lambda client: _outbox(client).handles([self.correlation_id]))
        found = [handle for handle in handles if self.id in ("", handle.id)]
        if not found:
            raise LookupError(f"no resume handle of {self.correlation_id!r} is kept")
        self.id = found[-1].id
        return found[-1]


class SyncResumeHandle:
    """`ResumeHandle` for sync code outside of tasks."""

    def __init__(self, handle: ResumeHandle, portal: Portal) -> None:
        self._handle = handle
        self._portal = portal

    @property
    def id(self) -> str:
        """Derives from the correlation id and from what is expected; empty until a handle of an id alone was read."""
        return self._handle.id

    @property
    def correlation_id(self) -> str:
        """The correlation id of the events that count."""
        return self._handle.correlation_id

    def status(self) -> HandleStatus:
        """Returns ``"pending"``, ``"complete"``, ``"resumed"`` or ``"expired"``. Raises LookupError: not kept."""
        return self._portal.run_sync(lambda _: self._handle.status(), waits=True)

    def wait(self) -> list[Event[Any]]:
        """Returns the events in order of arrival. Raises `Expired` after the timeout of the handle."""
        return self._portal.run_sync(lambda _: self._handle.wait(), waits=True)

    def complete(self) -> None:
        """Counts the events that have come; the callback service does it for every event that comes."""
        self._portal.run_sync(lambda _: self._handle.complete(), waits=True)


def _outbox(client: StoreClient) -> Outbox:
    return capability(client.store, Outbox, "expect()")


async def _now(client: StoreClient) -> float:
    return client.store.earliest_now()
