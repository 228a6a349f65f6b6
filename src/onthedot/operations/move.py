"""Moving what is alive to another store, while workers are busy on both (docs/adr/0012).

For each task, in this order: lifted here, adopted there (lifted, too), ended here, put down there. It is in one order
at most at any moment, and there is always a record of it: a mover that is killed leaves what the next run finishes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from onthedot.errors import StoreRefused
from onthedot.operations.move_schedules import move_schedules
from onthedot.outcome import read_failure, write_reason
from onthedot.stores.contract import CLIENT_LEASE, Again, Ended, Lease, Outcome, Record, Store
from onthedot.stores.records import ENDED, ENDING
from onthedot.task import new_uuid

_BATCH = 500
_KEEP = 7 * 86_400_000  # so that the same uuid, added here once more, is known
_WAITING = ("scheduled", "ready", "parked")
_PAUSE = 0.25  # seconds until another look at what others hold
_MOVED = "moved to "


@dataclass
class Moved:
    """What a move has done so far, and what it leaves."""

    tasks: int = 0
    cancelled: int = 0  # by somebody, while they were on their way: ended there, too
    schedules: list[str] = field(default_factory=list[str])
    limits: list[str] = field(default_factory=list[str])
    kept: dict[str, str] = field(default_factory=dict[str, str])  # uuid → who has its unique key, or this uuid, there
    unclear: list[str] = field(default_factory=list[str])  # lifted there, and here nothing says that they are ours
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
        tell: Callable[[Moved], object] = lambda _: None,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._source = source
        self._target = target
        self._reason = f"{_MOVED}{to}"
        self._tell = tell
        self._stop = stop
        self._session = new_uuid()
        self._moved = Moved()
        self._left_there = False  # something was not put down: its lease was over, or another mover has it

    async def run(self, *, wait: bool = False, release: bool = False) -> Moved:
        """wait: for what runs here, and comes back. release: unclear ones, which are this source's after all."""
        await self._check()
        await self._limits()
        await self._finish_earlier(release=release)
        await self._tasks()
        if not self._stop():
            self._moved.schedules = await move_schedules(self._source, self._target)
            await self._tasks()
        while wait and not self._stop() and await self._running():
            await asyncio.sleep(_PAUSE)
            await self._tasks()
        if self._left_there:
            await self._finish_earlier(release=False)
        self._moved.running, self._moved.stopped = await self._running(), self._stop()
        return self._moved

    async def _check(self) -> None:
        """Nothing can be moved to where it is, under whatever name."""
        probe = new_uuid()
        await self._source.beat(probe, b"{}", CLIENT_LEASE)
        try:
            if probe in (await self._target.state())[2]:
                raise StoreRefused("a move from a store to itself: --from and --to are the same one")
        finally:
            await self._source.close(probe)

    async def _running(self) -> int:
        return sum(count for (_, state), count in (await self._source.tally()).items() if state == "running")

    async def _limits(self) -> None:
        """The operator's; where there is one already, it stands. First, so that no task runs there without them."""
        theirs = {limit.name for limit in (await self._target.state())[1] if limit.by == "operator"}
        mine = [limit for limit in (await self._source.state())[1] if limit.by == "operator"]
        await self._target.put([], [limit for limit in mine if limit.name not in theirs])
        self._moved.limits = [limit.name for limit in mine if limit.name not in theirs]

    # -- tasks

    async def _tasks(self) -> None:
        """Pass after pass, until one finds nothing to move: others add meanwhile."""
        patience = time.monotonic() + 1.5 * CLIENT_LEASE / 1000  # for the leases of a mover that was killed
        while True:
            before, self._moved.busy = self._moved.tasks, 0
            for state in _WAITING:
                async for records in _pages(self._source, state):
                    if self._stop():
                        return
                    await self._batch([record for record in records if record.uuid not in self._moved.kept])
            if self._moved.tasks == before:
                if not self._moved.busy or time.monotonic() >= patience:
                    return
                await asyncio.sleep(_PAUSE)

    async def _batch(self, records: Sequence[Record]) -> None:
        free = [record.uuid for record in records if record.past.why not in ENDING or record.past.why == "lifted"]
        held = await self._source.lift(self._session, free)
        taken = {record.uuid for record in held.tasks}
        self._moved.busy += sum(record.past.why == "lifted" and record.uuid not in taken for record in records)
        outcomes: list[Outcome] = []
        if not taken:
            return
        adopted = await self._target.adopt(held.tasks)
        from_there = await self._gone_from_there([each.uuid for each in adopted if not each.fresh])
        for record, added in zip(held.tasks, adopted, strict=True):
            lease = Lease(record.uuid, held.fence, self._session)
            if added.uuid == record.uuid and record.uuid not in from_there:
                outcomes.append(Ended(lease, "cancelled", write_reason(self._reason), _KEEP))
            else:  # its key or its uuid is another's there: both cannot live, and this one is as good here as before
                outcomes.append(Again(lease, None, counted=False))
                self._moved.kept[record.uuid] = added.uuid
        turn = await self._source.turn(self._session, outcomes, None)
        # Lost: it took so long that the lease was over. They are lifted on both sides, and the next pass finds them.
        ended = [
            outcome.lease.uuid
            for outcome, verdict in zip(outcomes, turn.verdicts, strict=True)
            if isinstance(outcome, Ended) and verdict != "lost"
        ]
        await self._put_down(ended)

    async def _gone_from_there(self, uuids: Sequence[str]) -> set[str]:
        """Those that were moved away from there once, where their end is still kept: they cannot be taken back yet."""
        found = await self._target.get(uuids) if uuids else ()
        return {record.uuid for record in found if record is not None and _reason(record).startswith(_MOVED)}

    async def _put_down(self, uuids: Sequence[str]) -> None:
        """There, since they have ended here. Who wanted one cancelled meanwhile told it to this side."""
        found = await self._source.get(uuids)
        unwanted = {record.uuid for record in found if record is not None and record.past.cancel}
        held = await self._target.lift(self._session, uuids)
        outcomes: list[Outcome] = []
        for record in held.tasks:
            lease = Lease(record.uuid, held.fence, self._session)
            if record.uuid in unwanted:
                outcomes.append(Ended(lease, "cancelled", write_reason("cancelled"), _KEEP))
            else:
                outcomes.append(Again(lease, None, counted=False))
        turn = await self._target.turn(self._session, outcomes, None)
        if len(outcomes) < len(uuids) or "lost" in turn.verdicts:
            self._left_there = True
        self._moved.cancelled += len(unwanted)
        self._moved.tasks += len(uuids) - len(unwanted)
        self._tell(self._moved)
        await asyncio.sleep(0)  # others want the loop, too

    async def _finish_earlier(self, *, release: bool) -> None:
        """What a mover that was killed has left there, lifted. What is still alive here is moved like the rest."""
        self._moved.unclear.clear()
        async for copies in _pages(self._target, "scheduled"):
            uuids = [copy.uuid for copy in copies if copy.past.why == "lifted"]
            ended: list[str] = []
            unwanted: list[str] = []
            for uuid, record in zip(uuids, await self._source.get(uuids), strict=True):
                if record is not None and record.state not in ENDED:
                    continue
                reason = "" if record is None else _reason(record)
                if reason == self._reason or (release and (record is None or reason.startswith(_MOVED))):
                    ended.append(uuid)
                elif record is None or reason.startswith(_MOVED):
                    self._moved.unclear.append(uuid)
                else:  # it was put down here after all, and has had its end
                    unwanted.append(uuid)
            if ended:
                await self._put_down(ended)
            if unwanted:
                await self._drop(unwanted)

    async def _drop(self, uuids: Sequence[str]) -> None:
        held = await self._target.lift(self._session, uuids)
        leases = [Lease(record.uuid, held.fence, self._session) for record in held.tasks]
        error = write_reason("it has ended in the store it was to be moved from")
        await self._target.turn(self._session, [Ended(lease, "cancelled", error, _KEEP) for lease in leases], None)


async def _pages(store: Store, state: str) -> AsyncIterator[Sequence[Record]]:
    cursor: str | None = None
    while True:
        page = await store.find({"state": state}, cursor, _BATCH)
        if page.rows:
            yield page.rows
        cursor = page.after
        if cursor is None:
            return


def _reason(record: Record) -> str:
    failure = read_failure(record.past.error) if record.state == "cancelled" else None
    return failure.message if failure is not None and not failure.type else ""


async def counted(source: Store) -> tuple[dict[str, int], list[str], list[str]]:
    """What there is to move: waiting tasks by source, schedules, the operator's limits."""
    tasks: dict[str, int] = {}
    for (name, state), count in (await source.tally()).items():
        if state in _WAITING:
            tasks[name] = tasks.get(name, 0) + count
    schedules, limits, _ = await source.state()
    alive = [each.name for each in schedules if not (each.paused and each.next_at is None)]
    return tasks, alive, [limit.name for limit in limits if limit.by == "operator"]
