"""Calls inside transactions of callers: their notifications are sent after the commit, which only the file shows."""

from __future__ import annotations

from typing import NamedTuple

from onthedot.stores.rules.notifications import Notifications
from onthedot.stores.sqlite.queries import SQL
from onthedot.stores.sqlite.tables import SqliteTables

_MAX_JOINED = 60.0  # seconds that a caller's transaction may take; later its tasks are found by the poll


class JoinedCall(NamedTuple):
    """Notifications to send once the caller has committed, and the numbers of the file that show the commit."""

    notifications: Notifications
    transition_count: int
    event_seq: int


class _Uncommitted(NamedTuple):
    call: JoinedCall
    give_up_at: float


class JoinedCalls:
    """Those that are not committed yet."""

    def __init__(self) -> None:
        self._calls: list[_Uncommitted] = []

    def __bool__(self) -> bool:
        return bool(self._calls)

    def append(self, call: JoinedCall, now: float) -> None:
        """From any thread. now: by the monotonic clock."""
        self._calls.append(_Uncommitted(call, now + _MAX_JOINED))

    def pop_committed(self, tables: SqliteTables, now: float) -> list[Notifications]:
        committed: list[Notifications] = []
        for uncommitted in list(self._calls):
            notifications, *numbers = uncommitted.call
            (is_committed,) = tables.db.execute(SQL["has_committed"], numbers).fetchone()
            if is_committed:
                committed.append(notifications)
            if is_committed or uncommitted.give_up_at < now:
                self._calls.remove(uncommitted)  # other threads append meanwhile
        return committed
