"""The subscription of an agent: records of the bus become tasks, and offsets are committed when these have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from math import inf

from onthedot.clock.protocol import Clock
from onthedot.clock.wakeup import WakeUp
from onthedot.engine.retry_delay import RetryDelay
from onthedot.errors import StoreError
from onthedot.events.agent_source import AgentSource
from onthedot.events.agent_tasks import AgentTasks
from onthedot.events.bus import BusError, Subscription, TopicPartition
from onthedot.events.bus_connection import BusConnection
from onthedot.events.component_loop import ComponentLoop
from onthedot.events.end_hints import EndHints
from onthedot.events.partition_windows import PartitionWindow
from onthedot.events.records_in_flight import RecordsInFlight
from onthedot.observability.events import Observer
from onthedot.operations.modes import MODE_AGE, RecentModes
from onthedot.stores.contract import ENDED, Added, NewTask, Record, Store

_READ = 500  # records of one read
_READ_WAIT = 1.0  # seconds that a read waits for records
_ADD = 200  # tasks of one call
_MAX_BACKLOG = 5_000  # records; above it partitions are paused before the next step
_STATUS_BATCH = 500  # open tasks that are read at once
_STATUS_INTERVAL = 1_000.0  # ms between two of these reads
_COMMIT_COUNT = 20  # ended records, or
_COMMIT_INTERVAL = 1_000.0  # ms, after which offsets are committed
_REVOKE = 2.0  # seconds that a commit may take while partitions are given away


class AgentSubscription(ComponentLoop):
    """A member of the group of one agent. Offsets move after the tasks of their records, and of all before, have ended.

    While the store cannot be reached, or the agent is frozen, partitions are paused and offsets stay. Partitions that
    are given to another member are forgotten: their tasks continue, and the other member finds them by their uuid.
    """

    feeds_worker = True

    def __init__(
        self,
        source: AgentSource,
        connection: BusConnection,
        store: Store,
        ends: EndHints,
        modes: RecentModes,
        clock: Clock,
        observer: Observer,
    ) -> None:
        super().__init__(clock, observer)
        # A memory store loses no hint; it polls all the same, since nothing hints that an agent is no longer frozen.
        # A test that turns the clock has no polls: it rechecks.
        self._polls = clock.is_system or store.traits.shared
        self._read_wait = _READ_WAIT if self._polls else inf
        self.name: str = f"agent {source.agent.id}"
        self.source = source
        self._connection = connection
        self._store = store
        self._ends = ends
        self._modes = modes
        self._tasks = AgentTasks(source, ends.session)
        self._records = RecordsInFlight(source.agent.max_in_flight, ordered=source.agent.ordered)
        self._subscription: Subscription | None = None
        self._reading: asyncio.Task[None] | None = None
        self._paused: set[TopicPartition] = set()
        self._ended: set[str] = set()  # by hints
        self._is_held = False  # nothing is accepted: the store cannot be reached, or the agent is frozen
        self._next_status_check = 0.0
        self._commit_at: float | None = None
        self._rechecks_requested = 0  # how often `recheck` has asked for a read that returns at once
        self._rechecks_answered = 0  # how many of these are answered
        self._is_waiting = False  # the reader waits for records

    @property
    def in_flight(self) -> int:
        """Records that are received and not ended."""
        return self._records.count

    async def lag(self) -> dict[TopicPartition, int]:
        """Records of its partitions that are not committed."""
        if self._subscription is None:
            return {}
        return dict(await self._subscription.lag())

    # -- lifecycle

    async def _begin(self) -> None:
        self._subscription = await self._connection.subscribe(
            self.source.group, self.source.topics, self._on_revoked, self.name
        )
        self._ends.join(self._on_ended)
        self._observer.agent_started(self.source.agent.id, self.source.topics)
        self._reading = asyncio.create_task(self._read())

    async def _finish(self) -> None:
        await self._stop_reading()
        if self._subscription is not None:
            try:
                async with asyncio.timeout(_REVOKE):
                    await self._commit(list(self._records.windows.values()))
            except Exception as error:  # noqa: BLE001 - reported; what is not committed is read again
                self._observer.bus_failed(f"committing for {self.name}", error)
            try:
                async with asyncio.timeout(_REVOKE):
                    await self._subscription.close()
            except Exception as error:  # noqa: BLE001 - reported; the group ends its membership after a time
                self._observer.bus_failed(f"leaving the group of {self.name}", error)
            await self._ends.leave(self._on_ended)

    async def _stop_reading(self) -> None:
        reading = self._reading
        self._reading = None
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])

    def recheck(self) -> None:
        self._rechecks_requested += 1
        self._next_status_check = 0.0
        self._commit_at = 0.0
        if self._is_waiting and self._reading is not None:
            self._reading.cancel()  # it loses nothing: a read that waits has taken nothing
            self._reading = asyncio.create_task(self._read())
        super().recheck()

    # -- reading

    async def _read(self) -> None:
        """Reads always, since this keeps the membership; records of paused partitions do not come."""
        assert self._subscription is not None
        delay = RetryDelay()
        report_recovered: Callable[[str], None] | None = None  # after a failure
        while True:
            requested = self._rechecks_requested
            self._is_waiting = requested == self._rechecks_answered
            try:
                records = await self._subscription.read(_READ, self._read_wait if self._is_waiting else 0)
            except Exception as error:  # noqa: BLE001 - reported, and repeated
                report_recovered = self._report_failed(f"reading for {self.name}", error)
                await WakeUp(self._clock).wait(delay.next())
                continue
            if report_recovered is not None:
                report_recovered(f"reading for {self.name}")
                report_recovered = None
                delay.reset()
            if records or requested != self._rechecks_answered:
                self._rechecks_answered = requested
                self._records.receive(records)
                if self._records.backlog > _MAX_BACKLOG:  # the store does not answer
                    self._update_paused_partitions()
                self._wakeup.set()

    async def _on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Commits what has ended. It does not wait for tasks: they continue under any owner of the partitions."""
        self._paused.difference_update(partitions)
        windows = self._records.forget(partitions)
        try:
            async with asyncio.timeout(_REVOKE):
                await self._commit(windows)
        except Exception as error:  # noqa: BLE001 - reported; what is not committed is read again
            self._observer.bus_failed(f"committing for {self.name}", error)

    # -- one step

    async def _step(self) -> None:
        if self._reading is not None and self._reading.done():
            self._reading = asyncio.create_task(self._read())
        try:
            await self._note_ends()
            await self._accept()
            await self._add()
            await self._commit_if_due()
        except BaseException:
            self._is_held = True
            self._update_paused_partitions()
            raise
        self._update_paused_partitions()
        if self._records.has_ready or self._ended:
            await asyncio.sleep(0)  # more work now; other coroutines run first
        else:
            await self._sleep(self._time_to_next_step(), idle=self._rechecks_requested == self._rechecks_answered)

    def _time_to_next_step(self) -> float | None:
        now = self._clock.now()
        waits: list[float] = []
        if self._records.has_open and self._polls:
            waits.append(self._next_status_check - now)
        if self._commit_at is not None:
            waits.append(self._commit_at - now)
        if self._is_held and self._polls:
            waits.append(MODE_AGE)
        return max(0.0, min(waits)) if waits else None

    # -- accepting and adding

    async def _accept(self) -> None:
        """Makes tasks of what was read, unless an operator has frozen the agent."""
        if not self._records.has_backlog and not self._is_held:
            return
        self._is_held = await self._modes.of(self.source.name) == "frozen"
        if self._is_held:
            return
        now = self._clock.now()
        before = self._records.count
        skipped = self._records.accept(lambda record: self._tasks.task_of(record, now))
        accepted = self._records.count - before
        self._count_events(skipped + accepted)
        if skipped:
            self._observer.events_received(self.source.agent.id, "skipped", skipped)
            self._plan_commit()

    async def _add(self) -> None:
        tasks = self._records.take_ready(_ADD)
        if not tasks:
            return
        try:
            answers = await self._add_each(tasks)
        except BaseException:
            self._records.put_back(tasks)
            raise
        self._next_status_check = self._next_status_check or self._clock.now() + _STATUS_INTERVAL
        self._observer.tasks_added([task for task, added in zip(tasks, answers, strict=True) if added.fresh])
        known = [added.uuid for added in answers if not added.fresh]
        if known:
            self._observer.events_received(self.source.agent.id, "duplicate", len(known))
            await self._check_status(known)

    async def _add_each(self, tasks: Sequence[NewTask]) -> Sequence[Added]:
        """All in one call; if the store cannot take one of them, one by one."""
        try:
            return await self._store.add(tasks)
        except StoreError:
            raise
        except Exception:
            if len(tasks) == 1:
                raise
        answers: list[Added] = []
        for task in tasks:
            answers += await self._store.add([task])
        return answers

    # -- ends

    def _on_ended(self, uuids: Collection[str] | None) -> None:
        if uuids is None:
            self._next_status_check = 0.0
        else:
            self._ended.update(self._records.open_among(uuids))
        self._wakeup.set()

    async def _note_ends(self) -> None:
        """By hints, and once per second by reading the oldest open tasks: a hint may be lost."""
        ended = self._ended
        self._ended = set()
        self._end(ended)
        if self._records.has_open and self._clock.now() >= self._next_status_check:
            self._next_status_check = self._clock.now() + _STATUS_INTERVAL
            await self._check_status(self._records.oldest_open(_STATUS_BATCH))

    async def _check_status(self, uuids: Sequence[str]) -> None:
        records = await self._store.get(uuids)
        self._end([uuid for uuid, record in zip(uuids, records, strict=True) if _has_ended(record)])

    def _end(self, uuids: Collection[str]) -> None:
        done = sum(self._records.end(uuid) for uuid in uuids)
        if done:
            self._count_events(done)
            self._plan_commit()

    # -- offsets

    def _plan_commit(self) -> None:
        if self._commit_at is None:
            self._commit_at = self._clock.now() + _COMMIT_INTERVAL
        if sum(window.ended for window in self._records.windows.values()) >= _COMMIT_COUNT:
            self._commit_at = 0.0

    async def _commit_if_due(self) -> None:
        if self._commit_at is None or self._clock.now() < self._commit_at:
            return
        self._commit_at = None
        try:
            await self._commit(list(self._records.windows.values()))
        except BusError as error:
            self._observer.bus_failed(f"committing for {self.name}", error)
            self._commit_at = self._clock.now() + _COMMIT_INTERVAL

    async def _commit(self, windows: Sequence[PartitionWindow]) -> None:
        offsets = {each: offset for each in windows if (offset := each.offset()) is not None}
        if not offsets or self._subscription is None:
            return
        await self._subscription.commit({each.partition: offset for each, offset in offsets.items()})
        for window, offset in offsets.items():
            window.mark_committed(offset)

    def _update_paused_partitions(self) -> None:
        """Pauses the partitions of which nothing can be taken now, and resumes the others."""
        if self._subscription is None:
            return
        blocked = set(self._records.windows) if self._is_held else set(self._records.blocked())
        if more := blocked - self._paused:
            self._subscription.pause(more)
        if fewer := self._paused - blocked:
            self._subscription.resume(fewer)
        self._paused = blocked


def _has_ended(record: Record | None) -> bool:
    """A task that is not kept any more has ended."""
    return record is None or record.state in ENDED
