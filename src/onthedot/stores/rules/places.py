"""Where a task is that is not leased, and the steps between these places."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from onthedot.stores.contract import History, Reason, Record, State
from onthedot.stores.rules.lanes import admit, has_capacity
from onthedot.stores.rules.limits import count_admitted
from onthedot.stores.rules.records import UNQUEUED_REASONS, after_wait, rescheduled, with_history, with_state
from onthedot.stores.rules.task_tables import TaskTables

OUTSIDE_LANES: frozenset[State] = frozenset({"scheduled", "waiting"})


def must_end(history: History) -> bool:
    """A chore, or lifted: in no order."""
    return history.cancel_requested or history.reason in UNQUEUED_REASONS


def due_in(after: float, now: float) -> int:
    """Rounded up, so that nothing is early; now is now."""
    return ceil(now + after) if after > 0 else int(now)


def next_place(due: int, lane: str | None, now: float, *, capacity: bool | None = None) -> State:
    """The place of a task that need not end. capacity: of its lane; None: the call may not read lanes (add, revive)."""
    if due > now:
        return "scheduled"
    if lane is None or capacity:
        return "ready"
    return "scheduled" if capacity is None else "parked"


def enter(tables: TaskTables, records: Sequence[Record]) -> None:
    """Put records into the place that their state names: scheduled, parked, ready or waiting."""
    for record in records:
        if record.lane is not None and record.state == "ready":
            count_admitted(tables.limits.lane(record.lane), record, +1)
    tables.enter(records)


def leave(tables: TaskTables, record: Record, *, alarm_popped: bool = False) -> None:
    """Out of its place, but not by a claim."""
    tables.leave(record)
    if not alarm_popped:
        tables.clear_alarm(record)
    if record.lane is None or record.state in OUTSIDE_LANES:
        return
    if record.state == "ready":
        count_admitted(tables.limits.lane(record.lane), record, -1)
    admit(tables, record.lane)  # a slot is free, or it was before tasks that need less


def arrive(tables: TaskTables, records: Sequence[Record]) -> None:
    """Move due tasks to ready, or park them if their lane has no capacity."""
    arrived: list[Record] = []
    for record in records:
        tables.leave(record)
        capacity = has_capacity(tables, record)
        place = with_state(record, next_place(record.due, record.lane, tables.now, capacity=capacity))
        if place.state == "ready" and record.lane is not None:
            count_admitted(tables.limits.lane(record.lane), record, +1)
        arrived.append(place)
    tables.enter(arrived)


def wake(tables: TaskTables, waits: Sequence[tuple[Record, int]]) -> None:
    """The waits of these tasks are over. Each is due at the time given with it, and not before its own."""
    woken: list[Record] = []
    histories: dict[int, History] = {}  # by the id of the one before, which the tasks of a group may share
    now = tables.now
    tables.leave_waits([record for record, _ in waits])
    for record, after_delay in waits:
        due = max(record.due, after_delay)
        capacity = record.lane is not None and due <= now and has_capacity(tables, record)
        place = next_place(due, record.lane, now, capacity=capacity)
        if place == "ready" and record.lane is not None:
            count_admitted(tables.limits.lane(record.lane), record, +1)
        history = histories.get(id(record.history))
        if history is None:
            history = histories[id(record.history)] = after_wait(record.history)
        woken.append(rescheduled(record, due, place, history))
    tables.enter(woken)


def park(tables: TaskTables, record: Record) -> None:
    """It was taken out of ready, but its lane has lost its capacity meanwhile."""
    tables.count(record.source, "ready", -1)
    tables.clear_alarm(record)
    tables.enter([with_state(record, "parked")])


def end_as_chore(tables: TaskTables, record: Record, reason: Reason, *, alarm_popped: bool = False) -> Record:
    """From its place to the chores, or out of the order if it is lifted."""
    leave(tables, record, alarm_popped=alarm_popped)
    if record.state == "waiting":
        record = rescheduled(record, record.due, "ready", after_wait(record.history))
    return queue_chore(tables, with_state(record, record.state, with_history(record.history, reason=reason)))


def queue_chore(tables: TaskTables, record: Record) -> Record:
    """It is in no place and must end. A lifted task waits for the next lift, unless it is to be cancelled."""
    if record.history.reason == "lifted" and record.history.cancel_requested:
        record = with_state(record, record.state, with_history(record.history, reason="cancel"))
    queued = record.history.reason != "lifted"
    tables.enter_chores(record, queued=queued)
    if queued:
        tables.notifications.recheck = True
    return record


def requeue(tables: TaskTables, record: Record, history: History, after: int | None) -> None:
    """A task that was leased is requeued: to its place, to a later time, or to the chores, if it must end.

    With a lane it is parked: `release_capacity` then admits by rank.
    """
    if must_end(history):
        reason: Reason = "cancel" if history.cancel_requested else history.reason
        queue_chore(tables, with_state(record, "ready", with_history(history, reason=reason)))
        return
    due = record.due if after is None else due_in(after, tables.now)
    place = next_place(due, record.lane, tables.now, capacity=False)
    tables.enter([rescheduled(record, due, place, history)])
