"""The verbs of a store, in four groups, and its traits.

Every verb may raise `StoreUnavailable` or `StoreBusy` (try again), `StoreFull` (an add to a full server) and
`StoreRefused` (a person must change something).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from onthedot.stores.contract.changes import ChangePage
from onthedot.stores.contract.claims import ClaimRequest, Lease, LeasedTasks, TurnResult
from onthedot.stores.contract.counters import Counter
from onthedot.stores.contract.journal import Note, NoteKind
from onthedot.stores.contract.limits import Limit
from onthedot.stores.contract.outcomes import Outcome
from onthedot.stores.contract.position import Position
from onthedot.stores.contract.schedules import FireRequest, Schedule
from onthedot.stores.contract.series import SeriesEntry
from onthedot.stores.contract.sessions import HeartbeatResult, Hints
from onthedot.stores.contract.signals import NewSignal, SignalPage
from onthedot.stores.contract.tasks import Added, NewTask, Page, Record, State


class StoreTraits(Struct, frozen=True):
    """Facts about a store that its callers adapt to."""

    shared: bool  # other processes see it; in a store that is not shared, an unknown source is unknown to all
    synchronous: bool = False  # it answers without suspending, and may be called from any thread
    cancel_safe: bool = False  # cancelling a call does not affect other calls, and a call has its own timeout
    lease_ms: int | None = None  # how long a session lives without a heartbeat; None: the store notices a death
    joined_hints: bool = True  # False: events that were published in the caller's transaction come without a hint


class Tasks(Protocol):
    """The verbs of tasks: add, claim, settle, cancel, move."""

    async def add(self, tasks: Sequence[NewTask], deadline: float | None = None) -> Sequence[Added]:
        """Insert up to MAX_ADD tasks, all or none; the answer has one `Added` per task, in order.

        deadline: the store's time, in ms, at which the caller gives up. A request that is executed later stores nothing
        and raises `DeadlinePassed`.

        A due task without a lane is ready at once; any other waits for its alarm. Same uuid: the existing task remains.
        Same live unique key: with "keep" the existing task remains; with "replace" it takes body, lane, policy and due
        time of the new one, unless it is leased, has links or waits. With `links.waits` the task is waiting; the next
        turn sees whether its counters have their values already. For RECENT_MS after its add, the uuid of a task that
        ended with keep=0 is known: adding it again is not fresh.
        """
        ...

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        """Settle outcomes, then claim, in one step.

        With a request it also, in this order, reaps dead sessions, refills lanes, ends up to BATCH waits whose counter
        has reached its value and promotes up to BATCH alarms: the turn that settles one link of a chain can claim the
        next. The end of a task, also of a chore, increments the counters of its links once. An outcome whose
        lease was settled before gets "repeat", one whose lease is over gets "lost"; effects count with "ok" only. A
        task whose record or policy cannot be read is handed out as a chore ("undecodable"); others are not affected.
        """
        ...

    def earliest_now(self) -> float:
        """The store's time is not before this: the last time received plus the monotonic time since then."""
        ...

    async def note(self, notes: Sequence[Note]) -> Sequence[Lease]:
        """Write to journals; the answer has the leases that are lost, whose notes were not written."""
        ...

    async def cancel(self, session: str, uuids: Sequence[str], reason: str = "") -> LeasedTasks:
        """Request the cancel of live tasks. Those that do not run are leased to the caller as chores; it settles them.

        The holders of running ones get the reason with a hint; it is lost with the hint.
        """
        ...

    async def lift(self, session: str, uuids: Sequence[str]) -> LeasedTasks:
        """Take pending tasks out of the order, to move them to another store, and lease them to the caller.

        A lifted task does not start, expire or take another's content. When the lease is over, the next caller that
        lifts it gets it. It ends by `Ended` (it continues in the other store) or returns to its place by `Requeued`; a
        cancel ends it like any other task. Running tasks, chores, tasks leased to others and tasks with links or a wait
        are left out. Reaps dead sessions first.
        """
        ...

    async def adopt(self, records: Sequence[Record]) -> Sequence[Added]:
        """Store up to BATCH copies of another store's tasks, lifted: due, added and history are kept, hops grow by 1.

        Same uuid: the existing task remains, unless it ended here while lifted, after no more hops than the copy has;
        then the copy replaces it. Same live unique key: the answer names the existing task, and nothing is replaced.
        """
        ...

    async def revive(self, uuids: Sequence[str]) -> Sequence[str]:
        """Make failed or cancelled tasks due now; attempts are kept, retries and crashes start from 0.

        The counters that the task has incremented are lowered. A task that never started returns to its first wait, if
        it has one. The answer has the uuids that are live now. A task whose unique key is taken by another stays as it
        is.
        """
        ...

    async def signal(self, signals: Sequence[NewSignal]) -> Sequence[bool]:
        """Keep up to BATCH signals, each under its name, and raise the counters of their names.

        False: this id is kept under this name; its first payload stays. `StoreFull`: MAX_KEPT_SIGNALS of a name are
        kept; nothing was added.
        """
        ...


