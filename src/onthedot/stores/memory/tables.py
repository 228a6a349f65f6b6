"""The tasks of a memory store: dicts and ordered queues. All calls come under the store's lock."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from math import ceil

from onthedot.stores.contract import (
    ENDED,
    NO_HISTORY,
    Added,
    Completed,
    Lease,
    Links,
    NewTask,
    Outcome,
    Record,
    SlotPool,
    State,
    StoreIdentity,
    Verdict,
)
from onthedot.stores.memory import retention
from onthedot.stores.memory.change_log import ChangeSet
from onthedot.stores.memory.claim import MemoryPicker
from onthedot.stores.memory.counter_tables import MemoryCounterTables
from onthedot.stores.memory.ended_tasks import EndedTable
from onthedot.stores.memory.limits import MemoryLimitTable
from onthedot.stores.memory.ordered_queue import OrderedQueue
from onthedot.stores.memory.settle import settle
from onthedot.stores.memory.side_tables import ResultTable
from onthedot.stores.rules.insert import first_history, new_record
from onthedot.stores.rules.places import due_in, end_as_chore
from onthedot.stores.rules.records import UNQUEUED_REASONS, alarm_of, with_history, with_state
from onthedot.stores.rules.task_tables import LeasedRecord, SessionEntry, waits_of

_NO_COUNTS: dict[State, int] = {
    "scheduled": 0, "parked": 0, "ready": 0, "running": 0, "waiting": 0, "succeeded": 0, "failed": 0, "cancelled": 0,
}  # fmt: skip


class ClaimEntry:
    """The tasks, or the chores, of one claim: one object for all of them."""

    __slots__ = ("at", "chores", "fence", "remaining", "session", "uuids")

    def __init__(self, fence: int, session: str, at: int, uuids: list[str], *, chores: bool) -> None:
        self.fence: int = fence
        self.session: str = session
        self.at: int = at
        self.uuids: list[str] = uuids
        self.chores: bool = chores
        self.remaining: int = len(uuids)  # still leased


class MemoryTables(MemoryCounterTables):
    """`TaskTables` in memory."""

    def __init__(self, identity: str, wall_clock_jump: Callable[[], float]) -> None:
        super().__init__()
        self._id = identity
        self._wall_clock_jump = wall_clock_jump  # absolute times are made by the wall clock
        self.changes: ChangeSet = ChangeSet()
        self.limits: MemoryLimitTable = MemoryLimitTable()
        self.records: dict[str, Record] = {}  # in the order of adding
        self.leases: dict[str, ClaimEntry] = {}  # by uuid
        self.ready: dict[str, OrderedQueue] = {}
        self.suspects: dict[str, OrderedQueue] = {}  # ready, too; apart, since a session runs one at a time
        self.tally: dict[str, dict[State, int]] = {}
        self.has_expiring: bool = False  # some task could expire: then a claim clears alarms
        self._claims: dict[str, dict[ClaimEntry, None]] = {}  # by session
        self._chores: deque[str] = deque()
        self.alarms: OrderedQueue = OrderedQueue()
        self.retained: defaultdict[int, deque[Record]] = defaultdict(
            deque
        )  # ended records by keeping time: each queue in order of time
        self.retained_count: int = 0
        self.ended: EndedTable = EndedTable(self.records)
        self.unqueued: dict[str, None] = {}  # uuids of chores and lifted tasks, leased or not
        self.waiting: OrderedQueue = OrderedQueue()  # all of them have the same moment: the order is that of adding
        self._results = ResultTable()
        self._seq = 0
        self._fence = 0

    # -- records

    def load(self, uuid: str) -> Record | None:
        return self.records.get(uuid)

    def due_time(self, new: NewTask) -> int:
        return due_in(new.after, self.now) if new.at is None else ceil(new.at - self._wall_clock_jump())

    def insert(self, tasks: Sequence[NewTask]) -> list[Added]:
        answers: list[Added] = []
        records: list[Record] = []
        now = self.now
        added = int(now)  # one object for all of them
        links: Links | None = None
        history = NO_HISTORY
        for new in tasks:
            is_new = new.uuid not in self.records and not (self._recent and self.is_recent(new.uuid))
            answers.append(Added(new.uuid, is_new))
            if is_new:
                self._seq += 1
                due = added if new.at is None and new.after <= 0 else self.due_time(new)
                if new.links is not links:
                    links = new.links
                    history = first_history(links, now)
                record = new_record(new, self._seq, due, added, now, history)
                self.records[new.uuid] = record
                records.append(record)
        self.enter(records)
        return answers

    def insert_copy(self, record: Record) -> int:  # noqa: ARG002 - `enter_chores` stores it
        self._seq += 1
        return self._seq

    def save(self, record: Record, *, leased: bool = False) -> None:  # noqa: ARG002 - leases refer to uuids
        self.records[record.uuid] = record

    def replace_request(self, record: Record) -> None:
        pass  # `enter` stores the whole record

    def delete_ended(self, record: Record) -> None:
        self.leave_ended(record)
        self._delete(record)
        self._results.drop(record.uuid)

    def leave_ended(self, record: Record) -> None:
        self.retained_count -= 1
        self.tally[record.source][record.state] -= 1

    def _delete(self, record: Record) -> None:
        del self.records[record.uuid]
        self.drop_journal(record.seq)

    def counts(self, source: str) -> dict[State, int]:
        counts = self.tally.get(source)
        if counts is None:
            counts = self.tally[source] = dict(_NO_COUNTS)
        return counts

    def count(self, source: str, state: State, by: int) -> None:
        self.counts(source)[state] += by

    def count_running(self, source: str) -> int:
        return self.counts(source)["running"]

    # -- places

    def enter(self, records: Sequence[Record]) -> None:
        """Tasks that are added or released together usually share all that decides about their place."""
        self.records.update({record.uuid: record for record in records})
        for sharing in _sharing_places(records):
            first = sharing[0]
            state = first.state
            self.counts(first.source)[state] += len(sharing)
            if state == "ready":
                self._ready_queue(first).push_many(first.rank, sharing)
                self.notifications.woken.add(first.source)
            elif state == "parked":
                assert first.lane is not None
                self.limits.parked_in(first.lane).push_many(first.rank, sharing)
            elif state == "waiting":
                self._enter_waiting(sharing)
                continue
            if state == "scheduled" or first.policy.expires is not None:
                for record in sharing:
                    self._set_alarm(record)
        self.changes.entered += records

    def _enter_waiting(self, records: Sequence[Record]) -> None:
        self.waiting.push_many(0, records)
        for wait, until, sharing in waits_of(records):
            if self.counters.add_waiting(wait, sharing):
                self.notifications.wait_over = True
            if until is not None:
                self.alarms.push_many(until, sharing)
                self.notifications.alarmed.update(record.source for record in sharing)

    def _set_alarm(self, record: Record) -> None:
        alarm = alarm_of(record)
        if alarm is not None:
            self.alarms.push(alarm, record)
            self.notifications.alarmed.add(record.source)
            self.has_expiring = self.has_expiring or record.policy.expires is not None

    def leave(self, record: Record) -> None:
        self.counts(record.source)[record.state] -= 1
        if record.state == "ready":
            self._ready_queue(record).remove(record.rank, record)
        elif record.state == "parked":
            assert record.lane is not None
            self.limits.parked_in(record.lane).remove(record.rank, record)
        elif record.state == "waiting":
            self._leave_waiting([record], timed=False)

    def _leave_waiting(self, records: Sequence[Record], *, timed: bool) -> None:
        """timed: their timeouts end, too."""
        self.waiting.remove_many(0, records)
        for wait, until, sharing in waits_of(records):
            self.counters.remove_waiting(wait, sharing)
            if timed and until is not None:
                self.alarms.remove_many(until, sharing)

    def leave_waits(self, records: Sequence[Record]) -> None:
        for source, number in Counter(record.source for record in records).items():
            self.counts(source)["waiting"] -= number
        self._leave_waiting(records, timed=True)

    def clear_alarm(self, record: Record) -> None:
        alarm = alarm_of(record)
        if alarm is not None:
            self.alarms.remove(alarm, record)

    def _ready_queue(self, record: Record) -> OrderedQueue:
        queues = self.suspects if record.is_suspect else self.ready
        queue = queues.get(record.source)
        if queue is None:
            queue = queues[record.source] = OrderedQueue()
        return queue

    def pop_due(self, limit: int) -> Sequence[Record]:
        popped: list[Record] = []
        while len(popped) < limit and (record := self.alarms.pop_until(self.now)) is not None:
            popped.append(record)
        return popped

    def pop_refilled(self, limit: int) -> Sequence[str]:
        return self.limits.pop_refilled(limit, self.now)

    def first_parked(self, lane: str) -> Record | None:
        parked = self.limits.parked.get(lane)
        return None if parked is None else parked.first_record()

    def forget_lane(self, lane: str) -> None:
        self.limits.forget(lane)

    def next_times(self) -> Iterable[float | None]:
        return self.alarms.moment(), self.limits.next_refill(), self._first_death, self.next_window()

    # -- chores

    def enter_chores(self, record: Record, *, queued: bool) -> None:
        self.records[record.uuid] = record
        self.counts(record.source)[record.state] += 1
        self.changes.entered.append(record)
        self.unqueued[record.uuid] = None
        if queued:
            self._chores.append(record.uuid)

    def pop_chores(self, limit: int) -> list[Record]:
        popped: dict[str, Record] = {}  # a chore that a cancel leased and that came back is queued twice
        while self._chores and len(popped) < limit:
            record = self.records.get(self._chores.popleft())
            if record is not None and self._is_chore(record):
                popped[record.uuid] = record
        return list(popped.values())

    def _is_chore(self, record: Record) -> bool:
        """A cancel may have leased it, and it may have ended or even been revived since."""
        reason = record.history.reason
        is_due = reason in UNQUEUED_REASONS and reason != "lifted"
        return is_due and record.uuid not in self.leases and record.state not in ENDED

    def pop_strays(self, known: frozenset[str], limit: int) -> list[Record]:
        strays: list[Record] = []
        for queues in (self.ready, self.suspects):
            for source in queues.keys() - known:
                while len(strays) < limit and (record := queues[source].first_record()) is not None:
                    strays.append(end_as_chore(self, record, "stray"))
        return strays

    # -- claims and leases

    def identity(self) -> StoreIdentity:
        return StoreIdentity(self._id, self._fence)

    def has_ready(self, source: str, *, suspects: bool) -> bool:
        queue = self.ready.get(source)
        if queue is not None and queue.first() is not None:
            return True
        queue = self.suspects.get(source) if suspects else None
        return queue is not None and queue.first() is not None

    def suspect_sources(self) -> Iterable[str]:
        return self.suspects.keys()

    def pick(self, pool: SlotPool, max_suspects: int) -> tuple[list[Record], int]:
        picker = MemoryPicker(self, pool, max_suspects)
        return picker.run(), max_suspects - picker.suspects

    def lease(self, session: str, tasks: Sequence[Record], chores: Sequence[Record]) -> int:
        if not tasks and not chores:
            return 0
        self._fence += 1
        if tasks:
            self._lease(session, tasks, chores=False)
        if chores:
            self._lease(session, chores, chores=True)
        return self._fence

    def _lease(self, session: str, records: Sequence[Record], *, chores: bool) -> None:
        uuids = [record.uuid for record in records]
        claim = ClaimEntry(self._fence, session, int(self.now), uuids, chores=chores)
        self.leases.update(dict.fromkeys(uuids, claim))
        self._claims.setdefault(session, {})[claim] = None

    def leased_under(self, session: SessionEntry) -> tuple[list[Record], list[Record]]:
        leased = [each for each in self.leased_by(session.name) if each.fence == session.fence]
        tasks = [each.record for each in leased if not each.chore]
        chores = [each.record for each in leased if each.chore]
        return tasks, chores

    def leased_by(self, session: str) -> Sequence[LeasedRecord]:
        return [
            LeasedRecord(self.records[uuid], claim.fence, claim.at, claim.chores)
            for claim in self._claims.get(session, ())
            for uuid in claim.uuids
            if self.leases.get(uuid) is claim
        ]

    def lease_holder(self, record: Record) -> str | None:
        claim = self.leases.get(record.uuid)
        return None if claim is None else claim.session

    def find_leased(self, lease: Lease) -> int | None:
        claim = self.leases.get(lease.uuid)
        if claim is None or claim.fence != lease.fence or claim.session != lease.session:
            return None
        return self.records[lease.uuid].seq

    def release(self, leased: Sequence[LeasedRecord], session: str) -> None:
        for each in leased:
            del self.leases[each.record.uuid]
        self._claims.pop(session, None)

    # -- settle

    def settle(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        return settle(self, outcomes)

    def end_lease(self, record: Record, claim: ClaimEntry) -> None:
        del self.leases[record.uuid]
        claim.remaining -= 1
        if not claim.remaining:
            self._claims[claim.session].pop(claim, None)
        if claim.chores:
            self.tally[record.source][record.state] -= 1
            self.unqueued.pop(record.uuid, None)
            return
        self.tally[record.source]["running"] -= 1
        if record.lane is not None:
            self.limits.lane(record.lane).running -= 1
        if self.suspects and record.is_suspect:
            self._sessions[claim.session].suspects -= 1

    def keep_result(self, outcome: Completed) -> bytes | None:
        """The result, unless it is to be dropped before its record: then it is kept apart."""
        if not outcome.result or outcome.keep_result is None:
            return outcome.result
        self._results.put(outcome.lease.uuid, outcome.result, min(outcome.keep, outcome.keep_result), self.now)
        return None

    def store_end(self, record: Record, keep: int) -> None:
        """record: as it has ended. keep: ms; 0: it is not retained."""
        self.changes.ended.append(record)
        if keep <= 0:
            self._delete(record)
            self.remember(record)
            return
        self.records[record.uuid] = record
        counts = self.tally[record.source]
        counts[record.state] += 1
        self.ended.append(record, counts[record.state])
        self.retained[keep].append(record)
        self.retained_count += 1

    # -- retention

    def drop_expired(self, limit: int) -> int:
        return retention.drop_expired(self, limit)

    def drop_oldest(self, limit: int, most: int) -> int:
        return retention.drop_oldest(self, limit, most)

    def drop_expired_results(self, limit: int) -> None:
        self._results.purge(limit, self.now)

    # -- reads

    def result(self, record: Record, now: float) -> bytes | None:
        """Of a task that has succeeded; it may be kept apart."""
        if record.history.result is None:
            return self._results.get(record.uuid, now)
        return record.history.result

    def as_seen(self, record: Record, now: float) -> Record:
        """As a reader sees it: with the claim that holds it, or its result."""
        if record.state == "succeeded":
            result = self.result(record, now)
            if result is record.history.result:
                return record
            return with_state(record, "succeeded", with_history(record.history, result=result))
        claim = self.leases.get(record.uuid)
        if claim is None or claim.chores:
            return record
        return with_state(record, "running", with_history(record.history, session=claim.session, started=claim.at))


def _sharing_places(records: Sequence[Record]) -> list[list[Record]]:
    """Records in runs with the same state, source, lane, due time, policy and history."""
    runs: list[list[Record]] = []
    sharing: list[Record] = []
    first: Record | None = None
    for record in records:
        if (
            first is None
            or record.history is not first.history
            or record.policy is not first.policy
            or record.due != first.due
            or record.state != first.state
            or record.source != first.source
            or record.lane != first.lane
        ):
            first = record
            sharing = []
            runs.append(sharing)
        sharing.append(record)
    return runs
