"""Bugs that the simulation must find. Each is a wrapper or a subclass; the source has no switches for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from onthedot.engine import worker as worker_module
from onthedot.engine.run import Run
from onthedot.engine.runner import Runner
from onthedot.engine.session import WorkerSession
from onthedot.engine.worker import Worker
from onthedot.errors import StoreError, StoreUnavailable
from onthedot.stores.contract import (
    Added,
    ClaimRequest,
    Completed,
    FireRequest,
    HeartbeatResult,
    Lease,
    NewTask,
    Outcome,
    TurnResult,
    Verdict,
)
from onthedot.stores.memory.tables import MemoryTables
from onthedot.stores.rules.task_tables import LeasedRecord
from onthedot.stores.sqlite.request_thread import Request, answer
from tests.sim.clock import SimClock
from tests.sim.flow_bugs import FLOW_BUGS
from tests.sim.memory import SimMemoryStore
from tests.sim.sqlite import SimFsync, SimPresence, SimWriter


class WrappedStore:
    """Passes every verb on to a store. A bug overrides some."""

    def __init__(self, inner: Any, clock: SimClock, lease: float) -> None:
        """clock: of the store for a bug of the server, of the node for a bug of the client. lease: in seconds."""
        self._inner = inner
        self._clock = clock
        self._lease = lease
        self._seen: dict[str, Any] = {}  # what the bug remembers, by uuid or session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


# -- bugs of the server


class UnfencedSettle(WrappedStore):
    """An outcome is accepted whatever its lease, as long as somebody holds the task."""

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        holders = self._seen
        current = [replace(each, lease=holders.get(each.lease.uuid, each.lease)) for each in outcomes]
        result: TurnResult = await self._inner.turn(session, current, request)
        if result.claim is not None:
            for record in (*result.claim.tasks, *result.claim.chores):
                holders[record.uuid] = Lease(record.uuid, result.claim.fence, session)
        return result


class OlderClaimNumberAccepted(WrappedStore):
    """B3: only the last number is recognised as a repeat; an older one claims."""

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        if request is not None:
            last, number = self._seen.get(session, (0, 0))  # its last number, and the one that the store has
            if request.number != last:
                number += 1
            self._seen[session] = (request.number, number)
            request = replace(request, number=number)
        result: TurnResult = await self._inner.turn(session, outcomes, request)
        return result


class LeakyTables(MemoryTables):
    """A crash leaks the slot of a lane."""

    def release(self, leased: Sequence[LeasedRecord], session: str) -> None:
        super().release(leased, session)
        for each in leased:
            if each.record.lane is not None and not each.chore:
                self.limits.lane(each.record.lane).running += 1
                return


class KeyHoldingTables(MemoryTables):
    """The unique key of a task is not freed when it expires."""

    def free_key(self, source: str, key: str, uuid: str) -> None:
        record = self.records.get(uuid)
        if record is None or record.history.reason != "expired":
            super().free_key(source, key, uuid)


class FireWithoutCompareAndSet(WrappedStore):
    async def fire(self, fires: Sequence[FireRequest]) -> Sequence[bool]:
        revisions = {schedule.name: schedule.rev for schedule in await self._inner.schedules()}
        written: Sequence[bool] = await self._inner.fire([replace(each, rev=revisions[each.name]) for each in fires])
        return written


class EarlyAlarms(WrappedStore):
    async def add(self, tasks: Sequence[NewTask], deadline: float | None = None) -> Sequence[Added]:
        early = [replace(task, after=max(0, task.after - 300)) for task in tasks]
        added: Sequence[Added] = await self._inner.add(early, deadline)
        return added


class RescueByTimeAlone(WrappedStore):
    """A heartbeat does not renew the session: its tasks are taken from it one lease after it was opened."""

    async def heartbeat(self, session: str, info: bytes, lease: int) -> HeartbeatResult:
        if session in self._seen:
            return HeartbeatResult(alive=True)
        self._seen[session] = True
        answer: HeartbeatResult = await self._inner.heartbeat(session, info, lease)
        return answer


class LimitsForgotten(WrappedStore):
    async def put_limits(self, limits: Sequence[Any], replaces: Sequence[Any] = ()) -> bool:
        return True


class LateAddAccepted(WrappedStore):
    """B7: the deadline of an add is ignored."""

    async def add(self, tasks: Sequence[NewTask], deadline: float | None = None) -> Sequence[Added]:
        added: Sequence[Added] = await self._inner.add(tasks)
        return added


class UnreadableRecordRepeated(WrappedStore):
    """B9: the answer of a claim cannot be read because of one record, and the claim is repeated."""

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        result: TurnResult = await self._inner.turn(session, outcomes, request)
        if result.claim is not None and any(b'"number":13' in record.body for record in result.claim.tasks):
            raise KeyError("z")
        return result


# -- bugs of the client


class SettledBeforeItRan(WrappedStore):
    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        result: TurnResult = await self._inner.turn(session, outcomes, request)
        if result.claim is not None and result.claim.tasks:
            leases = [Lease(record.uuid, result.claim.fence, session) for record in result.claim.tasks]
            with suppress(StoreError):
                await self._inner.turn(session, [Completed(lease) for lease in leases], None)
        return result


class NoSelfFencing(WrappedStore):
    async def heartbeat(self, session: str, info: bytes, lease: int) -> HeartbeatResult:
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(self._lease / 4):
                answer: HeartbeatResult = await self._inner.heartbeat(session, info, lease)
                return answer
        return HeartbeatResult(alive=True)


class RareHeartbeats(WrappedStore):
    """A heartbeat is sent once in two leases."""

    _sent_at = -inf

    async def heartbeat(self, session: str, info: bytes, lease: int) -> HeartbeatResult:
        if self._clock.now() - self._sent_at < 2 * lease:
            return HeartbeatResult(alive=True)
        self._sent_at = self._clock.now()
        answer: HeartbeatResult = await self._inner.heartbeat(session, info, lease)
        return answer


class OutcomesForgotten(WrappedStore):
    """Outcomes of a turn that failed are not sent again."""

    _forgotten: frozenset[Lease] = frozenset()

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        kept = [outcome for outcome in outcomes if outcome.lease not in self._forgotten]
        try:
            result: TurnResult = await self._inner.turn(session, kept, request)
        except StoreError:
            self._forgotten |= {outcome.lease for outcome in kept}
            raise
        answered = dict(zip([outcome.lease for outcome in kept], result.verdicts, strict=True))
        verdicts: list[Verdict] = [answered.get(outcome.lease, "ok") for outcome in outcomes]
        return replace(result, verdicts=verdicts)


class ClaimNotRepeated(WrappedStore):
    """After a claim without a reply, the next one has another number."""

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        if request is not None:
            request = replace(request, number=request.number + self._seen.get(session, 0))
        try:
            result: TurnResult = await self._inner.turn(session, outcomes, request)
        except StoreError:
            self._seen[session] = self._seen.get(session, 0) + (request is not None)
            raise
        return result


class DueByClientClock(WrappedStore):
    async def add(self, tasks: Sequence[NewTask], deadline: float | None = None) -> Sequence[Added]:
        timed = [replace(task, at=int(self._clock.now() + task.after)) if task.after else task for task in tasks]
        added: Sequence[Added] = await self._inner.add(timed, deadline)
        return added


class ChildrenApart(WrappedStore):
    """The tasks that a run has spawned are added after its outcome was written."""

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        children = [task for outcome in outcomes if outcome.effects is not None for task in outcome.effects.tasks]
        result: TurnResult = await self._inner.turn(
            session, [replace(outcome, effects=None) for outcome in outcomes], request
        )
        if children:
            with suppress(StoreError):
                await self._inner.add(children)
        return result


class OutcomeNotIsolated(WrappedStore):
    """B1: an outcome that cannot be stored is repeated, with all others of its turn."""

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        try:
            result: TurnResult = await self._inner.turn(session, outcomes, request)
        except ValueError as error:
            raise StoreUnavailable(str(error)) from error
        return result


class IdentityIgnored(WrappedStore):
    """B8: the worker does not notice that the data were replaced."""

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        result: TurnResult = await self._inner.turn(session, outcomes, request)
        return result if result.claim is None else replace(result, claim=replace(result.claim, identity=None))


class ReplyBeforeCommit(WrappedStore):
    """An add is acknowledged, and written afterwards."""

    async def add(self, tasks: Sequence[NewTask], deadline: float | None = None) -> Sequence[Added]:
        self._seen[tasks[0].uuid] = asyncio.create_task(self._inner.add(tasks, deadline))
        return [Added(task.uuid, fresh=True) for task in tasks]


# -- bugs of the SQLite store


class ReplyBeforeSync(SimFsync):
    def sync(self, calls: list[Request[Any]]) -> None:
        answer(calls)
        super().sync([])


class SequencesAfterCommit(SimWriter):
    """Two statements in the wrong order: the tasks are committed, then the counts and the last numbers."""

    def commit_together(self, tables: Any, calls: Any) -> Any:
        flush = tables.flush

        def commit_first() -> None:
            tables.db.execute("COMMIT")
            tables.db.execute("BEGIN IMMEDIATE")
            flush()

        tables.flush = commit_first
        try:
            return super().commit_together(tables, calls)
        finally:
            tables.flush = flush


class DeadProcessNotReaped(SimPresence):
    def is_dead(self, process: str) -> bool:
        return False


class PausedProcessReaped(SimPresence):
    def is_dead(self, process: str) -> bool:
        return super().is_dead(process) or not self._file.loop.is_live(process)


# -- bugs of the worker


def clears_wake_up_late(*args: Any, **kwargs: Any) -> Worker:
    """A hint that arrives during a turn is forgotten with the reply of the turn."""
    worker: Worker

    def on_turn() -> None:
        worker.wakeup.clear()

    worker = Worker(*args, **{**kwargs, "on_turn": on_turn})
    return worker


class NeverFenced:
    """A session that does not notice that its lease has run out."""

    def __init__(self, session: WorkerSession) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def is_fenced(self) -> bool:
        return False


def claims_after_fencing(*args: Any, **kwargs: Any) -> Worker:
    """B5: the worker goes on under a session that has ended its runs."""
    worker = Worker(*args, **kwargs)
    session: Any = NeverFenced(worker.session)
    worker.session = session
    return worker


class ForgetsTasksAhead(Runner):
    """Tasks that were claimed ahead are dropped."""

    def start(self, runs: Sequence[Run], ahead: int = 0) -> None:
        super().start(runs[: len(runs) - ahead])


class BeginsTasksAhead(Runner):
    """Tasks that were claimed ahead begin without a slot."""

    def start(self, runs: Sequence[Run], ahead: int = 0) -> None:
        super().start(runs)


def with_runner(runner: type[Runner]) -> Callable[..., Worker]:
    def make(*args: Any, **kwargs: Any) -> Worker:
        with patch.object(worker_module, "Runner", runner):
            return Worker(*args, **kwargs)

    return make


# -- all of them

POLL = 5.0  # seconds between looks at the store without a hint

Wrap = Callable[[Any, SimClock, float], Any]
"""Wraps a store. The clock is the store's or the node's, the lease is in seconds."""


@dataclass(frozen=True)
class PlantedBug:
    """The part of a scenario that a bug replaces: the server, the store as a node reaches it, or the worker."""

    name: str
    server: Wrap | None = None
    client: Wrap | None = None
    worker_factory: Callable[..., Worker] = Worker
    poll_interval: float = POLL
    store: str = "memory"
    parts: Mapping[str, Any] = field(default_factory=dict)  # of the SQLite store, by name
    flows: bool = False  # nodes also add flows
    bursts: bool = False  # nodes also add many tasks at once


def _on_tables(tables: type[MemoryTables]) -> Wrap:
    return lambda _, clock, __: SimMemoryStore(clock, tables)


NO_BUG = PlantedBug("none")
PLANTED = {
    bug.name: bug
    for bug in (
        PlantedBug("unfenced-settle", server=UnfencedSettle),
        PlantedBug("older-claim-number-accepted", server=OlderClaimNumberAccepted),
        PlantedBug("crash-leaks-a-lane", server=_on_tables(LeakyTables)),
        PlantedBug("unique-key-not-freed-on-expiry", server=_on_tables(KeyHoldingTables)),
        PlantedBug("fire-without-compare-and-set", server=FireWithoutCompareAndSet),
        PlantedBug("alarms-early", server=EarlyAlarms),
        PlantedBug("rescue-by-time-alone", server=RescueByTimeAlone),
        PlantedBug("limits-forgotten", server=LimitsForgotten),
        PlantedBug("late-add-accepted", server=LateAddAccepted),
        PlantedBug("unreadable-record-repeated", server=UnreadableRecordRepeated),
        PlantedBug("settled-before-it-ran", client=SettledBeforeItRan),
        PlantedBug("no-self-fencing", client=NoSelfFencing),
        PlantedBug("rare-heartbeats", client=RareHeartbeats),
        PlantedBug("outcomes-forgotten", client=OutcomesForgotten),
        PlantedBug("claim-not-repeated", client=ClaimNotRepeated),
        PlantedBug("due-by-client-clock", client=DueByClientClock),
        PlantedBug("children-apart", client=ChildrenApart),
        PlantedBug("outcome-not-isolated", client=OutcomeNotIsolated),
        PlantedBug("identity-ignored", client=IdentityIgnored),
        PlantedBug("reply-before-commit", client=ReplyBeforeCommit, store="sqlite"),
        PlantedBug("reply-before-sync", parts={"fsync": ReplyBeforeSync}, store="sqlite"),
        PlantedBug("sequences-after-commit", parts={"writer": SequencesAfterCommit}, store="sqlite"),
        PlantedBug("dead-process-not-reaped", parts={"presence": DeadProcessNotReaped}, store="sqlite"),
        PlantedBug("paused-process-reaped", parts={"presence": PausedProcessReaped}, store="sqlite"),
        PlantedBug("wake-up-cleared-late", worker_factory=clears_wake_up_late),
        PlantedBug("claim-after-fencing", worker_factory=claims_after_fencing, poll_interval=2),  # it claims more often
        PlantedBug("tasks-ahead-forgotten", worker_factory=with_runner(ForgetsTasksAhead), bursts=True),
        PlantedBug("tasks-ahead-begin-at-once", worker_factory=with_runner(BeginsTasksAhead), bursts=True),
        PlantedBug("hints-without-poll", poll_interval=100_000.0),
        *(PlantedBug(name, server=_on_tables(tables), flows=True) for name, tables in FLOW_BUGS.items()),
    )
}
