"""The loop: turn, begin, wait. It claims no more than there are free slots, and never waits for a task."""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import random as randomness
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import msgspec

from onthedot.clock.protocol import Clock
from onthedot.clock.wakeup import WakeUp
from onthedot.definitions.sources import Source, Sources
from onthedot.engine.chores import outcome_for_chore
from onthedot.engine.heartbeat import Heartbeat, HeartbeatDelegate
from onthedot.engine.runner import Around, Run, Runner
from onthedot.engine.slots import Slots
from onthedot.engine.store_clock import StoreClock
from onthedot.errors import StoreRefused
from onthedot.executors.contract import Executor
from onthedot.model.context import TaskContext
from onthedot.model.uuid7 import new_uuid
from onthedot.observability.logs import LogObserver
from onthedot.stores.capabilities import NO_TRANSACTION, AsyncTransactions, SyncTransactions
from onthedot.stores.contract import (
    ClaimRequest,
    ClaimResult,
    HandoffOffer,
    Hint,
    Lease,
    LeasedTasks,
    Note,
    Outcome,
    Requeued,
    Schedule,
    Store,
    TurnResult,
    Verdict,
)

_FIRST_PAUSE, _LONGEST_PAUSE = 100.0, 5_000.0  # ms between tries while the loop fails
_PURGE_EVERY, _PURGE = 60_000.0, 200  # ms, and how many at a time
_LONGEST_WAIT, _MANY = 15_000.0, 100  # ms, and sources
_LAST_WORDS = 5.0  # seconds in which the store must take the last outcomes
_GRACE = 1.0  # seconds for which a cancelled task may tidy up when the time to stop is over


@dataclass(frozen=True)
class WorkerConfig:
    """What a worker is made of; everything that touches the world is handed in."""

    store: Store
    sources: Sources
    executors: Mapping[str, Executor]
    totals: Mapping[str, int]  # slots by executor
    clock: Clock
    random: randomness.Random
    logs: LogObserver
    declare: Callable[[], Awaitable[None]]  # tells the store what code says: limits and schedules
    fire: Callable[[Sequence[Schedule], float], Awaitable[bool]]  # those due at the store's moment
    plans: Mapping[str, object]  # the schedules that code declares
    around: Sequence[Around] = ()
    app: str = ""
    version: str = ""
    one_pool: bool = False
    batch: int | None = None  # the most that a claim takes
    poll_interval: float = 10_000
    most_kept: int = 1_000_000
    on_fatal: Callable[[BaseException], object] = repr  # told of what ends the loop
    on_turn: Callable[[], object] = bool  # told of every turn: what waits may be other tasks now
    helper: HeartbeatDelegate | None = None  # beats for this process


