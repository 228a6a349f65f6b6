"""The invariants of counters, waits and steps, checked after every commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from onthedot import TaskContext
from onthedot.client.portal import run_without_loop
from onthedot.stores.contract import (
    Counter as StoredCounter,
    Lease,
    Links,
    NewTask,
    Note,
    Outcome,
    Record,
    Suspended,
    TurnResult,
    Wait,
)
from onthedot.stores.rules.counters import is_met
from onthedot.stores.rules.records import UNQUEUED_REASONS
from tests.sim.clock import SimClock

ENDED = ("succeeded", "failed", "cancelled")
_SIGNAL = "~"  # in the name of a counter that signals raise


class _Waiting(NamedTuple):
    wait: Wait
    until: float | None  # ms: when it times out


@dataclass(eq=False)
class FlowCheck:
    """Counts the ends of tasks by itself, and compares. States come from the change feed.

    store: what the store has now
    """

    store: Callable[[], Any]
    clock: SimClock  # the store's
    report: Callable[[str, str], None]

    def __post_init__(self) -> None:
        self.links: dict[str, Links] = {}
        self._ended: Counter[str] = Counter()  # by counter
        self._failed: Counter[str] = Counter()
        self._touched: dict[str, None] = {}  # counters that this commit has changed
        self._suspended: dict[str, Wait] = {}  # what a task waits for next
        self._waiting: dict[str, _Waiting] = {}
        self._left: dict[str, _Waiting] = {}  # tasks that this commit has made due
        self._saved: dict[tuple[str, str], int] = {}  # uuid and step → the fence under which it was saved

    # -- what happens

    def note_tasks(self, tasks: Sequence[NewTask]) -> None:
        for task in tasks:
            if task.links is not None:
                self.links.setdefault(task.uuid, task.links)

    def note_outcome(self, outcome: Outcome) -> None:
        if isinstance(outcome, Suspended):
            self._suspended[outcome.lease.uuid] = outcome.wait

    def transition(self, uuid: str, source: str, before: str | None, state: str) -> None:
        if before == state:
            return
        links = self.links.get(uuid)
        if links is not None:
            self._count(links, before, state)
            if before is None and links.waits is not None and state != "waiting":
                self.report("waits", f"{source} {uuid} was added as {state}, and it waits for {links.waits.counters}")
        if before == "waiting":
            waiting = self._waiting.pop(uuid)
            if state not in ENDED:
                self._left[uuid] = waiting
        if state == "waiting":
            wait = self._suspended.pop(uuid, None) or (links and links.waits)
            assert wait is not None
            self._waiting[uuid] = _Waiting(wait, None if wait.timeout is None else self.clock.now() + wait.timeout)

    def _count(self, links: Links, before: str | None, state: str) -> None:
        for name in links.increments:
            if state in ENDED:
                self._ended[name] += 1
                self._failed[name] += state != "succeeded"
                self._touched[name] = None
            elif before in ENDED:  # revived
                self._ended[name] -= 1
                self._failed[name] -= before != "succeeded"
                self._touched[name] = None

    def reload(self, records: Iterable[Record]) -> None:
        """The store has gone back to an older state."""
        self._ended.clear()
        self._failed.clear()
        self._waiting.clear()
        self._saved.clear()
        self._suspended.clear()
        for record in records:
            if record.links is not None and record.state in ENDED:
                self._count(record.links, None, record.state)
            if record.state == "waiting" and record.wait is not None:
                self._waiting[record.uuid] = _Waiting(record.wait, record.history.wait_until)
        self._touched.clear()

    # -- after a commit

    def committed(self, verbs: Sequence[str], last: Any) -> None:
        """last: the answer of the last call."""
        if self._touched:
            self._check_counters()
        if self._left and "revive" not in verbs:  # it may have lowered the counter again
            self._check_left()
        self._touched.clear()
        self._left.clear()
        if isinstance(last, TurnResult) and last.claim is not None and not last.claim.more:
            self._check_waiting()

    def _check_counters(self) -> None:
        for name, stored in self._read(self._touched).items():
            if (stored.value, stored.failed) != (self._ended[name], self._failed[name]):
                text = f"{stored}, and {self._ended[name]} tasks have ended, {self._failed[name]} without success"
                self.report("counters", f"{name} is {text}")

    def _check_left(self) -> None:
        """A task leaves its wait when a counter has its value and the ends are as required, or when its time is up."""
        counters = self._read([name for each in self._left.values() for name, _ in each.wait.counters])
        for uuid, (wait, until) in self._left.items():
            reached = [counters[name] for name, value in wait.counters if counters[name].value >= value]
            is_late = until is not None and self.clock.now() >= until - 1
            is_over = is_late or any(is_met(wait, counter) for counter in reached)
            if not is_over and not self._is_chore(uuid):
                self.report("waits", f"{uuid} does not wait any more for {wait}: {counters}")

    def _check_waiting(self) -> None:
        """A turn that claims ends every wait whose counter has its value."""
        counters = self._read([name for each in self._waiting.values() for name, _ in each.wait.counters])
        for uuid, (wait, _) in self._waiting.items():
            if any(counters[name].value >= value for name, value in wait.counters) and not self._is_chore(uuid):
                self.report("waits", f"{uuid} waits although its counter has its value: {wait}, {counters}")

    def _is_chore(self, uuid: str) -> bool:
        (record,) = run_without_loop(self.store().get([uuid]))
        return record is None or record.history.reason in UNQUEUED_REASONS

    def _read(self, names: Iterable[str]) -> Mapping[str, StoredCounter]:
        unique = list(dict.fromkeys(names))
        return dict(zip(unique, run_without_loop(self.store().counters(unique)), strict=True)) if unique else {}

    # -- steps

    def note_steps(self, notes: Sequence[Note], refused: Sequence[Lease]) -> None:
        """The store has saved steps."""
        for note in notes:
            if note.kind == "step" and note.lease not in refused:
                self._saved.setdefault((note.lease.uuid, note.name), note.lease.fence)

    def stepped(self, task: TaskContext, name: str) -> None:
        """The function of a step runs, for the first time in its run."""
        saved = self._saved.get((task.uuid, f"{name}#1"))
        if saved is not None and task.fence > saved:
            text = f"runs under fence {task.fence}, and was saved under {saved}"
            self.report("steps", f"step {name} of {task.uuid} {text}")

    # -- at the end

    def waits_for_signals(self, uuid: str) -> bool:
        waiting = self._waiting.get(uuid)
        return waiting is not None and any(_SIGNAL in name for name, _ in waiting.wait.counters)

    def may_be_cancelled(self, uuid: str, states: Mapping[str, str]) -> bool:
        """A task of its flow has not succeeded, or the ends that it waited for are not as it requires."""
        links = self.links.get(uuid)
        if links is None:
            return False
        if links.flow is None:  # a handler
            wait = links.waits
            return wait is not None and not any(is_met(wait, each) for each in self._read(_names(wait)).values())
        members = [each for each, other in self.links.items() if other.flow == links.flow]
        return any(states.get(each) == "failed" for each in members)


def _names(wait: Wait) -> list[str]:
    return [name for name, _ in wait.counters]
