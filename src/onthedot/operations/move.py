"""Move pending tasks, schedules and limits to another store, while workers run on both (docs/adr/0012).

For each task: 1. lift it here; 2. adopt it in the target, where it is lifted, too; 3. end it here as moved; 4. requeue
it in the target. At any moment workers can claim it in one store at most, and one store has it. A move that was killed
is finished by the next run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from onthedot.clock.durations import WEEK
from onthedot.clock.system import SystemClock
from onthedot.errors import StoreRefused
from onthedot.model.failures import decode_moved_to, encode_reason
from onthedot.model.uuid7 import new_uuid
from onthedot.operations.humanize import plural
from onthedot.operations.move_schedules import move_schedules
from onthedot.operations.task_queries import find_pages
from onthedot.stores.capabilities import Outbox, find_capability
from onthedot.stores.contract import (
    CLIENT_LEASE,
    ENDED,
    PENDING,
    Added,
    Ended,
    Lease,
    Limit,
    NoteKind,
    Outcome,
    Record,
    Requeued,
    Store,
)
from onthedot.stores.rules.records import UNQUEUED_REASONS, is_superseded

_BATCH = 500
_DURABLE_NOTES: tuple[NoteKind, ...] = ("step", "item")  # a task that has one finishes where it is
_KEEP = WEEK  # ms that a moved task is kept, so that an add of the same uuid is recognized
_PAUSE = 0.25  # seconds between two checks of tasks that others hold
_LEASE = CLIENT_LEASE / 1000  # seconds for which lifted tasks are leased
_MAX_WAIT = 1.5 * _LEASE  # seconds, for tasks that another move has lifted
_Copy: TypeAlias = Literal["alive", "ours", "outdated", "unclear"]


@dataclass
class MoveResult:
    """Counts of what a move has moved so far, and of what it leaves."""

    tasks: int = 0
    cancelled: int = 0  # during the move; ended in the target
    schedules: list[str] = field(default_factory=list[str])
    limits: list[str] = field(default_factory=list[str])
    kept: dict[str, str] = field(default_factory=dict[str, str])  # uuid → task with its unique key in the target
    unclear: list[str] = field(default_factory=list[str])  # lifted in the target, and not known to come from here
    arriving: int = 0  # brought here by an unfinished move, so not active here yet
    busy: int = 0  # lifted by another move
    running: int = 0
    durable: list[str] = field(default_factory=list[str])  # they wait or have saved steps or items, and finish here
    linked: list[str] = field(default_factory=list[str])  # tasks of flows: their counters are here, where they finish
    stopped: bool = False  # before its end, by request


class Move:
    """One run of a move. to: the name of the target, which the moved tasks keep here.

    on_moved gets the number of moved tasks, on_wait a text whenever it waits for others.
    """

    def __init__(
        self,
        source: Store,
        target: Store,
        to: str,
        *,
        on_moved: Callable[[int], object] | None = None,
        on_wait: Callable[[str], object] | None = None,
        stop: Callable[[], bool] = lambda: False,
        seconds: Callable[[], float] | None = None,
    ) -> None:
        self._source = source
        self._target = target
        self._to = to
        self._on_moved = on_moved
        self._on_wait = on_wait
        self._waits: set[str] = set()  # what it has waited for
        self._stop = stop
        clock = SystemClock()
        self._seconds = seconds or (lambda: clock.now() / 1000)
        self._release = False
        self._session = new_uuid()
        self._result = MoveResult()
        self._left: set[str] = set()  # those of flows and durable ones
        self._counted: set[str] = set()  # moved, but not requeued yet, because another move has lifted them
        self._not_requeued = 0  # in the last attempt

    async def run(self, *, wait: bool = False, release: bool = False) -> MoveResult:
        """wait: until what runs and what must finish here has ended, and move tasks that are requeued.

        release: also what unfinished moves left
        """
        self._release = release
        await self._check_different()
        await self._check_outbox()
        await self._move_limits()
        await self._finish_earlier()
        await self._move_tasks()
        incoming: list[str] = []
        if not self._stop():
            self._result.schedules, incoming = await move_schedules(self._source, self._target, release=release)
            await self._move_tasks()
        await self._leave_waiting()
        while wait and not self._stop() and (number := await self._running() + await self._unfinished()):
            await self._pause(number, "to end there")
            await self._move_tasks()
            await self._leave_waiting()
        await self._requeue_rest()
        self._result.arriving += len(incoming)
        self._result.running = await self._running()
        self._result.stopped = self._stop()
        return self._result

    async def _check_different(self) -> None:
        """Refuse to move a store to itself, whatever the URLs: a session here must not be seen there."""
        probe = new_uuid()
        await self._source.heartbeat(probe, b"{}", CLIENT_LEASE)
        try:
            if probe in await self._target.sessions():
                raise StoreRefused("a move from a store to itself: --from and --to are the same one")
        finally:
            await self._source.close_session(probe)

    async def _check_outbox(self) -> None:
        """Refuse to leave events behind: they and resume handles stay in their database."""
        outbox = find_capability(self._source, Outbox)
        if outbox is None:
            return
        state = await outbox.outbox_state()
        unsent = sum(each.pending + each.failed for each in state.topics)
        waiting = state.handles.get("pending", 0) + state.handles.get("complete", 0)
        if not unsent and not waiting:
            return
        events = plural(unsent, "event is unsent", "events are unsent")
        handles = plural(waiting, "resume handle is open", "resume handles are open")
        raise StoreRefused(
            f"{events} and {handles} here, and a move leaves them behind: let a relay send the events, retry or "
            "discard failed ones (onthedot outbox status), and wait until the handles are resumed or expired"
        )

    async def _running(self) -> int:
        return sum(count for (_, state), count in (await self._source.tally()).items() if state == "running")

    async def _move_limits(self) -> None:
        """Copy the operator's limits before any task; limits that the target has are kept."""
        own = [limit for limit in await self._source.limits() if limit.owner == "operator"]
        while True:
            existing = {limit.name for limit in await self._target.limits() if limit.owner == "operator"}
            missing = [limit for limit in own if limit.name not in existing]
            absent = [Limit(limit.name, owner="operator") for limit in missing]
            if await self._target.put_limits(missing, replaces=absent):
                break
        self._result.limits = [limit.name for limit in missing]

    # -- tasks

    async def _move_tasks(self) -> None:
        """Repeat until a pass finds nothing to move: tasks are added meanwhile."""
        until = self._seconds() + _MAX_WAIT
        while True:
            before = self._result.tasks
            self._result.busy = 0
            self._result.arriving = 0
            for state in PENDING:
                async for records in find_pages(self._source, {"state": state}, _BATCH):
                    if self._stop():
                        return
                    await self._move_batch(await self._without_kept(records))
            busy = self._result.busy
            if self._result.tasks == before and not (busy and await self._wait_for_other(until, busy)):
                return

    async def _without_kept(self, records: Sequence[Record]) -> list[Record]:
        """Those that can be moved. Counters and journals are here, so tasks of flows and durable tasks stay."""
        free: list[Record] = []
        for record in records:
            if record.uuid in self._result.kept:
                continue
            has_run = record.history.started is not None or record.history.settled_fence > 0
            if record.links is not None or (has_run and await self._has_journal(record.uuid)):
                self._leave(record)
            else:
                free.append(record)
        return free

    async def _has_journal(self, uuid: str) -> bool:
        for kind in _DURABLE_NOTES:
            if await self._source.notes(uuid, 0, 1, kind):
                return True
        return False

    async def _leave_waiting(self) -> None:
        async for waiting in find_pages(self._source, {"state": "waiting"}, _BATCH):
            for record in waiting:
                self._leave(record)

    async def _unfinished(self) -> int:
        """Forget the tasks that were left and have ended. Return how many others do not run now."""
        unfinished: set[str] = set()
        pending = 0
        left = list(self._left)
        for start in range(0, len(left), _BATCH):
            for record in await self._source.get(left[start : start + _BATCH]):
                if record is not None and record.state not in ENDED:
                    unfinished.add(record.uuid)
                    pending += record.state != "running"
        self._left = unfinished
        self._result.durable = [uuid for uuid in self._result.durable if uuid in unfinished]
        self._result.linked = [uuid for uuid in self._result.linked if uuid in unfinished]
        return pending

    def _leave(self, record: Record) -> None:
        left = self._result.durable if record.links is None else self._result.linked
        if record.uuid not in self._left:
            self._left.add(record.uuid)
            left.append(record.uuid)

    async def _move_batch(self, records: Sequence[Record]) -> None:
        active = [record for record in records if self._release or not record.is_arriving]
        self._result.arriving += len(records) - len(active)
        free = [
            record.uuid
            for record in active
            if record.history.reason not in UNQUEUED_REASONS or record.history.reason == "lifted"
        ]
        since = self._seconds()
        leased = await self._source.lift(self._session, free)
        taken = {record.uuid for record in leased.tasks}
        self._result.busy += sum(record.history.reason == "lifted" and record.uuid not in taken for record in active)
        if not taken:
            return
        if self._seconds() - since >= _LEASE:  # the lease is over, and another move may have them by now
            self._result.busy += len(taken)
            return
        outcomes: list[Outcome] = []
        moved = encode_reason(f"moved to {self._to}", moved_to=self._to)
        adopted = await self._target.adopt(leased.tasks)
        superseded = await self._superseded(leased.tasks, adopted)
        for record, added in zip(leased.tasks, adopted, strict=True):
            lease = Lease(record.uuid, leased.fence, self._session)
            if added.uuid != record.uuid:  # another task has its unique key there, so it stays here
                outcomes.append(Requeued(lease, None, counted=False))
                self._result.kept[record.uuid] = added.uuid
            elif record.uuid not in superseded:
                outcomes.append(Ended(lease, "cancelled", moved, _KEEP))
        turn = await self._source.turn(self._session, outcomes, None)
        # Lost: the lease was over. They are lifted in both stores, and the next pass finds them.
        ended = [
            outcome.lease.uuid
            for outcome, verdict in zip(outcomes, turn.verdicts, strict=True)
            if isinstance(outcome, Ended) and verdict != "lost"
        ]
        self._result.tasks += len(ended)
        requeued = await self._requeue(ended)
        self._counted.update(uuid for uuid in ended if uuid not in requeued)
        self._report()

    async def _superseded(self, records: Sequence[Record], adopted: Sequence[Added]) -> set[str]:
        """The tasks that were not adopted, because the target had a later copy that was moved on at this moment."""
        old = [record for record, added in zip(records, adopted, strict=True) if not added.fresh]
        if not old:
            return set()
        found = await self._target.get([record.uuid for record in old])
        superseded = {
            there.uuid
            for there, record in zip(found, old, strict=True)
            if there is not None and is_superseded(there, record)
        }
        self._result.busy += len(superseded)
        return superseded

    async def _requeue(self, uuids: Sequence[str]) -> set[str]:
        """Step 4. A cancel that was requested here meanwhile ends the task there. Return those that are done."""
        found = await self._source.get(uuids)
        unwanted = {record.uuid for record in found if record is not None and record.history.cancel_requested}
        leased = await self._target.lift(self._session, uuids)
        outcomes: list[Outcome] = []
        for record in leased.tasks:
            lease = Lease(record.uuid, leased.fence, self._session)
            if record.uuid in unwanted:
                outcomes.append(Ended(lease, "cancelled", encode_reason("cancelled"), _KEEP))
            else:
                outcomes.append(Requeued(lease, None, counted=False))
        turn = await self._target.turn(self._session, outcomes, None)
        verdicts = zip(outcomes, turn.verdicts, strict=True)
        requeued = {outcome.lease.uuid for outcome, verdict in verdicts if verdict != "lost"}
        self._not_requeued += len(uuids) - len(requeued)
        self._result.cancelled += len(unwanted & requeued)
        self._result.tasks -= len(unwanted & requeued)
        await asyncio.sleep(0)  # let other coroutines run
        return requeued

    async def _requeue_rest(self) -> None:
        """Requeue tasks that a killed move had lifted in the target, when its lease is over."""
        until = self._seconds() + _MAX_WAIT
        while self._not_requeued and not self._stop():
            await self._finish_earlier()
            if self._not_requeued and not await self._wait_for_other(until, self._not_requeued):
                self._result.busy += self._not_requeued
                return

    async def _wait_for_other(self, until: float, number: int) -> bool:
        """Wait a moment for tasks that another move has lifted; False: long enough."""
        if self._seconds() >= until:
            return False
        await self._pause(number, f"that another move has, {_MAX_WAIT:g} s at most")
        return True

    async def _pause(self, number: int, what: str) -> None:
        if what not in self._waits and self._on_wait is not None:
            self._on_wait(f"waiting for {plural(number, 'task')} {what}")
        self._waits.add(what)
        await asyncio.sleep(_PAUSE)

    def _report(self) -> None:
        if self._on_moved is not None:
            self._on_moved(self._result.tasks)

    async def _finish_earlier(self) -> None:
        """Requeue what a killed move has left lifted in the target. Tasks that are alive here are moved like others."""
        self._result.unclear.clear()
        self._not_requeued = 0
        async for copies in find_pages(self._target, {"state": "scheduled"}, _BATCH):
            arriving = [copy for copy in copies if copy.is_arriving]
            here = await self._source.get([copy.uuid for copy in arriving])
            found: dict[_Copy, list[str]] = {"alive": [], "ours": [], "outdated": [], "unclear": []}
            for copy, record in zip(arriving, here, strict=True):
                found[self._classify(copy, record)].append(copy.uuid)
            self._result.unclear += found["unclear"]
            if found["ours"]:
                requeued = await self._requeue(found["ours"])
                self._result.tasks += len(requeued - self._counted)
                self._report()
            if found["outdated"]:
                await self._end_copies(found["outdated"])

    def _classify(self, copy: Record, record: Record | None) -> _Copy:
        """A lifted copy in the target, by its record here."""
        if record is None:
            return "ours" if self._release else "unclear"
        if record.state not in ENDED:
            return "alive"
        moved_to = decode_moved_to(record)
        if not moved_to or record.history.hops >= copy.history.hops:  # it has ended here, or was moved again since
            return "outdated"
        if moved_to == self._to or self._release:
            return "ours"
        return "unclear"

    async def _end_copies(self, uuids: Sequence[str]) -> None:
        leased = await self._target.lift(self._session, uuids)
        leases = [Lease(record.uuid, leased.fence, self._session) for record in leased.tasks]
        error = encode_reason("it has ended in the store it was to be moved from")
        # Not kept: it was never active there, and if it is revived here it may be moved there again.
        await self._target.turn(self._session, [Ended(lease, "cancelled", error, 0) for lease in leases], None)


class Movable(NamedTuple):
    """The extent of a move: number of pending tasks by source, names of schedules and of the operator's limits."""

    tasks: dict[str, int]
    schedules: list[str]
    limits: list[str]


async def movable(source: Store) -> Movable:
    tasks: dict[str, int] = {}
    for (name, state), count in (await source.tally()).items():
        if state in PENDING:
            tasks[name] = tasks.get(name, 0) + count
    schedules = await source.schedules()
    limits = await source.limits()
    alive = [each.name for each in schedules if not (each.paused and each.next_at is None)]
    return Movable(tasks, alive, [limit.name for limit in limits if limit.owner == "operator"])
