"""``app.operations`` and ``app.sync.operations``: what an operator does, from code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypedDict, TypeVar, Unpack

from onthedot.api.batch_modes import SyncBatches
from onthedot.api.batches import BatchSetup, SyncBatch
from onthedot.api.events import EventVerbs, Expected
from onthedot.api.flow_handles import AsyncFlowHandle, FlowHandle
from onthedot.api.functions import Enqueuer
from onthedot.api.outbox import AppOutbox, SyncAppOutbox
from onthedot.api.schedules import SyncSchedules
from onthedot.batches.requests import BatchArguments, add_batch
from onthedot.client.client import StoreClient
from onthedot.client.portal import Portal
from onthedot.clock.durations import Duration
from onthedot.codec.untyped import decode_untyped_result
from onthedot.events.event import Event
from onthedot.events.resume_handles import SyncResumeHandle
from onthedot.flows.signals import KEEP, new_signal
from onthedot.model.task import TaskInfo
from onthedot.operations import Operations
from onthedot.operations.audit import Actor, system_user
from onthedot.operations.explain import Explanation
from onthedot.operations.failures import FailureGroup
from onthedot.operations.limits import LimitInfo
from onthedot.operations.series import SeriesData
from onthedot.operations.sources import SourceInfo
from onthedot.operations.task_queries import TaskFilter, TaskPage
from onthedot.operations.workers import WorkerInfo

T = TypeVar("T")

__all__ = ["AppOperations", "LimitChange", "SyncOperations"]


class LimitChange(TypedDict, total=False):
    """The fields that ``set_limit`` changes. One that is left out stays; None gives it back to the code."""

    cap: int | None
    """How many tasks run at once."""
    rate: str | None
    """How many start in a time, such as ``"10/s"`` or ``"100/m"``."""
    burst: float | None
    """How many may start at once after a pause; by default what the rate allows in a second."""


class AppOperations:
    """Finds, explains and changes tasks, limits and pauses, whichever process has added them.

    For sync code the same is under ``app.sync.operations``; schedules are under ``app.schedules``. `outbox` has the
    events that are unsent or failed. Each change has an entry in the audit log, which ``onthedot audit`` and the page
    show; ``app.cancel(…)`` and ``handle.cancel()`` are for programs, and write none.

    >>> import asyncio
    >>> from onthedot import App
    >>> app = App("shop", store="memory://")
    >>> @app.task
    ... async def send(to: str) -> None: ...
    >>> async def main() -> None:
    ...     handle = await send.enqueue("ann")
    ...     await app.operations.pause("send", reason="mail server is down")
    ...     print((await app.operations.get(handle.uuid)).state, await app.operations.cancel(handle.uuid))
    >>> asyncio.run(main())
    ready 1
    """

    def __init__(
        self,
        portal: Portal,
        outbox_portal: Callable[[], Portal],
        actor: Actor | None = None,
        reason: str | None = None,
    ) -> None:
        self._portal = portal
        self._outbox_portal = outbox_portal
        self._actor = actor
        self._reason = reason
        self.outbox: AppOutbox = AppOutbox(outbox_portal, actor, reason)

    def _acting(self, client: StoreClient) -> Operations:
        return client.operations if self._actor is None else client.operations.acting_as(self._actor, self._reason)

    def acting_as(self, user: str, reason: str | None = None) -> AppOperations:
        """Returns the same operations, with another name in the audit log than that of the system's user.

        Args:
            user: The person or program that changes something.
            reason: Why, for all changes; None: what a change is given.
        """
        return AppOperations(self._portal, self._outbox_portal, Actor(user), reason)

    def flow(self, uuid: str) -> AsyncFlowHandle[Any]:
        """Returns the handle of a flow; its result is made of plain values. Also ``app.aflow(uuid)``.

        Args:
            uuid: The id of the flow.
        """
        return AsyncFlowHandle(self._portal, uuid, decode_untyped_result, added=False)

    async def get(self, uuid: str) -> TaskInfo:
        """Returns a task, with its result if it has one. Raises TaskNotFound.

        Args:
            uuid: The whole id of the task.
        """
        return await self._portal.run(lambda client: client.operations.get(uuid))

    async def find(self, **where: Unpack[TaskFilter]) -> TaskPage:
        """Returns a page of tasks, newest first, or in the order of the state: ``find(state="failed", limit=10)``.

        Args:
            where: See `TaskFilter`.
        """
        return await self._portal.run(lambda client: client.operations.find(**where))

    async def explain(self, uuid: str) -> Explanation:
        """Returns why a task is not running, and when it may, by the rules of the claim.

        Args:
            uuid: The id of the task.
        """
        return await self._portal.run(lambda client: client.operations.explain(uuid))

    async def failures(self, since: datetime | None = None, source: str | None = None) -> list[FailureGroup]:
        """Returns failed tasks, grouped by error, the most frequent first.

        Args:
            since: Only those that ended later.
            source: Only those of this source.
        """
        return await self._portal.run(lambda client: client.operations.failures(since, source))

    async def sources(self) -> list[SourceInfo]:
        """Returns every source with its numbers of tasks, limits, pauses and workers."""
        return await self._portal.run(lambda client: client.operations.sources())

    async def series(
        self,
        *names: str,
        source: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        step: int | None = None,
    ) -> SeriesData:
        """Returns what all workers did over time, as charts show it.

        Args:
            names: What is wanted, as in "done", "failed", "latency_p95" or "depth".
            source: Only of this source.
            since: The beginning; by default an hour before the end.
            until: The end; by default now.
            step: Seconds between two points: 60, 600 or 3600; by default the smallest that covers the span.
        """
        return await self._portal.run(lambda client: client.operations.series(names, source, since, until, step))

    async def workers(self) -> list[WorkerInfo]:
        """Returns the live workers, the oldest first, with their numbers of running tasks."""
        return await self._portal.run(lambda client: client.operations.workers())

    async def retry(self, *uuids: str) -> list[str]:
        """Runs failed or cancelled tasks again. Returns the uuids of those that are alive now.

        Args:
            uuids: The ids of the tasks.
        """
        return list(await self._portal.run(lambda client: self._acting(client).retry(*uuids)))

    async def cancel(self, *uuids: str, reason: str = "cancelled") -> int:
        """Cancels tasks: pending ones end at once, running ones are asked to. Returns how many were alive.

        Args:
            uuids: The ids of the tasks.
            reason: Kept with the tasks.
        """
        return await self._portal.run(lambda client: self._acting(client).cancel(*uuids, reason=reason))

    async def signal(
        self,
        name: str,
        payload: object = None,
        *,
        id: str | None = None,  # noqa: A002 - as senders know it
        keep: Duration = KEEP,
    ) -> bool:
        """Sends a signal to every task that waits under the name, now or later. False: its id is kept already.

        Args:
            name: Name of the signal.
            payload: A value that the waiting task gets.
            id: Makes a repeat harmless: the first payload per name and id is kept.
            keep: How long it is kept, for tasks that wait later; at least 24 hours.
        """
        signal = new_signal(name, payload, id, keep)
        return await self._portal.run(lambda client: self._acting(client).signals.send(signal))

    async def pause(self, source: str, key: str | None = None, reason: str = "") -> None:
        """Starts no more tasks of a source until `resume`; running tasks go on.

        Args:
            source: The name of the source.
            key: Only the tasks of this key of its lane.
            reason: Shown to others who look.
        """
        await self._portal.run(lambda client: self._acting(client).pause(source, key, reason))

    async def resume(self, source: str, key: str | None = None) -> None:
        """Ends a pause.

        Args:
            source: The name of the source.
            key: The key that was paused.
        """
        await self._portal.run(lambda client: self._acting(client).resume(source, key))

    async def freeze(self, source: str) -> bool:
        """Accepts no new tasks of a source; existing ones run. Returns whether it was frozen before.

        Within one second every process that adds one gets `SourceFrozen`, and the agent behind ``agent.NAME`` receives
        no more events. Running tasks and schedules may still add tasks of it.

        Args:
            source: The name of the source.
        """
        return await self._portal.run(lambda client: self._acting(client).freeze(source))

    async def thaw(self, source: str) -> bool:
        """Accepts tasks again. Returns whether the source was frozen.

        Args:
            source: The name of the source.
        """
        return await self._portal.run(lambda client: self._acting(client).thaw(source))

    async def drain(self, source: str, timeout: float | None = None, *, outbox: bool = False) -> None:
        """Freezes a source, then waits until none of its tasks is pending, waiting or running.

        Args:
            source: The name of the source.
            timeout: Seconds to wait, then TimeoutError; the source stays frozen. None: without a limit.
            outbox: Also waits until no event is unsent.
        """
        await self._portal.run(lambda client: self._acting(client).drain(source, timeout, outbox=outbox), waits=True)

    async def limits(self) -> Sequence[LimitInfo]:
        """Returns the limits in force, by name."""
        return await self._portal.run(lambda client: client.operations.limits.list())

    async def set_limit(self, name: str, key: str | None = None, **change: Unpack[LimitChange]) -> LimitInfo:
        """Changes a limit for all processes at once, before what code says.

        Args:
            name: A source, or a lane that sources share, such as ``"@openai"``.
            key: Only this key of it.
            change: See `LimitChange`.
        """
        return await self._portal.run(lambda client: self._acting(client).limits.set(name, key, **change))

    async def purge(self, limit: int = 10_000) -> int:
        """Deletes tasks that are past their retention; workers do this by themselves. Returns how many.

        Args:
            limit: How many at most.
        """
        return await self._portal.run(lambda client: client.operations.purge(limit))


class SyncOperations:
    """`AppOperations` for sync code: ``app.sync.operations.get(uuid)``, in short ``app.sync.get(uuid)``."""

    def __init__(
        self,
        portal: Portal,
        schedules: SyncSchedules,
        batch_setup: BatchSetup,
        events: EventVerbs,
        actor: Actor | None = None,
        reason: str | None = None,
    ) -> None:
        self._portal = portal
        self._events = events
        self._actor = actor
        self._reason = reason
        self.outbox: SyncAppOutbox = SyncAppOutbox(lambda: events.portal, actor, reason)
        self._batch_setup: BatchSetup = batch_setup
        self.schedules = schedules
        self.batches: SyncBatches = SyncBatches(portal)

    @property
    def operations(self) -> SyncOperations:
        """The same for operators: each change has an entry in the audit log."""
        return self.acting_as(system_user())

    def acting_as(self, user: str, reason: str | None = None) -> SyncOperations:
        return SyncOperations(self._portal, self.schedules, self._batch_setup, self._events, Actor(user), reason)

    def _acting(self, client: StoreClient) -> Operations:
        return client.operations if self._actor is None else client.operations.acting_as(self._actor, self._reason)

    def batch(self, task: Enqueuer[..., list[T]], **arguments: Unpack[BatchArguments]) -> SyncBatch[T]:
        prepared = self._batch_setup.prepare(task, arguments)
        added = self._portal.run_sync(lambda client: add_batch(client, prepared))
        return SyncBatch(self._batch_setup.reader(added.uuid), added.fresh)

    def publish(self, event: Event[Any], *more: Event[Any], connection: object = None) -> list[str]:
        return self._events.publish_sync((event, *more), connection)

    def expect(
        self,
        expected: Expected,
        *,
        correlation_id: str,
        timeout: Duration,
        wakes: str | None = None,
        connection: object = None,
    ) -> SyncResumeHandle:
        return self._events.expect_sync(expected, correlation_id, timeout, wakes, connection)

    def resume_handle(self, correlation_id: str) -> SyncResumeHandle:
        return self._events.sync_handle(correlation_id)

    def batch_handle(self, id: str) -> SyncBatch[Any]:  # noqa: A002 - as `SyncBatch.id`
        return SyncBatch(self._batch_setup.reader(id))

    def flow(self, uuid: str) -> FlowHandle[Any]:
        return FlowHandle(self._portal, uuid, decode_untyped_result, added=False)

    def get(self, uuid: str) -> TaskInfo:
        return self._portal.run_sync(lambda client: client.operations.get(uuid))

    def find(self, **where: Unpack[TaskFilter]) -> TaskPage:
        return self._portal.run_sync(lambda client: client.operations.find(**where))

    def explain(self, uuid: str) -> Explanation:
        return self._portal.run_sync(lambda client: client.operations.explain(uuid))

    def failures(self, since: datetime | None = None, source: str | None = None) -> list[FailureGroup]:
        return self._portal.run_sync(lambda client: client.operations.failures(since, source))

    def sources(self) -> list[SourceInfo]:
        return self._portal.run_sync(lambda client: client.operations.sources())

    def series(
        self,
        *names: str,
        source: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        step: int | None = None,
    ) -> SeriesData:
        return self._portal.run_sync(lambda client: client.operations.series(names, source, since, until, step))

    def workers(self) -> list[WorkerInfo]:
        return self._portal.run_sync(lambda client: client.operations.workers())

    def retry(self, *uuids: str) -> list[str]:
        return list(self._portal.run_sync(lambda client: self._acting(client).retry(*uuids)))

    def cancel(self, *uuids: str, reason: str = "cancelled") -> int:
        return self._portal.run_sync(lambda client: self._acting(client).cancel(*uuids, reason=reason))

    def signal(
        self,
        name: str,
        payload: object = None,
        *,
        id: str | None = None,  # noqa: A002 - as senders know it
        keep: Duration = KEEP,
    ) -> bool:
        signal = new_signal(name, payload, id, keep)
        return self._portal.run_sync(lambda client: self._acting(client).signals.send(signal))

    def pause(self, source: str, key: str | None = None, reason: str = "") -> None:
        self._portal.run_sync(lambda client: self._acting(client).pause(source, key, reason))

    def resume(self, source: str, key: str | None = None) -> None:
        self._portal.run_sync(lambda client: self._acting(client).resume(source, key))

    def freeze(self, source: str) -> bool:
        return self._portal.run_sync(lambda client: self._acting(client).freeze(source))

    def thaw(self, source: str) -> bool:
        return self._portal.run_sync(lambda client: self._acting(client).thaw(source))

    def drain(self, source: str, timeout: float | None = None, *, outbox: bool = False) -> None:
        self._portal.run_sync(lambda client: self._acting(client).drain(source, timeout, outbox=outbox), waits=True)

    def limits(self) -> Sequence[LimitInfo]:
        return self._portal.run_sync(lambda client: client.operations.limits.list())

    def set_limit(self, name: str, key: str | None = None, **change: Unpack[LimitChange]) -> LimitInfo:
        return self._portal.run_sync(lambda client: self._acting(client).limits.set(name, key, **change))

    def purge(self, limit: int = 10_000) -> int:
        return self._portal.run_sync(lambda client: client.operations.purge(limit))