class Worker:
    """One session at work. Made on the loop it lives on; started once, stopped once."""

    def __init__(self, parts: WorkerConfig) -> None:
        self._config = parts
        self._store, self._clock, self._logs = parts.store, parts.clock, parts.logs
        self.wake: WakeUp = WakeUp(parts.clock)
        self.slots: Slots = Slots(parts.sources, parts.totals, one_pool=parts.one_pool, batch=parts.batch)
        self.runner: Runner = Runner(parts.around, parts.clock, parts.random, parts.logs, self.wake)
        self._also: list[Outcome] = []  # ends of what never ran: chores, and what came too late
        self._notes: dict[str, Note] = {}
        self._notes_lock = threading.Lock()
        self._store_clock = StoreClock(parts.logs)
        self._asked = 0.0  # the moment from which the last claim's waits count
        self._alarm: float | None = None  # of any kind, the next in the store
        self._number = 0
        self._asking = False
        self._handed: Hint | None = None  # what somebody has given to this idle worker
        self._longest_wait = (
            _LONGEST_WAIT
            if parts.store.traits.lease_ms is None
            else min(_LONGEST_WAIT, parts.store.traits.lease_ms / 2)
        )
        self._purged = self._asked_all = parts.clock.now()
        self._stopping = False
        self._undeclared = False
        self._loops: list[asyncio.Task[None]] = []
        self._unwatch: Callable[[], None] = lambda: None
        self.last_error: BaseException | None = None
        self.idle: asyncio.Event = asyncio.Event()  # nothing to do before the next alarm
        self.next_in: float | None = None
        self._new_session()

    def _new_session(self) -> None:
        self.session: str = new_uuid()  # a random one a boot: a restarted host is somebody else
        self._since = int(self._clock.now())
        said, helper = self.describe(), self._config.helper
        self._heartbeat = Heartbeat(self._store, self.session, said, self._clock, self._logs, helper)
        self._number, self._handed = 0, None
        self._logs.worker = self.session

    def describe(self) -> bytes:
        """What whoever looks at the workers gets to see."""
        sources = sorted(self._config.sources.items())
        said = {
            "host": platform.node(),
            "pid": os.getpid(),
            "app": self._config.app,
            "version": self._config.version,
            "started": self._since,
            "concurrency": dict(self._config.totals),
            "sources": [name for name, _ in sources],
            "schedules": sorted(self._config.plans),
            "max_retries": {name: most for name, source in sources if (most := source.options.max_retries)},
        }
        return msgspec.json.encode(said)

    # -- start and stop

    async def start(self) -> None:
        await self._config.declare()
        await self._heartbeat.open(self._cancel, self._lost)
        self._unwatch = self._config.sources.watch(self._sources_changed)
        self._loops = [asyncio.create_task(self._loop()), asyncio.create_task(self._listen())]

    async def stop(self, timeout: float | None) -> None:
        """Running ones finish, or go back uncounted after `timeout` seconds."""
        self.stop_claiming()
        loop, listener = self._loops
        done, _ = await asyncio.wait([loop], timeout=timeout)
        if not done:
            self.cancel_running()
            done, _ = await asyncio.wait([loop], timeout=_GRACE)
        if not done:
            self.runner.abandon_running()
            done, _ = await asyncio.wait([loop], timeout=None if timeout is None else _LAST_WORDS)
        if not done:  # the store does not take what came out: it will be run again
            self._logs.scheduler.error(
                "stopped although %d outcomes could not be written; these tasks will be run again",
                len(self.runner.outcomes) + len(self._also),
            )
            loop.cancel()
            await asyncio.wait([loop])
        listener.cancel()
        await asyncio.wait([listener])
        try:
            await self._heartbeat.close()
        except Exception as error:  # noqa: BLE001 - told; what it held goes back when the session's time is over
            self._logs.error_throttled("closing the session", error)

    def stop_claiming(self) -> None:
        """No claim and no start from this moment; what has not begun goes back."""
        if not self._stopping:
            self._stopping = True
            self._unwatch()
            self.runner.release_queued()
            self.wake.set()

    def cancel_running(self) -> None:
        """What still runs is ended now and goes back uncounted."""
        for uuid in list(self.runner.runs):
            self.runner.cancel(uuid, "shutdown")
        self.wake.set()

    def _sources_changed(self) -> None:
        """May come from any thread."""
        self.wake.call_soon(self._look_again)

    def _look_again(self) -> None:
        self._undeclared = True
        self.slots.refresh()
        self.wake.set()

    # -- the loop

    async def _loop(self) -> None:
        pause = _FIRST_PAUSE
        while not (self._stopping and self.is_drained()):
            try:
                await self._step()
                pause = _FIRST_PAUSE
            except StoreRefused as error:  # no retry mends it
                self.last_error = error
                self.stop_claiming()
                self._config.on_fatal(error)
                return
            except Exception as error:  # noqa: BLE001 - told, and tried again
                self.last_error = error
                self._logs.error_throttled("the loop", error)
                await self._rest(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    def is_drained(self) -> bool:
        return not (self.runner.outcomes or self._also or any(not run.over for run in self.runner.runs.values()))

    async def _step(self) -> None:
        self.wake.clear()  # first clear, then look: no hint is lost
        if self._notes:
            await self._write_notes()
        if self._undeclared:
            self._undeclared = False  # first, so that what is declared meanwhile is not forgotten
            await self._declare_again()
        turn = await self._turn()
        if not turn.alive:
            await self._replace_session()
        elif turn.claim is None:
            if not self.is_drained():  # else nobody would wake it
                await self.wake.wait(None)
        elif await self._begin(turn.claim) or await self.purge_if_due():
            await asyncio.sleep(0)  # there is more at once, but others want the loop too
        else:
            await self._idle()

    async def _declare_again(self) -> None:
        try:
            await self._config.declare()
            await self._heartbeat.update_info(self.describe())
        except BaseException:
            self._undeclared = True
            raise

    async def _turn(self) -> TurnResult:
        """Settle and claim in one step. What was taken out is put back if the store does not answer."""
        now = self._clock.now()
        polls = now - self._asked_all >= self._config.poll_interval
        self._asked_all = now if polls else self._asked_all
        ended, self.runner.outcomes = self.runner.outcomes, []
        freed, self.runner.freed = self.runner.freed, []
        self.slots.count(freed, -1)
        also, self._also = self._also, []
        request = None
        if not self._stopping:
            known = self._config.sources.known if not self._store.traits.shared else None
            rang = self._alarm is not None and now >= self._alarm
            pools = self.slots.pools(now, rang=rang, polls=polls)
            request = ClaimRequest(self._number + 1, pools, known_sources=known, offer=self._offer())
        elif not (ended or also):
            return TurnResult(())
        self._asking = request is not None
        self.runner.pending_cancels.clear()
        try:
            if self._notes:  # what a task said last is written before its end: a note of an ended run is refused
                await self._write_notes()
            asked = self._clock.now()
            turn = await self._store.turn(self.session, [outcome for outcome, _ in ended] + also, request)
            self._number += request is not None
        except BaseException:
            self.runner.outcomes = ended + self.runner.outcomes
            self._also = also + self._also
            self._asking = False
            self._take_handed()
            raise
        self._asking = False
        answered = self._clock.now()
        if turn.claim is not None:
            next_in = turn.claim.next_in
            self._asked = self._store_clock.observe(asked, turn.claim.now, answered)
            self._alarm = None if next_in is None else self._asked + next_in
        self._logs.tasks_settled(ended, turn.verdicts, answered)
        self._config.on_turn()
        return turn

    def _offer(self) -> HandoffOffer | None:
        """What an idle worker would take at once: whoever adds it may hand it out.

        One that runs something may be too busy to hear of it, while others wait. And nobody is believed to wait for
        longer than it has said: the next poll says it again.
        """
        many = len(self._config.sources.known) > _MANY
        if many or not self._store.traits.shared or any(not run.over for run in self.runner.runs.values()):
            return None
        return HandoffOffer(self.slots.offer(), min(self._config.poll_interval, self._longest_wait))

    def _take_handed(self) -> None:
        """What the ask that waited has got; while it is asked anew, the answer says the same.

        Of an ask that is over: told before, or by a server that has lost its last moments. Then nobody else would end
        it, so it goes back. Who may be dead by now, and others have it, asks first.
        """
        hint = self._handed
        if hint is None or hint.handoff is None or self._asking:
            return
        self._handed = None
        if hint.handoff.number <= self._number:
            leases = [
                Lease(record.uuid, hint.handoff.leased.fence, self.session) for record in hint.handoff.leased.tasks
            ]
            self._also += [Requeued(lease, None, counted=False) for lease in leases if not self.runner.holds(lease)]
        elif hint.handoff.number == self._number + 1 and self._heartbeat.is_confirmed():
            self._number = hint.handoff.number
            self.idle.clear()
            self._start_runs(hint.handoff.leased, self._clock.now())
            self._config.on_turn()
        else:
            self.wake.set()
        if self._also:
            self.wake.set()

    async def _begin(self, claimed: ClaimResult) -> bool:
        """Tasks to executors, chores to their end, schedules to fire. True: look again at once."""
        now = self._clock.now()
        if claimed.tasks:
            self._start_runs(claimed, now)
        self._take_handed()
        for record in claimed.chores:
            lease = Lease(record.uuid, claimed.fence, self.session)
            self._also.append(outcome_for_chore(record, lease, self._config.sources.get(record.source)))
            self._logs.chores_ended(record)
        self.slots.mark_idle(claimed.idle, self._asked)
        self.slots.wake(claimed.woken - claimed.idle.keys())
        fired = False
        if claimed.schedules and not self._stopping:
            fired = await self._config.fire(claimed.schedules, claimed.now)
        return bool(fired or claimed.more or claimed.chores or self.slots.has_work())

    def _start_runs(self, claimed: ClaimResult | LeasedTasks, now: float) -> None:
        runs: list[Run] = []
        taken: list[str] = []
        fence, session, name = claimed.fence, self.session, ""
        source: Source | None = None
        executor: Executor | None = None
        for record in claimed.tasks:
            lease = Lease(record.uuid, fence, session)
            if record.source != name:  # most come in rows of one source
                name, source = record.source, self._config.sources.get(record.source)
                executor = None if source is None else self._config.executors[source.executor]
            if source is None or executor is None or self._stopping:  # gone, or going, since the ask
                self._also.append(Requeued(lease, None, counted=False))
                continue
            if self.runner.adopt_lease(lease):
                continue
            run = Run(source, record, lease, self)
            run.started, run.executor = now, executor
            taken.append(name)
            runs.append(run)
        self.slots.count(taken, +1)
        self.runner.start(runs)

    async def purge_if_due(self) -> bool:
        """Drops what is kept no more, a few between two turns: others wait for the store meanwhile.

        True: there is more of it. A bound on how many go a minute would be one on how many tasks can run.
        """
        now = self._clock.now()
        if now - self._purged < _PURGE_EVERY:
            return False
        more = await self._store.purge(_PURGE, self._config.most_kept) == _PURGE
        self._purged = self._purged if more else now
        return more

    async def _idle(self) -> None:
        poll, now = self._config.poll_interval, self._clock.now()
        alarm = None if self._alarm is None else max(0.0, self._alarm - now)
        waits = [ms for ms in (alarm, self.slots.next_in(now)) if ms is not None]
        self.next_in = min(waits, default=None)
        if self.is_drained():
            self.idle.set()
        await self.wake.wait(min([poll, *waits]))
        self.idle.clear()

    async def _rest(self, ms: float) -> None:
        self.wake.clear()
        await self.wake.wait(ms)

    # -- what running tasks say

    @property
    def log(self) -> logging.Logger:
        return self._logs.task.logger

    def progress(self, context: TaskContext, done: float, total: float) -> None:
        """From any thread; the last word between two writes stays."""
        note = Note(context.lease, "progress", "", msgspec.json.encode((done, total)))
        with self._notes_lock:
            self._notes[context.uuid] = note
        self.wake.set_threadsafe()

    async def settle_in(self, connection: object, outcome: Outcome) -> Verdict:
        """In the caller's transaction, thread and loop."""
        if isinstance(self._store, AsyncTransactions):
            return await self._store.settle_awaited(connection, outcome)
        if not isinstance(self._store, SyncTransactions):
            raise StoreRefused(f"complete() of task {outcome.lease.uuid}: {NO_TRANSACTION}; return the result")
        return self._store.settle_in(connection, outcome)

    async def _write_notes(self) -> None:
        with self._notes_lock:
            notes, self._notes = self._notes, {}
        for lease in await self._store.note(list(notes.values())):
            self.runner.cancel(lease.uuid, "lost")

    # -- what the store says

    async def _listen(self) -> None:
        pause = _FIRST_PAUSE
        while True:
            try:
                async with aclosing(self._store.hints(self.session)) as hints:
                    async for hint in hints:
                        self._hinted(hint)
                        pause = _FIRST_PAUSE
            except Exception as error:  # noqa: BLE001 - the poll interval carries on meanwhile
                self._logs.error_throttled("listening for hints", error)
            await WakeUp(self._clock).wait(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def _hinted(self, hint: Hint) -> None:
        for uuid, reason in hint.cancel_requests.items():
            self.runner.cancel(uuid, "cancel", reason)
        if hint.resync:
            self.slots.refresh()
        if hint.handoff is not None:
            self._handed = hint
            self._take_handed()
            return
        self.slots.hint(hint.sources)
        self.wake.set()

    def _cancel(self, uuid: str) -> None:
        self.runner.cancel(uuid, "cancel")

    def _lost(self) -> None:
        """The session is dead: others may run what runs here, so it must end."""
        for uuid in list(self.runner.runs):
            self.runner.cancel(uuid, "lost")
        self.wake.set()

    async def _replace_session(self) -> None:
        self._logs.scheduler.error("session %s was declared dead by the store; going on as a new one", self.session)
        self._lost()
        await self._heartbeat.close()
        self._new_session()
        await self._heartbeat.open(self._cancel, self._lost)
        self._loops[1].cancel()
        self._loops[1] = asyncio.create_task(self._listen())