class Sessions(Protocol):
    """The presence of workers, and what they hear."""

    async def heartbeat(self, session: str, info: bytes, lease: int) -> HeartbeatResult:
        """Open or renew a session for `lease` ms. A session that was reaped or closed is not opened again."""
        ...

    async def close_session(self, session: str, *, crashed: bool = False) -> None:
        """Close a session; its tasks are requeued, uncounted.

        crashed: its process died. If a suspect is among its runs, only suspects are counted as crashed, otherwise all
        its runs are. They are ready again with their rank, or chores after the last allowed crash; chores are requeued
        uncounted. The same happens to a session whose lease runs out.
        """
        ...

    async def subscribe(self, session: str, uuids: Sequence[str]) -> None:
        """From now on the session's hints report ends and new items of these tasks, until they or the session end.

        ≤ BATCH per call; above MAX_SUBSCRIPTIONS of a session, further ones are ignored. It reports nothing from
        before: subscribe first, then read. A session without heartbeats lives for CLIENT_LEASE after it.
        """
        ...

    def hints(self, session: str) -> Hints:
        """The hints of a worker, or of a client that waits for results. The first has `resync` set."""
        ...


class Control(Protocol):
    """Schedules, limits and retention."""

    async def put_schedules(self, schedules: Sequence[Schedule]) -> Sequence[bool]:
        """Store schedules; one answer each, False where the revision did not match.

        rev=0 declares: a new one is stored; the same non-empty digest changes nothing; otherwise rule, digest and
        next_at are replaced, while pause, runs and last_at remain. rev>0 compares and sets the whole record.
        """
        ...

    async def put_limits(self, limits: Sequence[Limit], replaces: Sequence[Limit] = ()) -> bool:
        """Store limits, each for its name and owner.

        replaces: compare and set. The answer is False, and nothing has changed, unless each of these is stored as it
        is given here; one that sets nothing may also be missing. A repeat of a call that changed something is refused.
        """
        ...

    async def fire(self, fires: Sequence[FireRequest]) -> Sequence[bool]:
        """Advance schedules and add the tasks of their windows, each in one step; False: refused."""
        ...

    async def delete_schedules(self, schedules: Sequence[str]) -> None:
        """Delete schedules by name; unknown names are ignored."""
        ...

    async def write_series(self, entries: Sequence[SeriesEntry], replaces: Sequence[SeriesEntry] = ()) -> bool:
        """Write up to BATCH entries; an entry takes the place of the one with its key.

        replaces: compare and set. These entries are removed in the same step. The answer is False, and nothing has
        changed, unless each has its revision still (0: there is no entry with this key). A repeat of a call that
        replaced something is refused.

        ValueError: the data of an entry is larger than MAX_SERIES_DATA, or the series is not in SERIES.
        """
        ...

    async def purge(self, limit: int, most: int = 1_000_000) -> int:
        """Delete up to `limit` ended records that are past keep_until, or the oldest beyond `most`; return how many.

        A task whose `links.flow` still lives is kept, and looked at again a day later. Results and signals past their
        own time are deleted too; they are not visible after that time, purged or not. Counters without a change for
        COUNTER_KEEP are deleted if no task waits for them, and up to `limit` entries of each series beyond its
        retention.
        """
        ...


