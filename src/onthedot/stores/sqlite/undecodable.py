"""A task whose policy cannot be read: it leaves its place and becomes a chore, so that it ends alone."""

from __future__ import annotations

from onthedot.stores.contract import ENDED
from onthedot.stores.rules.lanes import admit
from onthedot.stores.rules.limits import count_admitted
from onthedot.stores.rules.places import queue_chore
from onthedot.stores.rules.records import UNQUEUED_REASONS, after_wait, rescheduled, with_history, with_state
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.rows import TaskRow
from onthedot.stores.sqlite.tables import SqliteTables


def isolate(tables: SqliteTables, seq: int) -> None:
    """Replace the policy by its defaults, which keeps the damaged text as an unknown field."""
    tables.db.execute(SQL["default_policy"], (seq,))
    record = tables.record(TaskRow(*tables.db.execute(SQL["by_seq"], (seq,)).fetchone()))
    is_queued = record.state not in ENDED and record.history.reason not in UNQUEUED_REASONS
    if not is_queued or tables.lease_holder(record) is not None:
        return  # it can end as it is
    for query in ("leave_ready_by_seq", "leave_parked_by_seq", "leave_waiting_by_seq", "clear_alarm_by_seq"):
        tables.db.execute(SQL[query], (seq,))  # its rank and alarm depend on the policy that is lost
    tables.count(record.source, record.state, -1)
    if record.state == "waiting":
        record = rescheduled(record, record.due, "ready", after_wait(record.history))
    queue_chore(tables, with_state(record, record.state, with_history(record.history, reason="undecodable")))
    if record.lane is not None and record.state != "scheduled":
        if record.state == "ready":
            count_admitted(tables.limits.lane(record.lane), record, -1)
        admit(tables, record.lane)
