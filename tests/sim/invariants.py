"""The invariants of `docs/reliability.md`, checked after every store call, every step and at the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from onthedot.client.portal import run_without_loop
from onthedot.stores.contract import (
    Added,
    ChangePage,
    ClaimResult,
    Counter as StoredCounter,
    FireRequest,
    Lease,
    LeasedTasks,
    NewTask,
    Outcome,
    Page,
    Record,
    Schedule,
    TurnResult,
)
from tests.sim.app import CAPS, LANE_CAP, RATE
from tests.sim.clock import SimClock
from tests.sim.flow_checks import ENDED, FlowCheck


class Violation(Exception):
    """An invariant does not hold."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")


Report = Callable[[str, str], None]
"""Takes the name of an invariant that does not hold, and the reason. It does not raise: the engine would catch it."""


class Inspected(Protocol):
    """The part of a store that the checks read, without suspending."""

    async def changes(self, after: str, limit: int, resolve: int = 0) -> ChangePage: ...
    async def schedules(self) -> Sequence[Schedule]: ...
    async def find(self, where: Mapping[str, str], after: str | None, limit: int) -> Page: ...
    async def get(self, uuids: Sequence[str]) -> Sequence[Record | None]: ...
    async def counters(self, names: Sequence[str]) -> Sequence[StoredCounter]: ...


class ExecutedCall(NamedTuple):
    """A call that a store has executed."""

    verb: str
    args: tuple[Any, ...]
    result: Any
    expected: Sequence[bool] = ()  # of a turn: whether each outcome has the current lease of its task


@dataclass(eq=False)
class StoreCopy:
    """The copy of the store that the checks know."""

    holders: Mapping[str, Lease]
    windows: AbstractSet[str]
    first_window: Mapping[str, int]
    has_limits: bool
    started_without: AbstractSet[str] = frozenset()