class Inspect(Protocol):
    """Reads, on a connection of their own: a slow page never stops the queue."""

    async def get(self, uuids: Sequence[str]) -> Sequence[Record | None]:
        """One record per uuid. A leased one has state "running", and the session and start of its claim."""
        ...

    async def results(self, uuids: Sequence[str]) -> Sequence[bytes | None]:
        """The result of each task that has succeeded, as `get` returns it. None: it has none; its record tells why."""
        ...

    async def find(self, where: Mapping[str, str], after: str | None, limit: int) -> Page:
        """One page of tasks, in the order of their state.

        where: uuid (its beginning), uuid_end, source, state, tag, unique, lane; since, until (ms of adding); flow (of
        a flow's uuid, or "*": the last tasks of flows); waits_for (a counter). after: the cursor of the page before.

        - no state, running, and any state with uuid, flow or waits_for: newest added first
        - ready, parked: next to run first (rank, seq); scheduled: soonest first; waiting: in the order of adding. Tasks
          that must end, and lifted ones, are in no queue: they come first
        - ended states: last ended first

        A page costs as much as its rows, whatever the number of tasks, with these filters: a state; ready, running or
        an ended state, and source; parked and lane; flow; waits_for; the beginning of a uuid. With any other filter it
        is a scan that ends after a bounded number of records: a page may be short and still have a cursor, and its
        `scanned` and `scanned_to` state the extent.

        Tasks may change between two pages: no page lists a task again, unless its due time was replaced meanwhile, and
        none that stays in its place is left out.
        """
        ...

    async def notes(
        self, uuid: str, after: int, limit: int, kind: NoteKind | None = None
    ) -> Sequence[tuple[int, Note]]:
        """The journal of a task after a number, oldest first, each note with its number. kind: only of this kind."""
        ...

    async def signals(self, name: str, after: int, limit: int) -> SignalPage:
        """The signals that are kept under a name, with numbers above `after`."""
        ...

    async def signal_names(self, limit: int) -> Sequence[str]:
        """The names of the `limit` kept signals that expire last, the latest first and each once; ties in any order."""
        ...

    async def counters(self, names: Sequence[str]) -> Sequence[Counter]:
        """One per name."""
        ...

    async def read_series(
        self, series: str, since: int, until: int, limit: int, *, newest_first: bool = False
    ) -> Sequence[SeriesEntry]:
        """Up to `limit` entries with since ≤ at ≤ until, by (at, writer).

        The next page begins with the last `at`: the caller drops the keys that it has.
        """
        ...

    async def tally(self) -> Mapping[tuple[str, State], int]:
        """The number of tasks per source and state. It is kept, not counted."""
        ...

    async def position(self, uuid: str) -> Position | None:
        """The blockers of a pending task and the tasks ahead of it. None: running, waiting, a chore, ended or unknown.

        It changes nothing: no bucket starts or refills, no lane admits a task. It counts up to MAX_AHEAD.
        """
        ...

    async def schedules(self) -> Sequence[Schedule]:
        """All schedules."""
        ...

    async def limits(self) -> Sequence[Limit]:
        """All limits, of code and of the operator."""
        ...

    async def sessions(self) -> Mapping[str, bytes]:
        """The info of live sessions that have sent a heartbeat, by name; dead ones are left out, reaped or not."""
        ...

    async def changes(self, after: str, limit: int, resolve: int = 0) -> ChangePage:
        """The change feed after a cursor, at most `limit` calls of it; "" is the end of the feed now.

        The counts are complete. At most `resolve` transitions, the newest of the page, also carry the uuid of their
        task; those of tasks that are deleted by now may be left out. The cost is O(calls × sources) + O(resolve).
        """
        ...


class Store(Tasks, Sessions, Control, Inspect, Protocol):
    """A store: four groups of verbs and its traits."""

    @property
    def traits(self) -> StoreTraits: ...

    async def open(self) -> None:
        """Connect and prepare the schema. Each event loop that uses a store opens it."""
        ...

    async def close(self) -> None:
        """Release what `open` took, for this event loop."""
        ...
