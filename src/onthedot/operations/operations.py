"""The verbs of an operator, over the store contract alone: no user code is needed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, tzinfo
from typing import Unpack

from onthedot.clock.epoch import to_ms
from onthedot.clock.protocol import Clock
from onthedot.clock.system import SystemClock
from onthedot.errors import StoreError
from onthedot.model.batch_names import batch_task
from onthedot.model.failures import decode_moved_to, encode_reason
from onthedot.model.figures import Figures
from onthedot.model.flow_names import MEMBER_KEEP
from onthedot.model.stored_keys import stored_text
from onthedot.model.streams import parse_cursor
from onthedot.model.task import TaskInfo, possible_uuids
from onthedot.model.task_info import decode_body, public_state
from onthedot.model.traces import parse_parent
from onthedot.model.uuid7 import new_uuid
from onthedot.observability.events import Observer
from onthedot.operations.agents import AgentInfo, agent_infos
from onthedot.operations.argument_checks import check_limit
from onthedot.operations.attention import Attention, AttentionItem
from onthedot.operations.audit import Actor, AuditOperations, ChangeNote, Recorded, Recorder, list_names
from onthedot.operations.batches import BatchDetails, BatchOperations
from onthedot.operations.bulk_actions import BulkActions
from onthedot.operations.change_feed import ChangeFeed
from onthedot.operations.children import effects_of_cancel, parent_of
from onthedot.operations.explain import Explanation, explain
from onthedot.operations.failure_counts import FailureCounts
from onthedot.operations.failures import FailureGroup, group_failures
from onthedot.operations.fleet_metrics import FleetMetrics
from onthedot.operations.flow_list import ALL_FLOWS, FlowDetails, FlowFilter, FlowInfo, flow_details, list_flows
from onthedot.operations.flows import FlowOperations
from onthedot.operations.health import server_info
from onthedot.operations.limits import CodeDefinitions, LimitOperations
from onthedot.operations.live_view import LiveView
from onthedot.operations.modes import Count, ModeOperations
from onthedot.operations.oldest_ready import OldestReady, read_oldest_ready
from onthedot.operations.outbox import OutboxOperations
from onthedot.operations.releases import ReleaseInfo, read_releases
from onthedot.operations.run_times import recent_durations
from onthedot.operations.schedules import ScheduleOperations
from onthedot.operations.series import SeriesData, read_series
from onthedot.operations.signals import SignalOperations
from onthedot.operations.source_hours import SourceHour, read_source_hours
from onthedot.operations.sources import SourceInfo, source_infos
from onthedot.operations.store_state import StoreState, read_store_state
from onthedot.operations.streams import StreamSlice, item_reader, read_after, read_stream
from onthedot.operations.task_queries import BATCH, TaskFilter, TaskPage, TaskQueries
from onthedot.operations.timeline import TimelineSegment
from onthedot.operations.timeline_facts import read_timeline
from onthedot.operations.waits import StepInfo, step_infos
from onthedot.operations.worker_tasks import read_workers, tasks_of_worker
from onthedot.operations.workers import WorkerInfo, live_workers, unreadable_sessions
from onthedot.stores.capabilities import Repairable, ServerInfo, find_capability
from onthedot.stores.contract import NOT_STARTED, Effects, Ended, Lease, NewTask, Record, Store

NO_CODE = CodeDefinitions()
_READY_HEAD = 10  # tasks of all sources that are read at once for their ages


class Operations(Recorded):
    """The operations on the tasks of one app in one store.

    `tasks` finds tasks; `flows`, `batches`, `limits`, `modes`, `schedules` and `outbox` read and change these;
    `signals` sends signals; `audit` has who changed what; `feed` follows changes.

    Changes are those of a program, as `handle.cancel()` makes them, unless somebody acts: `acting_as`.
    """

    def __init__(
        self,
        store: Store,
        client: str,
        clock: Clock | None = None,
        code: CodeDefinitions = NO_CODE,
        observer: Observer | None = None,
    ) -> None:
        self._store = store
        self._client = client
        self.clock: Clock = clock or SystemClock()
        self._code = code
        self.tasks: TaskQueries = TaskQueries(store, code.result_decoder)
        self.flows: FlowOperations = FlowOperations(store, self.tasks, self._cancel_found)
        self.modes: ModeOperations = ModeOperations(store, self.clock)
        self.batches: BatchOperations = BatchOperations(store, self.tasks, self.flows, self.modes)
        self.limits: LimitOperations = LimitOperations(store, self.clock, code)
        self.signals: SignalOperations = SignalOperations(store)
        self.outbox: OutboxOperations = OutboxOperations(store, self.clock)
        self.audit: AuditOperations = AuditOperations(store, self.clock)
        self.bulk_actions: BulkActions = BulkActions(
            self.tasks, self.audit, lambda uuids, reason: self.cancel(*uuids, reason=reason), self._count_retried
        )
        self.schedules: ScheduleOperations = ScheduleOperations(store, client, self.clock, observer, code.schedules)
        self.failure_counts: FailureCounts = FailureCounts(store, self.clock)
        self._attention = Attention(store, self.failure_counts)
        self.feed: ChangeFeed = ChangeFeed(store, self.tasks, self.audit, self.clock)

    def acting_as(self, actor: Actor, reason: str | None = None) -> Operations:
        """Return the same operations, in the name of an operator: each change has an entry in the audit log.

        reason: of every change; None: what its method is given. A change without an entry is refused; see `audit`.
        """
        recorder = Recorder(self.audit, actor, reason)
        acting = self.recorded_by(recorder)
        for name, group in vars(self).items():
            if isinstance(group, Recorded):
                setattr(acting, name, group.recorded_by(recorder))
        return acting

    def recorded(self, action: str, target: str, reason: str = "") -> AbstractAsyncContextManager[ChangeNote]:
        """The block is a change that others make, such as an add by the HTTP API. It is in the audit log."""
        return self._recorder.change(action, target, reason)

    # -- tasks

    async def get(self, uuid: str) -> TaskInfo:
        """Return a task by its whole uuid. `tasks.complete_uuid` finds it by the first characters."""
        return await self.tasks.get(uuid)

    async def find(self, **where: Unpack[TaskFilter]) -> TaskPage:
        """Return a page of tasks, in the order of `Inspect.find`."""
        return await self.tasks.find(**where)

    async def explain(self, uuid: str, zone: tzinfo | None = UTC) -> Explanation:
        """Explain why a task is not running, by the rules of the claim.

        zone: of the times in texts; None: local time.
        """
        return await explain(self._store, await self.tasks.record(uuid), self.clock.now(), zone)

    async def timeline(self, uuid: str) -> list[TimelineSegment]:
        """Return the recorded parts of a task's life, with the pauses that held it back."""
        return await read_timeline(self._store, self.audit, await self.tasks.record(uuid), await self.get(uuid))

    async def trace_id(self, uuid: str) -> str | None:
        """Return the trace of the code that added a task; None: it had none."""
        _, headers = decode_body(await self.tasks.record(uuid))
        parent = parse_parent(headers.trace)
        return None if parent is None else parent.trace_id

    async def steps(self, uuid: str) -> list[StepInfo]:
        """Return the saved steps of a task, oldest first."""
        return await step_infos(self._store, uuid)

    async def parent(self, uuid: str) -> TaskInfo | None:
        """Return the task that has run this one as a child, alone or in a flow; None: no kept task has."""
        parent = await parent_of(self._store, uuid)
        if parent is None:
            return None
        (record,) = await self._store.get([parent])
        return None if record is None else await self.tasks.get(parent)

    async def streamed(self, uuid: str) -> int:
        """Return how many items of a stream are saved; 0 for any other task."""
        return (await read_stream(item_reader(self._store, uuid))).length

    async def stream_after(self, uuid: str, after: str, limit: int) -> StreamSlice:
        """Return the next items of a stream, or parts of a batch, after a cursor; "": from the first one."""
        return await read_after(item_reader(self._store, uuid), parse_cursor(after), limit)

    async def failures(self, since: datetime | None = None, source: str | None = None) -> list[FailureGroup]:
        """Return failed tasks grouped by error, the most frequent first; the newest 100,000 are counted.

        `failure_counts` counts them in the background.
        """
        return await group_failures(self._store, int(self.clock.now()), since, source)

    async def cancel(self, *uuids: str, reason: str = "cancelled") -> int:
        """End pending tasks at once and ask workers to cancel running ones. Return how many were alive.

        The child that a task waits for is cancelled after it, by a worker.
        """
        async with self._recorder.change("cancel", list_names(uuids), reason) as note:
            note.found = len(uuids)
            note.changed = await self._cancel(uuids, reason)
        return note.changed

    async def _cancel(self, uuids: Sequence[str], reason: str, *, with_children: bool = True) -> int:
        uuids = possible_uuids(uuids)
        found = await self._store.get(uuids)
        living = {record.uuid: record for record in found if record is not None and record.history.ended is None}
        await self._cancel_known(uuids, living, reason, with_children=with_children)
        return len(living)

    async def _cancel_found(self, living: Sequence[Record], reason: str) -> Collection[str]:
        known = {record.uuid: record for record in living}
        return await self._cancel_known(list(known), known, reason)

    async def _cancel_known(
        self, uuids: Sequence[str], known: Mapping[str, Record], reason: str, *, with_children: bool = True
    ) -> Collection[str]:
        """known: those that lived, as they were read. Return the uuids of those that have ended by the cancel."""
        reason = stored_text(reason)
        leased = await self._store.cancel(self._client, uuids, reason)
        if not leased.tasks:
            return ()
        effects: Mapping[str, Effects] = {}
        if with_children:
            effects = await effects_of_cancel(self._store, leased.tasks, known, new_uuid)
        error = encode_reason(reason)
        outcomes = [
            Ended(
                Lease(record.uuid, leased.fence, self._client),
                "cancelled",
                error,
                self._keep(record),
                effects.get(record.uuid),
            )
            for record in leased.tasks
        ]
        turn = await self._store.turn(self._client, outcomes, None)
        verdicts = zip(leased.tasks, turn.verdicts, strict=True)
        return {record.uuid for record, verdict in verdicts if verdict != "lost"}

    def _keep(self, record: Record) -> int:
        keep = self._code.keep(record.source)
        if record.links is None:
            return keep
        return max(keep, MEMBER_KEEP)

    async def retry(self, *uuids: str) -> Sequence[str]:
        """Run failed and cancelled tasks again, under their uuids. Return those that are alive now.

        Tasks of a flow that were cancelled because of these, and of no others, run again after them; so do the parts of
        a batch that did not succeed. A task that was moved to another store is left out: it would run in both.
        """
        async with self._recorder.change("retry", list_names(uuids)) as note:
            note.found = len(uuids)
            living = await self._retry(uuids)
            note.changed = len(living)
        return living

    async def _retry(self, uuids: Sequence[str]) -> Sequence[str]:
        uuids = possible_uuids(uuids)
        found = [record for record in await self._store.get(uuids) if record is not None]
        moved = {record.uuid for record in found if decode_moved_to(record)}
        for record in found:
            is_over = record.state in ("failed", "cancelled") and record.uuid not in moved
            if is_over and batch_task(record.source) is not None:
                await self.flows.retry_parts(record.uuid)
        living = await self._store.revive([uuid for uuid in uuids if uuid not in moved])
        members = [record for record in found if record.links is not None and record.uuid in living]
        if members:
            await self.flows.retry_dependants(members)
        return living

    async def _count_retried(self, uuids: Sequence[str]) -> int:
        return len(await self.retry(*uuids))

    async def pending(self) -> list[NewTask]:
        """Return all pending and waiting tasks, ready to be added to another store."""
        return [
            NewTask(
                uuid=record.uuid,
                source=record.source,
                body=record.body,
                at=record.due,
                lane=record.lane,
                unique=record.unique,
                policy=record.policy,
                links=record.links,
            )
            for state in NOT_STARTED
            async for record in self.tasks.records({"state": state})
        ]

    async def cancel_pending(self, reason: str) -> int:
        """Cancel all pending and waiting tasks of a store that is to be closed for good. Return how many there were."""
        counts = await self.counts()
        if not any(counts.get(public_state(state).value) for state in NOT_STARTED):
            return 0
        cancelled = 0
        for state in NOT_STARTED:
            uuids = [record.uuid async for record in self.tasks.records({"state": state})]
            for start in range(0, len(uuids), BATCH):
                cancelled += await self._cancel(uuids[start : start + BATCH], reason, with_children=False)
                await asyncio.sleep(0)
        return cancelled

    async def purge(self, limit: int = 10_000) -> int:
        """Delete tasks whose retention is over; workers do this by themselves."""
        return await self._store.purge(check_limit("purge", limit), self._code.most_kept)

    # -- flows

    async def list_flows(self, limit: int, wanted: FlowFilter = ALL_FLOWS) -> list[FlowInfo]:
        """Return the newest flows that match."""
        return await list_flows(self._store, self.flows, limit, wanted)

    async def flow_details(self, uuid: str, zone: tzinfo | None = UTC) -> FlowDetails:
        """Return a flow in full. zone: of the times in texts; None: local time."""
        return await flow_details(self._store, self.flows, await self.tasks.record(uuid), self.clock.now(), zone)

    async def batch_details(self, batch: str, zone: tzinfo | None = UTC) -> BatchDetails:
        """Return a batch in full. zone: of the times in texts; None: local time."""
        return await self.batches.details(batch, self.clock.now(), zone)

    # -- sources

    async def sources(self, *, run_times: bool = False) -> list[SourceInfo]:
        """Return every source with its tasks by state, its limits and pauses, and the number of its workers.

        run_times: also how long its runs take, for which tasks that have ended are read.
        """
        tally = await self._store.tally()  # not at once: synchronous callers of a memory store have no event loop
        durations = await recent_durations(self._store, tally) if run_times else {}
        return source_infos(tally, await self._store.limits(), await live_workers(self._store), durations)

    async def oldest_ready(self, sources: Sequence[str]) -> OldestReady:
        """Return how long ago the task that runs next was due, of all and of each of these sources with ready tasks."""
        return await read_oldest_ready(self._store, sources, self.clock.now(), _READY_HEAD)

    async def attention(self, state: StoreState | None = None) -> list[AttentionItem]:
        """Return the conditions that an operator should act on, the worst first; a store that fails is one.

        state: of the store, as it was read a moment ago; None: it is read.
        """
        try:
            state = state or await read_store_state(self._store)
            schedules = self.schedules.list(state.workers)
            return await self._attention.items(self.clock.now(), state, schedules, self.outbox.find_status(state))
        except StoreError as error:
            return [AttentionItem("store", "error", str(error))]

    async def agents(self) -> list[AgentInfo]:
        """Return the agents that have tasks, a group or a worker, with what they did in the last hour."""
        status = await self.outbox.find_status()
        groups = () if status is None else status.groups
        return await agent_infos(await self.sources(), await self.live_workers(), groups, self.series)

    async def pause(self, source: str, key: str | None = None, reason: str = "") -> bool:
        """Start no more tasks of a source, or of one key of it; running ones go on. Return if it was paused before."""
        return await self.limits.pause(source, key, reason)

    async def resume(self, source: str, key: str | None = None) -> bool:
        """End a pause. Return if it was paused before."""
        return await self.limits.resume(source, key)

    async def freeze(self, source: str) -> bool:
        """Accept no new tasks of a source; existing ones run. Return whether it was frozen before."""
        return await self.modes.freeze(source)

    async def thaw(self, source: str) -> bool:
        """Accept tasks again. Return whether the source was frozen."""
        return await self.modes.thaw(source)

    async def drain(
        self, source: str, timeout: float | None = None, *, outbox: bool = False, lag: Count | None = None
    ) -> None:
        """Freeze a source, then wait until all its tasks have ended. Raises TimeoutError; it stays frozen.

        outbox: also until no event is unsent. lag: of an agent on the bus; it is frozen when there is none.
        """

        async def unsent() -> int:
            return (await self.outbox.status()).pending if outbox else 0

        await self.modes.drain(source, timeout, unsent, lag)

    async def counts(self) -> dict[str, int]:
        """Return the number of tasks by state."""
        counts: Counter[str] = Counter()
        for by_state in (await self.by_source()).values():
            counts.update(by_state)
        return dict(counts)

    async def by_source(self) -> dict[str, dict[str, int]]:
        """Return the number of tasks by source and state; parked tasks count as ready."""
        sources: dict[str, Counter[str]] = {}
        for (source, state), count in (await self._store.tally()).items():
            sources.setdefault(source, Counter())[public_state(state).value] += count
        return {source: dict(counts) for source, counts in sources.items()}

    async def series(
        self,
        names: Sequence[str],
        source: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        step: int | None = None,
    ) -> SeriesData:
        """Return what all workers did over time, for charts.

        names: of `SERIES_NAMES`, as in "done", "latency_p95", "depth"; source: only this one; since, until: by default
        the last hour; step: 60, 600 or 3600 seconds, by default the smallest one that covers the span.
        """
        return await read_series(self._store, self.clock, names, source, since, until, step)

    async def source_hours(self) -> Mapping[str, SourceHour]:
        """Return what all workers did with each source in the last hour."""
        return await read_source_hours(self._store, int(self.clock.now()))

    async def releases(self, since: datetime) -> list[ReleaseInfo]:
        """Return the code releases that a worker ran first since then, the oldest first."""
        return await read_releases(self._store, to_ms(since), int(self.clock.now()))

    async def metrics(self, max_sources: int) -> Figures:
        """Return the figures of all workers together. max_sources: that are kept apart; the others are one."""
        return await FleetMetrics(self._store, self._store, self.clock, max_sources).read()

    # -- workers and server

    async def workers(self, *, with_dead: bool = False) -> list[WorkerInfo]:
        """Return the live workers, the oldest first, with the tasks that each runs and what it has written of itself.

        with_dead: then those that died in the last ten minutes, the last one first.
        """
        return await read_workers(self._store, self.tasks, self.clock.now(), with_dead=with_dead)

    async def tasks_of_worker(self, session: str, limit: int) -> list[TaskInfo]:
        """Return the tasks that a worker runs, those that have been running longest first."""
        return await tasks_of_worker(self.tasks, session, limit)

    async def live_workers(self) -> list[WorkerInfo]:
        """Return the live workers without the number of their tasks, which costs a query."""
        return await live_workers(self._store)

    async def unreadable_sessions(self) -> list[str]:
        """Return the live sessions whose description of themselves cannot be read."""
        return await unreadable_sessions(self._store)

    async def unplaced(self, *, requeue: bool = False) -> Sequence[str]:
        """Return tasks that no worker can find, as an aborted script leaves them; requeue: put them back."""
        store = find_capability(self._store, Repairable)
        if store is None:
            return ()
        return await store.unplaced(requeue=requeue)

    async def set_aside(self) -> Sequence[bytes]:
        """Return the bytes of records whose uuid cannot be read."""
        store = find_capability(self._store, Repairable)
        if store is None:
            return ()
        return await store.set_aside()

    async def server(self) -> ServerInfo | None:
        """Return facts about the store's server; None if the store is part of this process."""
        return await server_info(self._store)

    def watch(self, *, always_counts: bool = False) -> LiveView:
        """Return a view whose `look` returns one snapshot after the other. always_counts: see `LiveView`."""
        return LiveView(self.feed, self._store, self.clock, always_counts=always_counts)
