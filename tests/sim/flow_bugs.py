"""Bugs of counters, waits and steps that the simulation must find with `--flows`: subclasses of the memory tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from onthedot.stores.contract import (
    Completed,
    Ended,
    NewTask,
    Note,
    Outcome,
    Record,
    Verdict,
    Wait,
)
from onthedot.stores.memory.counters import CounterTable
from onthedot.stores.memory.tables import MemoryTables


class _CountersWithoutMarkOnWait(CounterTable):
    def add_waiting(self, wait: Wait, records: Sequence[Record]) -> bool:
        marked = dict(self.reached)
        super().add_waiting(wait, records)
        self.reached = marked
        return False


class NoMarkOnWait(MemoryTables):
    """A wait that begins on a counter that has its value already is not noticed."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.counters = _CountersWithoutMarkOnWait()


class CancelledEndsNotCounted(MemoryTables):
    def settle(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        records = [self.records.get(outcome.lease.uuid) for outcome in outcomes]
        verdicts = super().settle(outcomes)
        for outcome, record, verdict in zip(outcomes, records, verdicts, strict=True):
            is_cancelled = isinstance(outcome, Ended) and outcome.state == "cancelled"
            if verdict == "ok" and is_cancelled and record is not None and record.links is not None:
                for name in record.links.increments:
                    self.raise_counter(name, -1, -1)
        return verdicts


class RevivalNotUncounted(MemoryTables):
    def raise_counter(self, name: str, ended: int, failed: int) -> None:
        if ended > 0:
            super().raise_counter(name, ended, failed)


class TimeoutLeavesItsWaiter(MemoryTables):
    """A task whose wait has timed out is still found by the counter."""

    def leave(self, record: Record) -> None:
        super().leave(record)
        is_late = record.history.wait_until is not None and record.history.wait_until <= self.now
        if record.wait is not None and is_late:
            self.counters.add_waiting(record.wait, [record])


class FirstWaiterOnly(MemoryTables):
    """Of several tasks that wait for one counter, one is made due."""

    def pop_reached(self, limit: int) -> list[Record]:
        found = super().pop_reached(limit)
        for record in found[1:]:
            assert record.wait is not None
            self.counters.add_waiting(record.wait, [record])
        self.counters.reached.clear()
        return found[:1]


class RequiresIgnored(MemoryTables):
    """A task starts although the ends that it waited for are not as it requires."""

    def pop_reached(self, limit: int) -> list[Record]:
        return [_requiring_nothing(record) for record in super().pop_reached(limit)]


class MarkRemovedBeforeTheRead(MemoryTables):
    """Marks of a settle are forgotten before the waits are read."""

    def settle(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        verdicts = super().settle(outcomes)
        self.counters.reached.clear()
        return verdicts


class IncrementBeforeTheLeaseCheck(MemoryTables):
    """An end counts, even if its lease is over."""

    def settle(self, outcomes: Sequence[Outcome]) -> list[Verdict]:
        verdicts = super().settle(outcomes)
        for outcome, verdict in zip(outcomes, verdicts, strict=True):
            record = self.records.get(outcome.lease.uuid)
            is_end = isinstance(outcome, Completed | Ended)
            if verdict != "ok" and is_end and record is not None and record.links is not None:
                for name in record.links.increments:
                    self.raise_counter(name, 1, 0)
        return verdicts


class WaitsForgotten(MemoryTables):
    """A task of a flow starts at once."""

    def insert(self, tasks: Sequence[NewTask]) -> Any:
        started = [
            task if task.links is None else replace(task, links=replace(task.links, waits=None)) for task in tasks
        ]
        return super().insert(started)


def _requiring_nothing(record: Record) -> Record:
    wait = record.wait
    assert wait is not None
    any_ends = replace(wait, requires="any")
    if record.history.wait is not None:
        return replace(record, history=replace(record.history, wait=any_ends))
    assert record.links is not None
    return replace(record, links=replace(record.links, waits=any_ends))


def _without_wait(task: NewTask) -> NewTask:
    return task if task.links is None else replace(task, links=replace(task.links, waits=None))


class StepsForgotten(MemoryTables):
    """A step is acknowledged, and not kept."""

    def append_note(self, seq: int, note: Note) -> None:
        if note.kind != "step" or note.name.startswith("#"):
            super().append_note(seq, note)


FLOW_BUGS: dict[str, type[MemoryTables]] = {
    "no-mark-on-wait": NoMarkOnWait,
    "cancelled-ends-not-counted": CancelledEndsNotCounted,
    "revival-not-uncounted": RevivalNotUncounted,
    "timeout-leaves-its-waiter": TimeoutLeavesItsWaiter,
    "first-waiter-only": FirstWaiterOnly,
    "requires-ignored": RequiresIgnored,
    "mark-removed-before-the-read": MarkRemovedBeforeTheRead,
    "increment-before-the-lease-check": IncrementBeforeTheLeaseCheck,
    "waits-forgotten": WaitsForgotten,
    "steps-forgotten": StepsForgotten,
}
