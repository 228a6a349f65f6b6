"""Turn and claim: which tasks a session gets, and when it is worth asking again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onthedot.stores.contract import BATCH, CHORES, ClaimRequest, ClaimResult, Outcome, Record, TurnResult
from onthedot.stores.rules.alarms import promote
from onthedot.stores.rules.counters import end_waits
from onthedot.stores.rules.lanes import refill_lanes
from onthedot.stores.rules.limits import count_admitted
from onthedot.stores.rules.places import park
from onthedot.stores.rules.sessions import reap_overdue
from onthedot.stores.rules.task_tables import LeasedRecord, SessionEntry, TaskTables


def turn(tables: TaskTables, name: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
    """Settle, reap, refill lanes, end waits, promote alarms, claim: in this order."""
    verdicts = tables.settle(outcomes) if outcomes else []
    if request is not None and tables.overdue_sessions():
        reap_overdue(tables)
    session = tables.find_session(name)
    if session is None or session.role == "client":  # reaped, or a client, which never claims
        return TurnResult(verdicts, alive=False)
    if request is None:
        return TurnResult(verdicts)
    more = False
    if tables.limits.has_limits:
        more = refill_lanes(tables)
    if tables.has_reached and end_waits(tables, BATCH) == BATCH:
        more = True
    due = tables.pop_due(BATCH)
    if due:
        promote(tables, due)
    return TurnResult(verdicts, claim(tables, session, request, more=more or len(due) == BATCH))


def claim(tables: TaskTables, session: SessionEntry, request: ClaimRequest, *, more: bool) -> ClaimResult:
    """A repeated number returns the tasks still leased under it and claims nothing new; an older one takes nothing.

    After a gap in the numbers, the leases of the session are renewed and returned; without leases it is a claim like
    any other.
    """
    tasks: list[Record] = []
    chores: list[Record] = []
    is_late = request.number < session.number
    has_gap = request.number > session.number + 1
    if request.number == session.number:
        tasks, chores = tables.leased_under(session)
    elif has_gap and (leased := tables.leased_by(session.name)):
        tasks, chores = _renew_leases(tables, session, request.number, leased)
    elif not is_late:
        tasks, chores = _take(tables, session, request)
    idle = idle_sources(tables, request, suspects=request.max_suspects > session.suspects)
    return ClaimResult(
        session.fence if tasks or chores else 0,
        tasks,
        chores,
        tables.due_schedules(),
        idle,
        frozenset(tables.notifications.woken),
        next_in(tables, idle),
        more or is_late or has_gap or len(chores) == CHORES,
        tables.now,
        tables.identity(),
    )


def _take(tables: TaskTables, session: SessionEntry, request: ClaimRequest) -> tuple[list[Record], list[Record]]:
    chores = tables.pop_chores(CHORES)
    if request.known_sources is not None:
        chores += tables.pop_strays(request.known_sources, CHORES - len(chores))
    tasks: list[Record] = []
    for pool in request.pools:
        picked, suspects = tables.pick(pool, request.max_suspects - session.suspects)
        tasks += picked
        session.suspects += suspects
    session.number = request.number
    session.fence = tables.lease(session.name, tasks, chores)
    tables.save_claim(session)
    return tasks, chores


def _renew_leases(
    tables: TaskTables, session: SessionEntry, number: int, leased: Sequence[LeasedRecord]
) -> tuple[list[Record], list[Record]]:
    """The store has lost the requests in between and what was settled with them.

    The worker perhaps runs these tasks no longer, so it gets them once more, under this number.
    """
    tasks = [each.record for each in leased if not each.chore]
    chores = [each.record for each in leased if each.chore]
    tables.release(leased, session.name)
    session.number = number
    session.fence = tables.lease(session.name, tasks, chores)
    tables.save_claim(session)
    return tasks, chores


def start(tables: TaskTables, record: Record) -> bool:
    """The last check at the claim: limits may have changed since the task was admitted. False: it is parked."""
    if record.lane is None:
        tables.clear_alarm(record)
        return True
    limits = tables.limits
    lane = limits.lane(record.lane)
    count_admitted(lane, record, -1)
    if not limits.may_start(lane, record.policy.cost, tables.now):
        park(tables, record)
        return False
    tables.clear_alarm(record)
    lane.running += 1
    first = tables.first_parked(record.lane)
    if first is not None:  # sets the refill: from now on, time may give the lane capacity for it
        limits.has_capacity(lane, first.policy.cost, tables.now)
    return True


def source_capacity(tables: TaskTables, source: str) -> tuple[float, float | None]:
    """How many more tasks of a source may start, and in how many ms it is worth asking again."""
    if not tables.limits.has_limits:
        return float("inf"), None
    return tables.limits.source_capacity(source, tables.count_running(source), tables.now)


def idle_sources(tables: TaskTables, request: ClaimRequest, *, suspects: bool) -> dict[str, float | None]:
    """Requested sources that have nothing to take, and for how many ms (None: until a hint)."""
    idle: dict[str, float | None] = {}
    for pool in request.pools:
        for source, slots in pool.capacity.items():
            if slots <= 0:
                continue
            if not tables.has_ready(source, suspects=suspects):
                idle[source] = None
                continue
            capacity, wait = source_capacity(tables, source)
            if capacity <= 0:
                idle[source] = wait
    return idle


def next_in(tables: TaskTables, idle: Mapping[str, float | None]) -> float | None:
    """ms to the next moment at which something happens by itself."""
    waits = [wait for wait in idle.values() if wait is not None]
    waits += [max(0.0, time - tables.now) for time in tables.next_times() if time is not None]
    return min(waits, default=None)