@dataclass(eq=False)
class StoreCheck:
    """Follows the change feed commit by commit, and compares it with what the store has answered."""

    store: Inspected
    clock: SimClock  # the store's
    report: Report

    def __post_init__(self) -> None:
        self._cursor = run_without_loop(self.store.changes("", 1)).cursor
        self.flows: FlowCheck = FlowCheck(lambda: self.store, self.clock, self.report)
        self.revived: set[str] = set()  # tasks that a node has retried: they may run and end again
        self.states: dict[str, str] = {}
        self.sources: dict[str, str] = {}
        self._holders: dict[str, Lease] = {}
        self._restored: set[Lease] = set()  # of an older state: the store may renew them
        self._forgotten: set[Lease] = set()  # that a store had when its data were replaced
        self._lapsed: set[str] = set()  # sessions whose last heartbeats the older state does not have
        self._sessions: dict[tuple[str, int], str] = {}  # of leases, by uuid and fence
        self._lanes: dict[str, str | None] = {}
        self._running: dict[str, str] = {}  # uuid → source
        self.ended_at: dict[str, float] = {}  # ms
        self._starts: list[float] = []  # of `rated`
        self._schedules: dict[str, Schedule] = {}
        self._ends: Counter[str] = Counter()
        self.windows: dict[str, set[str]] = defaultdict(set)  # uuids of the tasks of fired windows, by schedule
        self.first_window: dict[str, int] = {}
        self._has_limits = True  # False: they are lost, until code declares them again
        self._started_without: set[str] = set()  # running tasks that started before that
        self._absent: set[str] = set()  # tasks whose add has raised, and that were not stored then

    # -- after a commit

    def holds(self, outcomes: Sequence[Outcome]) -> list[bool]:
        """Whether each outcome has the lease under which its task is held now."""
        return [self._holders.get(outcome.lease.uuid) == outcome.lease for outcome in outcomes]

    def committed(self, calls: Sequence[ExecutedCall]) -> None:
        """The calls of one transaction are visible."""
        for call in calls:
            self._check_call(call)
        self._follow()
        if calls:
            self.flows.committed([call.verb for call in calls], calls[-1].result)
        for call in calls:
            match call.verb:
                case "turn":
                    self._note_claim(call.args[0], call.result.claim)
                case "cancel" | "lift":
                    self._note_leases(call.args[0], call.result)
                case "fire" | "put_schedules":
                    self._check_schedules()
                case "put_limits":
                    self._restore_limits()
                case "heartbeat":
                    self._lapsed.discard(call.args[0])

    def _check_call(self, call: ExecutedCall) -> None:
        """Before its changes are read."""
        match call.verb:
            case "turn":
                self._check_verdicts(call.args[1], call.result, call.expected)
            case "fire":
                self._check_fires(call.args[0], call.result)
            case "add":
                self._note_tasks(call.args[0])
                self._check_added(call.args[0], call.result)
            case "note":
                self.flows.note_steps(call.args[0], call.result)
            case "revive":
                self.revived.update(call.result)

    def copy(self) -> StoreCopy:
        """The state of the store now, for a later `reload`."""
        windows = set(self.windows["tick"])
        started_without = frozenset(self._started_without)
        return StoreCopy(self._holders.copy(), windows, self.first_window.copy(), self._has_limits, started_without)

    def reload(self, store: Inspected, copy: StoreCopy) -> None:
        """The store has gone back to an older state."""
        self.store = store
        self._cursor = run_without_loop(store.changes("", 1)).cursor
        self._forgotten.update(self._holders.values())
        self._holders = dict(copy.holders)
        self._restored = set(copy.holders.values())
        self._lapsed = {lease.session for lease in copy.holders.values()}
        self._has_limits = copy.has_limits
        self._started_without = set(copy.started_without)
        self._schedules = {schedule.name: schedule for schedule in run_without_loop(store.schedules())}
        records: list[Record] = []
        after: str | None = ""
        while after is not None:
            page = run_without_loop(store.find({}, after or None, 500))
            records += page.rows
            after = page.after
        self.states = {record.uuid: record.state for record in records}
        self.sources.update({record.uuid: record.source for record in records})
        self.flows.reload(records)
        self._absent -= self.states.keys()  # stored in the older state
        self._running = {uuid: self.sources[uuid] for uuid, state in self.states.items() if state == "running"}
        self._ends = Counter(uuid for uuid, state in self.states.items() if state in ENDED)
        self._starts.clear()  # an older bucket does not have them
        self.windows["tick"] = copy.windows & self.states.keys()
        self.first_window = dict(copy.first_window)

    # -- settle

    def _check_verdicts(self, outcomes: Sequence[Outcome], turn: TurnResult, expected: Sequence[bool]) -> None:
        settled: set[Lease] = set()  # by an earlier outcome of this turn: an older state may give out the same lease
        for outcome, verdict, is_held in zip(outcomes, turn.verdicts, expected, strict=True):
            uuid = outcome.lease.uuid
            if verdict == "ok" and not is_held:
                holder = self._holders.get(uuid)
                self.report("I3", f"a stale lease has settled: {outcome.lease}, held by {holder}")
            if verdict != "ok" and is_held and outcome.lease not in settled:
                self.report("I3", f"the holder of a lease was refused ({verdict}): {outcome.lease}")
            if verdict == "ok":
                settled.add(outcome.lease)
                self._holders.pop(uuid, None)
                self.flows.note_outcome(outcome)
                if outcome.effects is not None:
                    self._note_tasks(outcome.effects.tasks)

    def _note_tasks(self, tasks: Sequence[NewTask]) -> None:
        self.flows.note_tasks(tasks)
        for task in tasks:
            self._lanes.setdefault(task.uuid, task.lane)

    # -- claims

    def _note_claim(self, session: str, claim: ClaimResult | None) -> None:
        if claim is not None:
            for record in (*claim.tasks, *claim.chores):
                self._hold(record, Lease(record.uuid, claim.fence, session))

    def _note_leases(self, session: str, leased: LeasedTasks) -> None:
        for record in leased.tasks:
            self._hold(record, Lease(record.uuid, leased.fence, session))

    def _hold(self, record: Record, lease: Lease) -> None:
        holder = self._holders.get(record.uuid)
        is_renewed = holder in self._restored and holder.session == lease.session
        if holder is not None and holder != lease and not is_renewed:
            self.report("I3", f"leased twice: {lease}, held by {holder}")
        self._holders[record.uuid] = lease
        self._sessions[lease.uuid, lease.fence] = lease.session

    # -- the change feed

    def _follow(self) -> None:
        page = run_without_loop(self.store.changes(self._cursor, 1000, resolve=1_000_000))
        self._cursor = page.cursor
        for entry in page.entries:
            for each in entry.transitions:
                self._transition(each.uuid, each.source, each.state)
        if page.entries and self._has_limits:
            self._check_limits()

    def _transition(self, uuid: str, source: str, state: str) -> None:
        if uuid in self._absent:
            self.report("I12", f"{source} {uuid} was stored after its add had raised")
        before = self.states.get(uuid)
        self.flows.transition(uuid, source, before, state)
        self.states[uuid] = state
        self.sources[uuid] = source
        if before in ENDED and state not in ENDED and uuid in self.revived:
            self._ends[uuid] = 0
        if state == "running":
            self._running[uuid] = source
            if source == "rated":
                self._starts.append(self.clock.now() / 1000)
            return
        self._running.pop(uuid, None)
        self._holders.pop(uuid, None)
        if state in ENDED:
            self._ends[uuid] += 1
            self.ended_at[uuid] = self.clock.now()
            if self._ends[uuid] > 1:
                self.report("I2", f"{source} {uuid} has ended {self._ends[uuid]} times")

    def _restore_limits(self) -> None:
        if not self._has_limits:
            self._has_limits = True
            self._started_without = set(self._running)
            self._starts.clear()

    def _check_limits(self) -> None:
        self._started_without &= self._running.keys()
        by_source = Counter(self._running.values())
        excused = Counter(self._running[uuid] for uuid in self._started_without)
        for source, cap in CAPS.items():
            if by_source[source] > max(cap, excused[source]):
                self.report("I10", f"{by_source[source]} of {source} run at once, the limit is {cap}")
        lanes = self._by_lane(self._running)
        excused = self._by_lane(self._started_without)
        for lane, number in lanes.items():
            if number > max(LANE_CAP, excused[lane]):
                self.report("I10", f"{number} run at once in lane {lane}, the limit is {LANE_CAP}")
        if self._starts:
            last = self._starts[-1]
            self._starts = [start for start in self._starts if start > last - 20]
            for index, start in enumerate(self._starts):
                if len(self._starts) - index > RATE + RATE * (last - start) + 1e-6:
                    self.report("I10", f"{len(self._starts) - index} starts of rated in {last - start:.3f} s")

    def _by_lane(self, uuids: Iterable[str]) -> Counter[str]:
        return Counter(lane for uuid in uuids if (lane := self._lanes.get(uuid)) is not None)

    # -- adds and schedules

    def refused(self, uuid: str, stored: bool | None) -> None:
        """The add of a task has raised."""
        if uuid not in self.states:
            self._absent.add(uuid)
        elif stored is False:
            self.report("I12", f"{uuid} is stored, and its add has raised that it is not")

    def _check_added(self, tasks: Sequence[NewTask], answers: Sequence[Added]) -> None:
        for task, added in zip(tasks, answers, strict=True):
            if added.uuid != task.uuid and self.states.get(added.uuid) in ENDED:
                self.report("unique", f"{task.source} {task.unique!r}: the key is held by a task that has ended")

    def _check_fires(self, fires: Sequence[FireRequest], written: Sequence[bool]) -> None:
        for fire, is_written in zip(fires, written, strict=True):
            old = self._schedules.get(fire.name)
            if not is_written or old is None:
                continue
            if fire.rev != old.rev:
                self.report("I5", f"{fire.name} was fired with revision {fire.rev}, and it has {old.rev}")
            self._note_tasks(fire.tasks)
            self.windows[fire.name].update(task.uuid for task in fire.tasks)

    def _check_schedules(self) -> None:
        for schedule in run_without_loop(self.store.schedules()):
            old = self._schedules.get(schedule.name)
            if old is not None and (schedule.next_at or 0) < (old.next_at or 0):
                self.report("I5", f"next_run of {schedule.name} went from {old.next_at} to {schedule.next_at}")
            if old is not None and schedule.rev - old.rev not in (0, 1):
                self.report("I5", f"the revision of {schedule.name} went from {old.rev} to {schedule.rev}")
            if old is None and schedule.next_at is not None:
                self.first_window[schedule.name] = schedule.next_at
            self._schedules[schedule.name] = schedule

    def schedule(self, name: str) -> Schedule | None:
        return self._schedules.get(name)

    def is_lost(self, uuid: str) -> bool:
        """It was stored before the data were replaced."""
        return uuid in self.sources and uuid not in self.states

    def fence_of(self, uuid: str) -> int | None:
        """The fence of the lease under which a task runs now."""
        holder = self._holders.get(uuid)
        return None if holder is None else holder.fence

    def may_have_lapsed(self, uuid: str, fence: int) -> bool:
        """The store has gone back, and has no later heartbeat of the session: it may think that the session is dead."""
        return self._sessions.get((uuid, fence)) in self._lapsed

    def was_forgotten(self, uuid: str, fence: int) -> bool:
        """When the data were replaced, the task was held under this fence. It may be given out again."""
        return any(lease.uuid == uuid and lease.fence == fence for lease in self._forgotten)
