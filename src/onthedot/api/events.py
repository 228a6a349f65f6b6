"""The verbs of an app that concern events: publish, expect, and signals of events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from onthedot.client.portal import Portal
from onthedot.clock.durations import Duration
from onthedot.errors import BadEvent
from onthedot.events.callbacks import EventSignals
from onthedot.events.event import Event
from onthedot.events.event_types import TypePattern
from onthedot.events.resume_handles import (
    SIGNAL,
    ResumeHandle,
    SyncResumeHandle,
    expectation,
    expiry_task,
    new_handle,
    resume_task,
)
from onthedot.model.context import running_task
from onthedot.runtime.runtime import Runtime
from onthedot.stores.capabilities import AsyncOutbox, Outbox, SyncOutbox, capability
from onthedot.stores.contract import HandleRecord, NewEvent, NewTask

_PUBLISH = "publish()"
_EXPECT = "expect()"
_SYNC_PUBLISH = "write app.sync.publish(…)"
_SYNC_EXPECT = "write app.sync.expect(…)"

Expected = Mapping[str | tuple[str, ...], int]


class _NewHandle(NamedTuple):
    """A resume handle to create, and the tasks that wait for it.

    tasks_with: stored with the handle. tasks_before: stored before it, since its outbox is in another database; a task
    without a handle only waits.
    """

    record: HandleRecord
    tasks_with: Sequence[NewTask] = ()
    tasks_before: Sequence[NewTask] = ()


class EventVerbs:
    """Publishes the events of an app, and creates its resume handles."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.signals: EventSignals = runtime.event_signals

    @property
    def portal(self) -> Portal:
        """To the store that keeps events and resume handles."""
        return self._runtime.outbox_portal

    # -- publish

    async def publish(self, events: Sequence[Event[Any]], connection: object) -> list[str]:
        new = self._encode(events)
        if connection is None:
            await self.portal.run(lambda client: client.publish(new, _PUBLISH))
        else:
            await self.portal.in_transaction_awaited(
                lambda store: capability(store, AsyncOutbox, _PUBLISH).publish_awaited(connection, new), _SYNC_PUBLISH
            )
        return [event.id for event in new]

    def publish_sync(self, events: Sequence[Event[Any]], connection: object) -> list[str]:
        new = self._encode(events)
        if connection is None:
            self.portal.run_sync(lambda client: client.publish(new, _PUBLISH))
        else:
            self.portal.in_transaction(
                lambda store: capability(store, SyncOutbox, _PUBLISH).publish_in(connection, new)
            )
        return [event.id for event in new]

    def _encode(self, events: Sequence[Event[Any]]) -> list[NewEvent]:
        return self._runtime.event_encoder().encode(events, _PUBLISH)

    # -- resume handles

    async def expect(
        self, expected: Expected, correlation_id: str, timeout: Duration, wakes: str | None, connection: object
    ) -> ResumeHandle:
        new = self._new_handle(expected, correlation_id, timeout, wakes)
        if new.tasks_before:
            await self._runtime.portal.run(lambda client: client.add_many(new.tasks_before))
        if connection is None:
            kept = await self.portal.run(
                lambda client: capability(client.store, Outbox, _EXPECT).create_handle(new.record, new.tasks_with)
            )
        else:
            kept = await self.portal.in_transaction_awaited(
                lambda store: capability(store, AsyncOutbox, _EXPECT).create_handle_awaited(
                    connection, new.record, new.tasks_with
                ),
                _SYNC_EXPECT,
            )
        _check_same(new.record, kept)
        handle = self.handle(correlation_id, new.record.id)
        if connection is None:
            await handle.complete()  # events may have come before
        return handle

    def expect_sync(
        self, expected: Expected, correlation_id: str, timeout: Duration, wakes: str | None, connection: object
    ) -> SyncResumeHandle:
        new = self._new_handle(expected, correlation_id, timeout, wakes)
        if new.tasks_before:
            self._runtime.portal.run_sync(lambda client: client.add_many(new.tasks_before))
        if connection is None:
            kept = self.portal.run_sync(
                lambda client: capability(client.store, Outbox, _EXPECT).create_handle(new.record, new.tasks_with)
            )
        else:
            kept = self.portal.in_transaction(
                lambda store: capability(store, SyncOutbox, _EXPECT).create_handle_in(
                    connection, new.record, new.tasks_with
                )
            )
        _check_same(new.record, kept)
        handle = self.sync_handle(correlation_id, new.record.id)
        if connection is None:
            handle.complete()
        return handle

    def handle(self, correlation_id: str, handle_id: str = "") -> ResumeHandle:
        return ResumeHandle(self._runtime.portal, self.portal, correlation_id, handle_id)

    def sync_handle(self, correlation_id: str, handle_id: str = "") -> SyncResumeHandle:
        return SyncResumeHandle(self.handle(correlation_id, handle_id), self._runtime.portal)

    def _new_handle(self, expected: Expected, correlation_id: str, timeout: Duration, wakes: str | None) -> _NewHandle:
        record = new_handle(expectation(expected, self._is_received), correlation_id, timeout, wakes or SIGNAL)
        if wakes is None and running_task() is not None:
            return _NewHandle(record)  # the running task waits for the signal itself
        tasks = [resume_task(record)]
        if wakes is not None:
            tasks.append(expiry_task(record))
        if self._runtime.config.events.outbox is None:
            return _NewHandle(record, tasks_with=tasks)
        return _NewHandle(record, tasks_before=tasks)

    def _is_received(self, event_type: str) -> bool:
        received = (*self._runtime.config.events.results, *self.signals.types)
        return any(TypePattern.of(each).matches(event_type) for each in received)


