"""Moving what is alive to another store, while workers are busy on both (docs/adr/0012).

For each task, in this order: lifted here, adopted there (lifted, too), ended here, put down there. It is in one order
at most at any moment, and there is always a record of it: a mover that is killed leaves what the next run finishes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from onthedot.errors import StoreRefused
from onthedot.model.failures import decode_failure, encode_reason
from onthedot.model.uuid7 import new_uuid
from onthedot.operations.humanize import plural
from onthedot.operations.move_schedules import move_schedules
from onthedot.operations.task_queries import PENDING
from onthedot.stores.contract import CLIENT_LEASE, Added, Ended, Lease, Outcome, Record, Requeued, Store
from onthedot.stores.rules.records import CHORE_REASONS, ENDED, is_superseded

_BATCH = 500
_KEEP = 7 * 86_400_000  # so that the same uuid, added here once more, is known
_PAUSE = 0.25  # seconds until another look at what others hold
_MOVED = "moved to "
_LEASE = CLIENT_LEASE / 1000  # seconds that a mover has what it has lifted
_PATIENCE = 1.5 * _LEASE
_Fate: TypeAlias = Literal["alive", "ours", "unwanted", "unclear"]


@dataclass
class MoveResult:
    """What a move has done so far, and what it leaves."""

    tasks: int = 0
    cancelled: int = 0  # by somebody, while they were on their way: ended there, too
    schedules: list[str] = field(default_factory=list[str])
    limits: list[str] = field(default_factory=list[str])
    kept: dict[str, str] = field(default_factory=dict[str, str])  # uuid → who has its unique key there
    unclear: list[str] = field(default_factory=list[str])  # lifted there, and here nothing says that they are ours
    arriving: int = 0  # brought here by a move that was not finished: not this store's to give yet
    busy: int = 0  # in the hands of another mover
    running: int = 0
    stopped: bool = False  # before its end, since somebody asked for it


class Move:
    """to: how the source calls the target, in the reason of what it has given away. One use."""

    def __init__(
        self,
        source: Store,
        target: Store,
        to: str,
        *,
        on_moved: Callable[[int], object] | None = None,
        on_wait: Callable[[str], object] | None = None,
        stop: Callable[[], bool] = lambda: False,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._target = target
        self._reason = f"{_MOVED}{to}"
        self._on_moved = on_moved
        self._on_wait = on_wait
        self._waits: set[str] = set()  # what it has waited for
        self._stop = stop
        self._seconds = seconds
        self._release = False
        self._session = new_uuid()
        self._moved = MoveResult()
        self._late: set[str] = set()  # counted as moved, but not put down yet: another mover has them there
        self._left = 0  # so many were not put down when it was tried last

    async def run(self, *, wait: bool = False, release: bool = False) -> MoveResult:
        """wait: for what runs here, and comes back. release: what an unfinished move has left on either side, too."""
        self._release = release
        await self._check()
        await self._limits()
        await self._finish_earlier()
        await self._tasks()
        laid: list[str] = []
        if not self._stop():
            self._moved.schedules, laid = await move_schedules(self._source, self._target, release=release)
            await self._tasks()
        while wait and not self._stop() and (number := await self._running()):
            await self._pause(number, "to end there")
            await self._tasks()
        await self._put_down_the_rest()
        self._moved.arriving += len(laid)
        self._moved.running, self._moved.stopped = await self._running(), self._stop()
        return self._moved

    async def _check(self) -> None:
        """Nothing can be moved to where it is, under whatever name."""
        probe = new_uuid()
        await self._source.heartbeat(probe, b"{}", CLIENT_LEASE)
        try:
            if probe in (await self._target.sessions()):
                raise StoreRefused("a move from a store to itself: --from and --to are the same one")
        finally:
            await self._source.close_session(probe)

    async def _running(self) -> int:
        return sum(count for (_, state), count in (await self._source.tally()).items() if state == "running")

    async def _limits(self) -> None:
        """The operator's; where there is one already, it stands. First, so that no task runs there without them."""
        theirs = {limit.name for limit in (await self._target.limits()) if limit.owner == "operator"}
        mine = [limit for limit in (await self._source.limits()) if limit.owner == "operator"]
        await self._target.put_limits([limit for limit in mine if limit.name not in theirs])
        self._moved.limits = [limit.name for limit in mine if limit.name not in theirs]

    # -- tasks

    async def _tasks(self) -> None:
        """Pass after pass, until one finds nothing to move: others add meanwhile."""
        until = self._seconds() + _PATIENCE
        while True:
            before, self._moved.busy, self._moved.arriving = self._moved.tasks, 0, 0
            for state in PENDING:
                async for records in _pages(self._source, state):
                    if self._stop():
                        return
                    await self._batch([record for record in records if record.uuid not in self._moved.kept])
            busy, progress = self._moved.busy, self._moved.tasks > before
            if not progress and not (busy and await self._patience(until, busy)):
                return

    async def _batch(self, records: Sequence[Record]) -> None:
        mine = [record for record in records if self._release or not record.is_arriving]
        self._moved.arriving += len(records) - len(mine)
        free = [
            record.uuid
            for record in mine
            if record.history.reason not in CHORE_REASONS or record.history.reason == "lifted"
        ]
        since = self._seconds()
        leased = await self._source.lift(self._session, free)
        taken = {record.uuid for record in leased.tasks}
        self._moved.busy += sum(record.history.reason == "lifted" and record.uuid not in taken for record in mine)
        if not taken:
            return
        if self._seconds() - since >= _LEASE:  # it took so long that another mover may have brought them by now
            self._moved.busy += len(taken)
            return
        outcomes: list[Outcome] = []
        adopted = await self._target.adopt(leased.tasks)
        left = await self._left_meanwhile(leased.tasks, adopted)
        for record, added in zip(leased.tasks, adopted, strict=True):
            lease = Lease(record.uuid, leased.fence, self._session)
            if added.uuid != record.uuid:  # its key is another's there: this one is as good here as before
                outcomes.append(Requeued(lease, None, counted=False))
                self._moved.kept[record.uuid] = added.uuid
            elif record.uuid not in left:
                outcomes.append(Ended(lease, "cancelled", encode_reason(self._reason), _KEEP))
        turn = await self._source.turn(self._session, outcomes, None)
        # Lost: it took so long that the lease was over. They are lifted on both sides, and the next pass finds them.
        ended = [
            outcome.lease.uuid
            for outcome, verdict in zip(outcomes, turn.verdicts, strict=True)
            if isinstance(outcome, Ended) and verdict != "lost"
        ]
        self._moved.tasks += len(ended)
        put = await self._put_down(ended)
        self._late.update(uuid for uuid in ended if uuid not in put)
        self._report()

    async def _left_meanwhile(self, records: Sequence[Record], adopted: Sequence[Added]) -> set[str]:
        """Those whose like was there, and went elsewhere in this very moment: so they were not adopted."""
        old = [record for record, added in zip(records, adopted, strict=True) if not added.fresh]
        found = await self._target.get([record.uuid for record in old]) if old else ()
        left = {
            there.uuid
            for there, record in zip(found, old, strict=True)
            if there is not None and is_superseded(there, record)
        }
        self._moved.busy += len(left)
        return left

    async def _put_down(self, uuids: Sequence[str]) -> set[str]:
        """There, since they have ended here. Who wanted one cancelled meanwhile told it to this side.

        Answers with those that are no more on their way.
        """
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
        put = {outcome.lease.uuid for outcome, verdict in verdicts if verdict != "lost"}
        self._left += len(uuids) - len(put)
        self._moved.cancelled += len(unwanted & put)
        self._moved.tasks -= len(unwanted & put)
        await asyncio.sleep(0)  # others want the loop, too
        return put

    async def _put_down_the_rest(self) -> None:
        """A mover that was killed may have them there."""
        until = self._seconds() + _PATIENCE
        while self._left and not self._stop():
            await self._finish_earlier()
            if self._left and not await self._patience(until, self._left):
                self._moved.busy += self._left
                return

    async def _patience(self, until: float, number: int) -> bool:
        """A moment more for what another mover has, which may be dead; False: it was long enough."""
        if self._seconds() >= until:
            return False
        await self._pause(number, f"that another move has, {_PATIENCE:g} s at most")
        return True

    async def _pause(self, number: int, what: str) -> None:
        if what not in self._waits and self._on_wait is not None:
            self._on_wait(f"waiting for {plural(number, 'task')} {what}")
        self._waits.add(what)
        await asyncio.sleep(_PAUSE)

    def _report(self) -> None:
        if self._on_moved is not None:
            self._on_moved(self._moved.tasks)

    async def _finish_earlier(self) -> None:
        """What a mover that was killed has left there, lifted. What is still alive here is moved like the rest."""
        self._moved.unclear.clear()
        self._left = 0
        async for copies in _pages(self._target, "scheduled"):
            left = [copy for copy in copies if copy.is_arriving]
            here = await self._source.get([copy.uuid for copy in left])
            fates: dict[str, _Fate] = {
                copy.uuid: self._fate(copy, record) for copy, record in zip(left, here, strict=True)
            }
            self._moved.unclear += _those(fates, "unclear")
            if ours := _those(fates, "ours"):
                put = await self._put_down(ours)
                self._moved.tasks += len(put - self._late)
                self._report()
            if unwanted := _those(fates, "unwanted"):
                await self._drop(unwanted)

    def _fate(self, copy: Record, record: Record | None) -> _Fate:
        """Of a copy there, by what the record here says."""
        if record is not None and record.state not in ENDED:
            return "alive"
        reason = "" if record is None else _reason(record)
        if record is not None and not was_moved(record):  # it was put down after all, and has had its end
            return "unwanted"
        if record is not None and record.history.hops >= copy.history.hops:  # it has come back since, and gone again
            return "unwanted"
        return "ours" if reason == self._reason or self._release else "unclear"

    async def _drop(self, uuids: Sequence[str]) -> None:
        leased = await self._target.lift(self._session, uuids)
        leases = [Lease(record.uuid, leased.fence, self._session) for record in leased.tasks]
        error = encode_reason("it has ended in the store it was to be moved from")
        # Not kept: it was never this store's. Whoever revives it where it has ended may move it here again.
        await self._target.turn(self._session, [Ended(lease, "cancelled", error, 0) for lease in leases], None)


async def _pages(store: Store, state: str) -> AsyncIterator[Sequence[Record]]:
    cursor: str | None = None
    while True:
        page = await store.find({"state": state}, cursor, _BATCH)
        if page.rows:
            yield page.rows
        cursor = page.after
        if cursor is None:
            return


def _those(fates: Mapping[str, _Fate], wanted: _Fate) -> list[str]:
    return [uuid for uuid, fate in fates.items() if fate == wanted]


def was_moved(record: Record) -> bool:
    """To another store, where it lives on."""
    return _reason(record).startswith(_MOVED)


def _reason(record: Record) -> str:
    failure = decode_failure(record.history.error) if record.state == "cancelled" else None
    return failure.message if failure is not None and not failure.type else ""


class Movable(NamedTuple):
    """What a move would move: number of pending tasks by source, names of schedules and of the operator's limits."""

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
