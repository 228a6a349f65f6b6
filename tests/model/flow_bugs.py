"""Bugs of subscriptions and retention that the state machine must find, beside those of the simulation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from onthedot.stores.contract import ENDED
from onthedot.stores.memory.counters import SubscriptionTable
from onthedot.stores.memory.tables import MemoryTables
from tests.sim.flow_bugs import FLOW_BUGS


class MembersOfLivingFlowsDropped(MemoryTables):
    def drop_expired(self, limit: int) -> int:
        ended = [record for record in self.records.values() if record.state in ENDED]
        over = [record for record in ended if (record.history.keep_until or 0) <= self.now][:limit]
        for record in over:
            self.delete_ended(record)
        return len(over)


class _KeptAfterTheEnd(SubscriptionTable):
    def end_task(self, uuid: str) -> Iterable[str]:
        return self.sessions(uuid)


class SubscriptionsOutliveTheirTask(MemoryTables):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.subscriptions = _KeptAfterTheEnd()


class _KeptAfterTheSession(SubscriptionTable):
    def end_session(self, session: str) -> None:
        pass


class SubscriptionsOutliveTheirSession(MemoryTables):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.subscriptions = _KeptAfterTheSession()


class RepeatedSignalKept(MemoryTables):
    """A signal whose id is kept already is kept again, and raises the counter."""

    def has_signal(self, name: str, signal_id: str) -> bool:
        return False


BUGS: dict[str, type[MemoryTables]] = {
    **FLOW_BUGS,
    "members-of-living-flows-dropped": MembersOfLivingFlowsDropped,
    "subscriptions-outlive-their-task": SubscriptionsOutliveTheirTask,
    "subscriptions-outlive-their-session": SubscriptionsOutliveTheirSession,
    "repeated-signal-kept": RepeatedSignalKept,
}
