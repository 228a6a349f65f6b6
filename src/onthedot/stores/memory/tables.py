"""Where every task is, and the steps between: add, arrive, park, admit, let go, end.

No clock, session or hint in here: those are the store's. All calls come under its lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from math import ceil

from onthedot.stores.contract import BATCH, NO_HISTORY, Added, History, NewTask, Reason, Record, State
from onthedot.stores.memory.results import ResultTable
from onthedot.stores.rules.limits import LimitTable, admitted
from onthedot.stores.rules.ordered_queue import OrderedQueue
from onthedot.stores.rules.records import (
    CHORE_REASONS,
    ENDED,
    adopted,
    alarm,
    due_in,
    expiry,
    is_superseded,
    rescheduled,
    revived,
    with_history,
    with_state,
)

_NO_COUNTS: dict[State, int] = {
    "scheduled": 0, "parked": 0, "ready": 0, "running": 0, "succeeded": 0, "failed": 0, "cancelled": 0,
}  # fmt: skip


class ClaimEntry:
    """What one claim took. One object for all its tasks: a claim costs one entry, not one a task."""

    __slots__ = ("at", "chores", "fence", "left", "session", "taken")

    def __init__(self, fence: int, session: str, at: int, *, chores: bool = False) -> None:
        self.fence: int = fence
        self.session: str = session
        self.at: int = at
        self.chores: bool = chores
        self.taken: list[str] = []  # uuids; those that `Board.holds` still says are this claim's are held
        self.left: int = 0


class ChangeSet:
    """What one call has changed, for the change log and for those who wait."""

    __slots__ = ("ended", "entered", "started")

    def __init__(self) -> None:
        self.entered: list[Record] = []
        self.started: list[Record] = []
        self.ended: list[Record] = []

    def __bool__(self) -> bool:
        return bool(self.entered or self.started or self.ended)

    def clear(self) -> None:
        self.entered.clear()
        self.started.clear()
        self.ended.clear()


class MemoryTables:
    def __init__(self, ahead: Callable[[], float]) -> None:
        self.ahead = ahead  # by how much the wall clock, which moments are made by, has jumped
        self.records: dict[str, Record] = {}  # in the order of adding
        self.holds: dict[str, ClaimEntry] = {}
        self.limits: LimitTable = LimitTable()
        self.ready: dict[str, OrderedQueue] = {}
        self.suspects: dict[str, OrderedQueue] = {}  # ready, too, but apart: a session runs one at a time
        self.tally: dict[str, dict[State, int]] = {}
        self.woken: set[str] = set()  # sources that got ready tasks or freed capacity in this call
        self.sooner: set[str] = set()  # sources that got an alarm
        self.moves: ChangeSet = ChangeSet()
        self.gone: list[str] = []  # uuids of records that this call dropped
        self._chores: deque[str] = deque()
        self._alarms = OrderedQueue()
        self.expiring: bool = False  # some task was to expire: then the taken ones have alarms to be unset
        self._kept: dict[int, deque[Record]] = {}  # ended ones by how long they are kept: each a queue in time
        self._kept_count = 0
        self.results: ResultTable = ResultTable()
        self._uniques: dict[tuple[str, str], tuple[str, int | None]] = {}
        self._key_ends: list[tuple[int, tuple[str, str]]] = []  # of those that are held for a time
        self._seq = 0

    def counts(self, source: str) -> dict[State, int]:
        counts = self.tally.get(source)
        if counts is None:
            counts = self.tally[source] = dict(_NO_COUNTS)
        return counts

    # -- adding

    def add(self, new: NewTask, at: int, now: float) -> Added:
        """at: now in whole milliseconds, one object for all that come together."""
        if new.uuid in self.records:
            return Added(new.uuid, fresh=False)
        if new.unique is not None:
            holder = self._holder(new.source, new.unique, now)
            if holder is not None:
                if new.policy.on_conflict == "replace":
                    self._replace(holder, new, now)
                return Added(holder, fresh=False)
            self._hold_key(new.uuid, new, at)
        self._seq += 1
        self._insert(new.uuid, new, self._seq, at, NO_HISTORY, now)
        return Added(new.uuid, fresh=True)

    def adopt(self, record: Record, now: float) -> Added:
        """A copy of another store's, lifted."""
        here = self.records.get(record.uuid)
        if here is not None and not is_superseded(here, record):
            return Added(record.uuid, fresh=False)
        if record.unique is not None:
            holder = self._holder(record.source, record.unique, now)
            if holder not in (None, record.uuid):
                return Added(holder, fresh=False)
            self._hold_key(record.uuid, record, record.added)
        if here is not None:
            self._drop(here)
        self._seq += 1
        self.queue_chore(adopted(record, self._seq))
        return Added(record.uuid, fresh=True)

    def _insert(self, uuid: str, new: NewTask, seq: int, at: int, history: History, now: float) -> None:
        due = ceil(new.at - self.ahead()) if new.at is not None else due_in(new.after, now)
        state: State = "ready" if due <= now and new.lane is None else "scheduled"
        self._enter(Record(uuid, new.source, new.body, new.policy, new.lane, new.unique, due, seq, at, state, history))

    def _hold_key(self, uuid: str, new: NewTask | Record, added: int) -> None:
        assert new.unique is not None
        until = None if new.policy.unique_for is None else added + new.policy.unique_for
        key = (new.source, new.unique)
        self._uniques[key] = (uuid, until)
        if until is not None:
            heappush(self._key_ends, (until, key))

    def _replace(self, uuid: str, new: NewTask, now: float) -> None:
        record = self.records.get(uuid)
        if record is None or record.state in ENDED or uuid in self.holds or record.history.reason in CHORE_REASONS:
            return
        self._leave(record, now)
        self._hold_key(uuid, new, record.added)
        self._insert(uuid, new, record.seq, record.added, record.history, now)

    def _holder(self, source: str, unique: str, now: float) -> str | None:
        leased = self._uniques.get((source, unique))
        if leased is None or (leased[1] is not None and leased[1] <= now):
            return None
        return leased[0]

    # -- entering and leaving a place

    def _enter(self, record: Record) -> None:
        """Its state says where: scheduled, ready or parked."""
        self.records[record.uuid] = record
        self.counts(record.source)[record.state] += 1
        self.moves.entered.append(record)
        if record.state == "ready":
            self._ready_of(record).push(record.rank, record)
            self.woken.add(record.source)
        if (rings := alarm(record)) is not None:
            self._alarms.push(rings, record)
            self.sooner.add(record.source)
            self.expiring = self.expiring or record.policy.expires is not None
        if record.lane is not None and record.state != "scheduled":
            lane = self.limits.lane(record.lane)
            if record.state == "ready":
                admitted(lane, record, +1)
            else:
                lane.parked.push(record.rank, record)

    def _leave(self, record: Record, now: float, *, rang: bool = False) -> None:
        """Out of its place, not by being taken."""
        self.counts(record.source)[record.state] -= 1
        if not rang:
            self.clear_alarm(record)
        if record.state == "ready":
            self._ready_of(record).remove(record.rank, record)
        if record.lane is not None and record.state != "scheduled":
            lane = self.limits.lane(record.lane)
            if record.state == "ready":
                admitted(lane, record, -1)
            else:
                lane.parked.remove(record.rank, record)
            self.admit(record.lane, now)  # its slot is free, or it stood in the way of those that need less

    def _admit_one(self, record: Record) -> None:
        """From parked into ready."""
        assert record.lane is not None
        self.counts(record.source)["parked"] -= 1
        self.clear_alarm(record)
        self.limits.lane(record.lane).parked.remove(record.rank, record)
        self._enter(with_state(record, "ready"))

    def clear_alarm(self, record: Record) -> None:
        if (rings := alarm(record)) is not None:
            self._alarms.remove(rings, record)

    def _ready_of(self, record: Record) -> OrderedQueue:
        orders = self.suspects if record.is_suspect else self.ready
        order = orders.get(record.source)
        if order is None:
            order = orders[record.source] = OrderedQueue()
        return order

    def arrive(self, record: Record, now: float) -> None:
        """Due: into ready, or behind its lane, from where the first by rank are let in."""
        if record.lane is None:
            self._enter(with_state(record, "ready"))
            return
        self._enter(with_state(record, "parked"))
        self.admit(record.lane, now)
        self.overtake(record.uuid, now)

    def overtake(self, uuid: str, now: float) -> None:
        """One that has just come may pass those before it, if they wait for more tokens than it needs."""
        record = self.records.get(uuid)
        if record is None or record.lane is None or record.state != "parked" or record.history.reason in CHORE_REASONS:
            return
        if self.limits.has_capacity(self.limits.lane(record.lane), record.policy.cost, now):
            self._admit_one(record)

    def park(self, record: Record) -> None:
        """Taken out of ready, but its lane has closed meanwhile."""
        self.counts(record.source)["ready"] -= 1
        self.clear_alarm(record)
        self._enter(with_state(record, "parked"))

    def admit(self, name: str, now: float) -> int:
        """Lets parked ones of a lane into ready while it is open; at most a batch of them."""
        lane = self.limits.lane(name)
        for done in range(BATCH):
            key = lane.parked.first()
            if key is None:
                return done
            record = lane.parked.members[key]
            if not self.limits.has_capacity(lane, record.policy.cost, now):
                return done
            self._admit_one(record)
        self.limits.set_refill(lane, now)
        return BATCH

    # -- time

    def refill_lanes(self, now: float) -> bool:
        """Admits in lanes whose refill has come; False: there may be more."""
        done = 0
        while done < BATCH:
            lane = self.limits.refilled(now)
            if lane is None:
                return True
            done += 1 + self.admit(lane.name, now)
        return False

    def promote(self, now: float) -> bool:
        """Alarms that have come, at most a batch; False: there may be more."""
        for _ in range(BATCH):
            record = self._alarms.pop_until(now)
            if record is None:
                return True
            ends = expiry(record)
            if ends is not None and ends <= now:
                self.end_as_chore(record, "expired", now, rang=True)
            else:
                self._leave(record, now, rang=True)
                self.arrive(record, now)
        return False

    def next_alarm(self) -> float | None:
        moments = (self._alarms.moment(), self.limits.next_refill())
        return min((moment for moment in moments if moment is not None), default=None)

    # -- chores

    def end_as_chore(self, record: Record, reason: Reason, now: float, *, rang: bool = False) -> Record:
        """From its place: it waits for somebody to end it."""
        self._leave(record, now, rang=rang)
        return self.queue_chore(with_state(record, record.state, with_history(record.history, reason=reason)))

    def queue_chore(self, record: Record) -> Record:
        """From nowhere: it was held. A lifted one waits for whoever lifts it again, unless it is to be cancelled."""
        if record.history.reason == "lifted" and record.history.cancel_requested:
            record = with_state(record, record.state, with_history(record.history, reason="cancel"))
        self.records[record.uuid] = record
        self.counts(record.source)[record.state] += 1
        self.moves.entered.append(record)
        if record.history.reason != "lifted":
            self._chores.append(record.uuid)
        return record

    def lift(self, record: Record, now: float) -> Record | None:
        """Out of the order, if it waits there; None: somebody has it, or it must end."""
        if record.uuid in self.holds or (record.history.reason in CHORE_REASONS and record.history.reason != "lifted"):
            return None
        return record if record.history.reason == "lifted" else self.end_as_chore(record, "lifted", now)

    def take_chores(self, claim: ClaimEntry, most: int) -> list[Record]:
        taken: list[Record] = []
        while self._chores and len(taken) < most:
            record = self.records.get(self._chores.popleft())
            if record is not None and self._waits_to_end(record):
                self.hold(record, claim)
                taken.append(record)
        return taken

    def _waits_to_end(self, record: Record) -> bool:
        """It may have been taken by whoever cancelled it, ended, even revived since."""
        must = record.history.reason in CHORE_REASONS and record.history.reason != "lifted"
        return must and record.uuid not in self.holds and record.state not in ENDED

    def hold(self, record: Record, claim: ClaimEntry) -> None:
        self.holds[record.uuid] = claim
        claim.taken.append(record.uuid)
        claim.left += 1

    def held(self, claim: ClaimEntry) -> list[Record]:
        """What a claim still holds."""
        return [self.records[uuid] for uuid in claim.taken if self.holds.get(uuid) is claim]

    # -- letting go of what was held

    def release(self, record: Record, claim: ClaimEntry) -> None:
        """The claim holds it no more; it is nowhere until it enters, waits to end, or ends. Then `freed`."""
        del self.holds[record.uuid]
        claim.left -= 1
        if claim.chores:
            self.tally[record.source][record.state] -= 1
            return
        self.tally[record.source]["running"] -= 1
        if record.lane is not None:
            self.limits.lane(record.lane).running -= 1

    def release_capacity(self, record: Record, now: float) -> None:
        """What it held is free: a limit may let another one in now, or itself again, by rank."""
        if record.lane is not None:
            self.admit(record.lane, now)
            self.overtake(record.uuid, now)
            self.limits.left(self.limits.lane(record.lane))
        if self.limits.declared and self.limits.effective(record.source) is not None:
            self.woken.add(record.source)
        if self.suspects and record.is_suspect:
            self.woken.update(self.suspects)

    def end(self, record: Record, state: State, history: History, keep: int) -> None:
        if record.unique is not None and record.policy.unique_for is None:
            key = (record.source, record.unique)
            if self._uniques.get(key, ("",))[0] == record.uuid:
                del self._uniques[key]
        over = with_state(record, state, history)
        self.moves.ended.append(over)
        if keep <= 0:
            del self.records[record.uuid]
            self.gone.append(record.uuid)
            return
        self.records[record.uuid] = over
        self.tally[record.source][state] += 1
        kept = self._kept.get(keep)
        if kept is None:
            kept = self._kept[keep] = deque()
        kept.append(over)
        self._kept_count += 1

    def requeue(self, record: Record, history: History, after: int | None, now: float) -> None:
        """Back to where it came from, or later; or to the chores, if it must end."""
        if history.cancel_requested or history.reason in CHORE_REASONS:
            reason: Reason = "cancel" if history.cancel_requested else history.reason
            self.queue_chore(with_state(record, "ready", with_history(history, reason=reason)))
            return
        due = record.due if after is None else due_in(after, now)
        later = rescheduled(record, due, history)
        if due <= now:  # behind its lane, if it has one: whoever is first by rank is let in
            later = with_state(later, "ready" if later.lane is None else "parked")
        self._enter(later)

    def revive(self, record: Record, now: float) -> bool:
        if record.unique is not None:
            if self._holder(record.source, record.unique, now) not in (None, record.uuid):
                return False
            if record.policy.unique_for is None:
                self._uniques[record.source, record.unique] = (record.uuid, None)
        self._unkeep(record)
        due = revived(record, now)
        self._enter(due if due.lane is not None else with_state(due, "ready"))
        return True

    # -- retention

    def purge(self, limit: int, most: int, now: float) -> int:
        dropped = 0
        while dropped < limit and (first := self._first_to_go(most, now)) is not None:
            self._drop(first)
            dropped += 1
        while self._key_ends and self._key_ends[0][0] <= now:
            until, key = heappop(self._key_ends)
            if self._uniques.get(key, ("", None))[1] == until:
                del self._uniques[key]
        self.results.purge(limit, now)
        self.limits.sweep(now)
        return dropped

    def _drop(self, record: Record) -> None:
        self._unkeep(record)
        del self.records[record.uuid]
        self.results.drop(record.uuid)
        self.gone.append(record.uuid)

    def _first_to_go(self, most: int, now: float) -> Record | None:
        """The one past its time for longest, else the one that ended first, if there are too many."""
        heads: list[Record] = []
        for kept in self._kept.values():
            while kept and self.records.get(kept[0].uuid) is not kept[0]:
                kept.popleft()  # revived since, or gone
            if kept:
                heads.append(kept[0])
        over = [record for record in heads if _keep_until(record) <= now]
        if over:
            return min(over, key=lambda record: (_keep_until(record), record.seq))
        if self._kept_count <= most:
            return None
        return min(heads, key=lambda record: (record.history.ended or 0, record.seq))

    def _unkeep(self, record: Record) -> None:
        self._kept_count -= 1
        self.tally[record.source][record.state] -= 1

    # -- seeing

    def as_seen(self, record: Record, now: float) -> Record:
        """As others see it: with the claim that holds it, or its result."""
        if record.state == "succeeded":
            result = self.results.get(record.uuid, now) if record.history.result is None else None
            return (
                record
                if result is None
                else with_state(record, "succeeded", with_history(record.history, result=result))
            )
        claim = self.holds.get(record.uuid)
        if claim is None or claim.chores:
            return record
        return with_state(record, "running", with_history(record.history, session=claim.session, started=claim.at))


def _keep_until(record: Record) -> int:
    assert record.history.keep_until is not None  # it has ended
    return record.history.keep_until