def _check_same(new: HandleRecord, kept: HandleRecord) -> None:
    if kept.id != new.id:
        raise BadEvent(
            f"expect(): {new.correlation_id!r} has a pending handle with another expectation: {dict(kept.expected)}; "
            "take another correlation id, or wait for that handle first"
        )


class AppEvents:
    """The verbs of an app that concern events."""

    _events: EventVerbs

    async def publish(self, event: Event[Any], *more: Event[Any], connection: object = None) -> list[str]:
        """Publishes events: they are stored when this returns, and a relay sends them to the bus. Returns their ids.

        Args:
            event: The event, as in ``Event("Shop.Order.Placed", {"id": 17}, aggregate_id="17")``.
            more: Further events, stored in the same step; at most 1,000 in all. The first event with an id is kept.
            connection: Your async connection or session to the database of the store: the events are stored with your
                commit, or not at all.
        """
        return await self._events.publish((event, *more), connection)

    async def expect(
        self,
        expected: Expected,
        *,
        correlation_id: str,
        timeout: Duration,
        wakes: str | None = None,
        connection: object = None,
    ) -> ResumeHandle:
        """Creates a resume handle: it is complete when so many events of these types have come.

        Create it before you publish the first request, or in its transaction. The same expectation of the same
        correlation id is the same handle, so a flow that runs again finds it.

        Args:
            expected: Type, or several types of which each counts, → number: ``{("A.B.Done", "A.B.Failed"): 3}``. Each
                type is one of ``Events(results=…)`` or of ``app.on_event``.
            correlation_id: Of the events that count.
            timeout: After this time the handle expires.
            wakes: What is resumed, such as ``prefect_run()``; by default tasks and code that await ``handle.wait()``.
            connection: Your async connection to the database of the store: the handle is stored with your commit.
        """
        return await self._events.expect(expected, correlation_id, timeout, wakes, connection)

    def resume_handle(self, correlation_id: str) -> ResumeHandle:
        """Returns the newest resume handle of a correlation id, to read its status or to wait, without reading it yet.

        Args:
            correlation_id: Of the events that it counts.
        """
        return self._events.handle(correlation_id)

    def on_event(self, event_type: str, *, signal: str) -> None:
        """Declares that each event of a type sends a signal, for tasks that wait by ``ctx.wait_for``.

        Its payload is ``{"type", "payload", "id", "correlation_id"}``, its id that of the event. The events also count
        for ``app.expect``.

        Args:
            event_type: The type of the events.
            signal: Name of the signal; ``{task_id}`` is replaced by that field of the payload. ``{id}``,
                ``{correlation_id}`` and ``{aggregate_id}`` are those of the event.
        """
        self._events.signals.add(event_type, signal)
