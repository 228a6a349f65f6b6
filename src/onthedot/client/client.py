"""One event loop's access to the store: it adds tasks and waits for their ends."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from onthedot.client.add_batcher import AddBatcher
from onthedot.client.lane_router import LaneRouter
from onthedot.client.pending_gate import PendingGate, PendingLimits
from onthedot.client.result_waiter import ResultWaiter
from onthedot.client.status_counts import StatusCounts
from onthedot.client.stream_reader import StreamReader
from onthedot.clock.protocol import Clock
from onthedot.codec.body import Undecodable
from onthedot.codec.untyped import decode_untyped
from onthedot.errors import StoreError
from onthedot.model.traces import SendSpan, TaskTracer, with_trace
from onthedot.observability.events import Observer
from onthedot.operations import Operations
from onthedot.operations.limits import CodeDefinitions
from onthedot.operations.streams import with_items
from onthedot.stores.capabilities import Outbox, capability
from onthedot.stores.contract import BATCH, Added, NewEvent, NewTask, Record, Store


@dataclass(frozen=True)
class ClientConfig:
    """The settings and services that all clients of an app share.

    client: the name by which the store knows this process when it only adds and reads
    code: what this process's code defines, for operations
    tracer: makes a span per add
    """

    client: str
    observer: Observer
    clock: Clock
    counts: StatusCounts
    code: CodeDefinitions
    pending_limits: PendingLimits
    tracer: TaskTracer | None = None


class StoreClient:
    """The store, as one event loop uses it. Its jobs are objects: batcher, gate, router, waiter and operations."""

    def __init__(self, store: Store, config: ClientConfig) -> None:
        self.store = store
        self.operations: Operations = Operations(store, config.client, config.clock, config.code, config.observer)
        self.lane_router: LaneRouter = LaneRouter(store, config.clock)
        self.results: ResultWaiter = ResultWaiter(store, config.client, config.observer)
        self._modes = self.operations.modes.recent
        self._observer = config.observer
        self._tracer = config.tracer
        self._counts = config.counts
        self._is_counted = not store.traits.synchronous  # such a store is read at once instead
        self._pending_limits = config.pending_limits
        self._pending_gate = PendingGate(store, config.pending_limits)
        self._batcher = AddBatcher(store)
        self._counting: asyncio.Task[None] | None = None

    async def open(self) -> None:
        await self.store.open()
        if self._counts.watched and self._is_counted:
            try:
                await self.watch()
            except BaseException:
                await self.store.close()
                raise

    async def watch(self) -> None:
        """Keeps the counts of ``status()`` up to date from now on."""
        await self._counts.count_now(self.store)  # first: later adds are counted on top of it
        if self._counting is None:
            self._counting = asyncio.create_task(self._counts.run(self.store))

    async def ready(self) -> None:
        """Returns when a client is open, which the caller of this method has seen to."""

    async def close(self) -> None:
        counting = self._counting
        self._counting = None
        if counting is not None:
            counting.cancel()
            await asyncio.wait([counting])
        await self.results.close()
        await self.operations.bulk_actions.close()
        await self.operations.failure_counts.close()
        self._observer.flush()
        await self.store.close()

    async def add(self, task: NewTask, *, remote: bool = False) -> Added:
        """Stores one task. remote: it was made without its code, so its lane is looked up."""
        if remote:
            (task,) = await self.lane_router.route((task,))
        (added,) = await self._add((task,))
        if added.fresh:
            self._observer.tasks_added((task,))
        else:
            await self._compare((task,), (added,))
        return added

    async def add_many(
        self, tasks: Sequence[NewTask], remote: Collection[str] = (), most: int = BATCH
    ) -> Sequence[Added]:
        """Stores tasks; they are stored when this returns.

        remote: sources whose code is elsewhere
        most: so many are stored together, all or none; ≤ MAX_ADD
        """
        if remote:
            tasks = await self._routed(tasks, remote)
        answers = await self._add(tasks, most)
        fresh = [task for task, added in zip(tasks, answers, strict=True) if added.fresh]
        if len(fresh) < len(tasks):
            await self._compare(tasks, answers)
        self._observer.tasks_added(fresh)
        return answers

    async def prepare(self, tasks: Sequence[NewTask], *, remote: bool) -> Sequence[NewTask]:
        """Makes tasks ready for an add inside the caller's transaction, which is traced as any add."""
        return with_trace(await self.route(tasks, remote=remote), self._tracer)

    async def route(self, tasks: Sequence[NewTask], *, remote: bool) -> Sequence[NewTask]:
        """Refuses tasks of frozen sources, and finds lanes. remote: the code of the tasks is elsewhere."""
        await self._modes.check(tasks)
        return await self.lane_router.route(tasks) if remote else tasks

    async def _routed(self, tasks: Sequence[NewTask], remote: Collection[str]) -> list[NewTask]:
        routed = iter(await self.lane_router.route([task for task in tasks if task.source in remote]))
        return [next(routed) if task.source in remote else task for task in tasks]

    def _add(self, tasks: Sequence[NewTask], most: int = BATCH) -> Coroutine[Any, Any, Sequence[Added]]:
        if self._tracer is not None:
            return self._add_traced(self._tracer.begin_send(tasks), most)
        return self._add_any(tasks, most)

    async def _add_traced(self, span: SendSpan, most: int) -> Sequence[Added]:
        try:
            answers = await self._add_any(span.tasks, most)
        except BaseException as error:
            span.end(error)
            raise
        span.end()
        return answers

    def _add_any(self, tasks: Sequence[NewTask], most: int) -> Coroutine[Any, Any, Sequence[Added]]:
        if self._modes.accept_all():
            return self._add_accepted(tasks, most)
        return self._add_checked(tasks, most)

    async def _add_checked(self, tasks: Sequence[NewTask], most: int) -> Sequence[Added]:
        """Refuses tasks of frozen sources; once per second this reads which ones are."""
        await self._modes.check(tasks)
        return await self._add_accepted(tasks, most)

    def _add_accepted(self, tasks: Sequence[NewTask], most: int) -> Coroutine[Any, Any, Sequence[Added]]:
        limits = self._pending_limits
        if limits.by_source or limits.for_all:
            return self._add_limited(tasks, most)
        if self._counts.watched and self._is_counted:
            return self._add_counted(tasks, most)
        return self._batcher.add(tasks, most)

    async def _add_limited(self, tasks: Sequence[NewTask], most: int) -> Sequence[Added]:
        coming = await self._pending_gate.reserve(tasks)
        try:
            if self._counts.watched and self._is_counted:
                return await self._add_counted(tasks, most)
            return await self._batcher.add(tasks, most)
        finally:
            self._pending_gate.release(coming)

    async def _add_counted(self, tasks: Sequence[NewTask], most: int) -> Sequence[Added]:
        """Counts the tasks, so that ``status()`` need not wait for the store."""
        answers: Sequence[Added] = ()
        self._counts.add_started()
        try:
            answers = await self._batcher.add(tasks, most)
        finally:
            self._counts.add_finished(tasks, answers)
        return answers

    async def publish(self, events: Sequence[NewEvent], verb: str) -> Sequence[bool]:
        """Stores events; False: its id is kept already. verb: the call, for an error of a store without an outbox."""
        outbox = capability(self.store, Outbox, verb)
        answers = await outbox.publish(events)
        for event, fresh in zip(events, answers, strict=True):
            if not fresh:
                await self._compare_event(outbox, event)
        return answers

    async def _compare_event(self, outbox: Outbox, event: NewEvent) -> None:
        """Logs an event whose id is kept with another payload: the publish changed nothing."""
        kept = await outbox.find_events({"id": event.id}, 0, 1)
        if kept and (kept[0].event.payload, kept[0].event.type) != (event.payload, event.type):
            self._observer.event_differs(event.id, event.type)

    async def import_tasks(self, tasks: Sequence[NewTask]) -> None:
        """Stores tasks of another store, where they were accepted: whatever their number."""
        await self._batcher.add(tasks)

    async def _compare(self, tasks: Sequence[NewTask], answers: Sequence[Added]) -> None:
        """Logs a task whose uuid exists with other contents: the add changed nothing."""
        same = [task for task, added in zip(tasks, answers, strict=True) if not added.fresh and added.uuid == task.uuid]
        try:
            records = await self.store.get([task.uuid for task in same])
        except StoreError:  # the add was acknowledged, and this only informs
            return
        for task, record in zip(same, records, strict=True):
            if record is not None and (fields := _differences(task, record)):
                self._observer.task_differs(record, fields)

    def report_blocked_loop(self, uuid: str) -> None:
        """Sync code on an event loop waits for the end of this task."""
        self._observer.loop_blocked(uuid)

    async def wait_for_end(self, uuid: str, timeout: float | None) -> Record:
        """Returns the task when it has ended. TimeoutError: it has not; TaskNotFound: it is unknown or purged."""
        return await self.results.wait(uuid, timeout)

    async def read_items(self, reader: StreamReader) -> None:
        """Waits until the reader has further items of its stream, or the end."""
        await reader.fill(self.store, self.results)

    async def with_items(self, record: Record) -> Record:
        """The task with the items of its stream as its result; any other as it is."""
        return await with_items(self.store, record)


def _differences(task: NewTask, record: Record) -> list[str]:
    """The names of what differs between an add and the task that has its uuid; values may be secret."""
    if task.source != record.source:
        return ["source"]
    try:
        before = _contents(record.body)
    except Undecodable:
        return ["undecodable"]
    now = _contents(task.body)
    return [name for name in {**now, **before} if name not in now or name not in before or now[name] != before[name]]


def _contents(body: bytes) -> dict[str, object]:
    """By name: an instant is the same in every zone."""
    arguments, headers = decode_untyped(body)
    at = None if headers.at is None else datetime.fromisoformat(headers.at)
    named = {f"argument {name!r}": value for name, value in arguments.items()}
    return named | {"at": at, "label": headers.label, "metadata": headers.metadata}
