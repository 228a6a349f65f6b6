"""The storage that the rules work on. The memory and SQLite stores implement it; the rules decide, it only stores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, Protocol

from msgspec import Struct

from onthedot.stores.contract import (
    Added,
    Counter,
    Lease,
    NewSignal,
    NewTask,
    Note,
    Outcome,
    Record,
    Schedule,
    SlotPool,
    State,
    StoreIdentity,
    Verdict,
    Wait,
)
from onthedot.stores.rules.limits import LimitTable
from onthedot.stores.rules.notifications import Notifications
from onthedot.stores.rules.series import SeriesTable


class UniqueKey(NamedTuple):
    """The task that holds a unique key."""

    uuid: str
    until: int | None  # ms; None: until the task ends


class LeasedRecord(NamedTuple):
    """A task with the claim that holds it."""

    record: Record
    fence: int
    claimed_at: int
    chore: bool


class SessionEntry(Struct):
    """A session as the store keeps it."""

    name: str
    process: str = ""
    role: Literal["worker", "client"] = "client"  # a client has only cancelled or lifted; a heartbeat makes a worker
    info: bytes = b""  # of a worker
    until: float = 0
    suspects: int = 0  # how many suspects it runs
    number: int = 0  # of its last claim request
    fence: int = 0  # of that claim; 0: it took nothing


class TaskTables(Protocol):
    """Storage verbs of one call, at one moment. No verb decides where a task goes."""

    now: float
    process: str  # of the caller, where a store has several
    notifications: Notifications

    @property
    def limits(self) -> LimitTable: ...

    # -- records

    def load(self, uuid: str) -> Record | None: ...

    def insert(self, tasks: Sequence[NewTask]) -> list[Added]:
        """Number and store the tasks whose uuid is new and not recent, in the place that `new_record` names."""
        ...

    def insert_copy(self, record: Record) -> int:
        """Store what another store's task requests; return its new number."""
        ...

    def save(self, record: Record, *, leased: bool = False) -> None:
        """Store a record's new history; its place stays."""
        ...

    def replace_request(self, record: Record) -> None:
        """Store a new body, lane and policy."""
        ...

    def delete_ended(self, record: Record) -> None: ...
    def leave_ended(self, record: Record) -> None:
        """Uncount an ended record, which is revived: it is no longer retained."""
        ...

    def due_time(self, new: NewTask) -> int:
        """`at`, or `after` from now, by the store's clock."""
        ...

    def count(self, source: str, state: State, by: int) -> None: ...
    def count_running(self, source: str) -> int: ...

    # -- places

    def enter(self, records: Sequence[Record]) -> None:
        """Store, count, log and queue records by their state, and set their alarms."""
        ...

    def leave(self, record: Record) -> None:
        """Uncount a record and take it out of the queue of its state; its alarm stays."""
        ...

    def leave_waits(self, records: Sequence[Record]) -> None:
        """Uncount waiting records and take them out of their queues, with their alarms."""
        ...

    def clear_alarm(self, record: Record) -> None:
        """Clear its alarm, if it is still set."""
        ...

    def pop_due(self, limit: int) -> Sequence[Record]:
        """Take out the alarms that have come, by (time, seq)."""
        ...

    def pop_refilled(self, limit: int) -> Sequence[str]:
        """The names of lanes whose refill has come; their refill is cleared."""
        ...

    def first_parked(self, lane: str) -> Record | None: ...

    def forget_lane(self, lane: str) -> None:
        """Its last task may have left: forget it, if nothing about it has to be kept."""
        ...

    def enter_chores(self, record: Record, *, queued: bool) -> None:
        """Store, count and log a record that must end; queued: the next claim takes it."""
        ...

    def pop_chores(self, limit: int) -> list[Record]: ...
    def pop_strays(self, known: frozenset[str], limit: int) -> list[Record]:
        """Ready tasks of unknown sources, as chores. Only a private store has any."""
        ...

    # -- claims and leases

    def identity(self) -> StoreIdentity: ...

    def has_ready(self, source: str, *, suspects: bool) -> bool: ...
    def suspect_sources(self) -> Iterable[str]:
        """Sources with ready suspects."""
        ...

    def pick(self, pool: SlotPool, max_suspects: int) -> tuple[list[Record], int]:
        """Take ready tasks by (rank, seq) over the sources of a pool; return them and how many are suspects.

        `claim.source_capacity` and `claim.start` decide what may be taken.
        """
        ...

    def lease(self, session: str, tasks: Sequence[Record], chores: Sequence[Record]) -> int:
        """Lease them under the next fence and return it; 0: there are none."""
        ...

    def leased_under(self, session: SessionEntry) -> tuple[list[Record], list[Record]]:
        """The tasks and chores that are still leased under the session's last claim."""
        ...

    def leased_by(self, session: str) -> Sequence[LeasedRecord]: ...
    def lease_holder(self, record: Record) -> str | None: ...
    def release(self, leased: Sequence[LeasedRecord], session: str) -> None:
        """End all leases and claims of a session."""
        ...

    def settle(self, outcomes: Sequence[Outcome]) -> list[Verdict]: ...

    # -- sessions

    def find_session(self, name: str) -> SessionEntry | None: ...
    def save_session(self, session: SessionEntry, *, joined: bool = False) -> None: ...
    def save_claim(self, session: SessionEntry) -> None:
        """Store the number and fence of its last claim."""
        ...

    def drop_session(self, name: str) -> None: ...
    def overdue_sessions(self) -> Sequence[str]: ...
    def is_dead(self, name: str) -> bool: ...
    def mark_dead(self, name: str) -> None: ...

    # -- counters, signals, subscriptions

    @property
    def has_reached(self) -> bool:
        """Some waits may be over."""
        ...

    def counter(self, name: str) -> Counter: ...
    def raise_counter(self, name: str, ended: int, failed: int) -> None:
        """Add to a counter, or subtract; set `notifications.wait_over` if a wait is over."""
        ...

    def pop_reached(self, limit: int) -> list[Record]:
        """Waiting tasks, by seq, of which a counter has its value; they stay in their place."""
        ...

    def has_signal(self, name: str, signal_id: str) -> bool: ...
    def count_signals(self, name: str) -> int:
        """How many are kept under a name; those past their time are not."""
        ...

    def append_signal(self, signal: NewSignal, number: int) -> None:
        """Keep a signal and set the counter of its name to its number."""
        ...

    def subscribe(self, session: str, uuid: str) -> None: ...
    def subscribers(self, uuid: str) -> Sequence[str]: ...

    # -- unique keys, journal, schedules, retention

    def find_key(self, source: str, unique: str) -> UniqueKey | None: ...
    def set_key(self, source: str, unique: str, key: UniqueKey) -> None: ...
    def find_leased(self, lease: Lease) -> int | None:
        """The seq of a task, if this lease holds it."""
        ...

    def has_note(self, seq: int, note: Note) -> bool: ...
    def drop_note(self, seq: int, note: Note) -> None: ...
    def append_note(self, seq: int, note: Note) -> None: ...
    def find_schedule(self, name: str) -> Schedule | None: ...
    def save_schedule(self, schedule: Schedule) -> None: ...
    def due_schedules(self) -> list[Schedule]: ...
    def next_times(self) -> Iterable[float | None]:
        """The next alarm, refill, end of a session and window of a schedule."""
        ...

    def drop_expired(self, limit: int) -> int:
        """Drop ended records that are past their time, those first that are so for longest."""
        ...

    def drop_oldest(self, limit: int, most: int) -> int:
        """Drop the ended records that ended first, where there are more than `most`."""
        ...

    def is_recent(self, uuid: str) -> bool:
        """Whether a task ended with keep=0 and was added less than RECENT_MS ago."""
        ...

    def drop_recent(self) -> None:
        """Forget the uuids that are no longer recent."""
        ...

    def drop_signals(self, limit: int) -> None:
        """Drop signals past their time."""
        ...

    def drop_counters(self, limit: int) -> None:
        """Drop counters that were not changed for COUNTER_KEEP and marks of reached ones, if no task waits for them."""
        ...

    @property
    def series(self) -> SeriesTable: ...

    def drop_expired_keys(self) -> None: ...
    def drop_expired_results(self, limit: int) -> None: ...


def waits_of(records: Sequence[Record]) -> list[tuple[Wait, int | None, list[Record]]]:
    """Waiting tasks in runs that share a wait and its end by timeout, as those of a group do."""
    runs: list[tuple[Wait, int | None, list[Record]]] = []
    wait: Wait | None = None
    until: int | None = None
    sharing: list[Record] = []
    first: Record | None = None
    for record in records:
        if first is None or record.links is not first.links or record.history is not first.history:
            first = record
            own = record.wait
            assert own is not None
            if own is not wait or record.history.wait_until != until:
                wait = own
                until = record.history.wait_until
                sharing = []
                runs.append((wait, until, sharing))
        sharing.append(record)
    return runs
