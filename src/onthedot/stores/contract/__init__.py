"""What every store does. Read this first.

A store keeps order, leases, limits and counts. It knows nothing of arguments, results or policy: what a failure means,
when a retry comes, how a schedule goes on is decided by the engine and handed in.

Times are milliseconds by the STORE's clock; a relative time is resolved there and rounded up, so that nothing is early
(`after=0` is now, rounded down: it is due at once). Every call is one transaction and may be repeated with the same
arguments after an unknown outcome: same end state, and an answer that says so. No call loops without a bound.

The way of a record::

    add ─▶ scheduled ──alarm──▶ ready ──turn──▶ running ──settle──▶ succeeded · failed · cancelled
               ▲                  ▲ │                │                        │
               │                  │ ▼ its lane       │                        │
               │                parked               │                        │
               └────────── again (retry, snooze) ────┴──── revive ────────────┘

*Settle is the only end.* What must end without running (cancelled, expired, crashed too often, unknown to a private
store) is handed out as a *chore*: leased like a run, outside all limits, and settled by whoever got it.

A claim writes one entry and never touches the records: that a task runs is known from the claim that took it. The
number of that claim is the *fence*; it is store-wide and only grows. ``(uuid, fence, session)`` is the lease.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

BATCH = 1000  # the most an add takes and a turn promotes; part of the semantics, the same in every store
CHORES = 100  # the most chores a turn hands out
CLIENT_LEASE = 10_000  # ms a session lives that cancels without having beaten
MAX_AHEAD = 100_000  # the most that standing counts

State: TypeAlias = Literal["scheduled", "parked", "ready", "running", "succeeded", "failed", "cancelled"]
"""parked: due, but held back by its lane; the public word for it is ready."""
Reason: TypeAlias = Literal["due", "crash", "cancel", "expired", "crashed", "stray", "lifted"]
"""lifted: on its way to another store."""
Verdict: TypeAlias = Literal["ok", "repeat", "lost"]
"""repeat: this very lease has settled before; lost: somebody else's by now, or nobody's."""


class Policy(Struct, frozen=True, gc=False):
    """How the store treats a task. Made once a declaration and shared by its tasks."""

    priority: int = 5
    boost: int = 0  # priority × aging; rank = due − boost
    cost: float = 1  # tokens a start takes from the lane's rate
    on_conflict: Literal["keep", "replace"] = "keep"
    unique_for: int | None = None  # the key is held this long from adding; None: until the task ends
    expires: int | None = None  # ms after due at which a task that never started becomes a chore
    max_crashes: int = 3
    tags: tuple[str, ...] = ()
    reply_to: str | None = None  # whose hints tell of the end


DEFAULT = Policy()


class NewTask(Struct, frozen=True, gc=False):
    uuid: str  # made by the caller before any I/O
    source: str
    body: bytes  # arguments and headers: opaque
    at: int | None = None
    after: float = 0  # due = at, else now + after; with fractions, so that it is rounded once
    lane: str | None = None  # "source/key" or "@shared[/key]": at most one
    unique: str | None = None  # scope: the source
    policy: Policy = DEFAULT


class History(Struct, frozen=True, gc=False):
    """What has happened to a task; written at settle, cancel, crash and revive."""

    reason: Reason = "due"  # why it is where it is; for a chore: why it must end
    retries: int = 0  # counted ones since the last revive
    crashes: int = 0
    earlier: int = 0  # attempts before the last revive
    cancel_requested: bool = False
    settled_fence: int = 0  # the last fence that settled, and whose it was
    session: str | None = None
    started: int | None = None  # the last start that was not given back
    ended: int | None = None
    keep_until: int | None = None
    result: bytes | None = None  # None: there is none, or it is not kept any more
    error: bytes | None = None  # the last one
    hops: int = 0  # from store to store, so far


NO_HISTORY = History()


class Record(Struct, frozen=True, gc=False):
    """A task as a store has it."""

    uuid: str
    source: str
    body: bytes
    policy: Policy
    lane: str | None
    unique: str | None
    due: int
    seq: int  # the order of adding
    added: int
    state: State
    history: History = NO_HISTORY

    @property
    def rank(self) -> int:
        """Order of claims: rank, then seq."""
        return self.due - self.policy.boost

    @property
    def attempt(self) -> int:
        """The number that a run of it has, from 1."""
        return self.history.earlier + 1 + self.history.retries + self.history.crashes

    @property
    def is_arriving(self) -> bool:
        """A copy that was not put down yet: the store that it comes from has it, too."""
        return self.history.reason == "lifted" and self.history.hops > 0 and not self.history.settled_fence

    @property
    def is_suspect(self) -> bool:
        """Its next crash would be the last."""
        return self.history.crashes + 1 >= self.policy.max_crashes


class Lease(Struct, frozen=True, gc=False):
    """I hold this run. It dies with its session."""

    uuid: str
    fence: int
    session: str


class Effects(Struct, frozen=True, gc=False):
    """Takes effect with the outcome, or not at all. Grows by signals and events with their first user."""

    tasks: tuple[NewTask, ...] = ()


class Completed(Struct, frozen=True, tag=True, gc=False):
    lease: Lease
    result: bytes = b""
    keep: int = 604_800_000  # ms the record stays; 0: gone at once
    effects: Effects | None = None
    keep_result: int | None = None  # ms the result stays; None: as long as the record


class Requeued(Struct, frozen=True, tag=True, gc=False):
    """Retry (counted), snooze (not), release (after=None: due and rank kept, as if it had not been claimed).

    A task that is flagged to be cancelled becomes a chore instead, and a chore stays one: it must end. A lifted one is
    put down again.
    """

    lease: Lease
    after: int | None
    counted: bool
    error: bytes = b""
    effects: Effects | None = None


class Ended(Struct, frozen=True, tag=True, gc=False):
    lease: Lease
    state: Literal["failed", "cancelled"]
    error: bytes
    keep: int = 604_800_000
    effects: Effects | None = None


Outcome: TypeAlias = Completed | Requeued | Ended


class SlotPool(Struct, frozen=True):
    """Sources that share slots. Taken by (rank, seq) over all, at most `room` of a source and `total` in all."""

    total: int
    capacity: Mapping[str, int]


class ClaimRequest(Struct, frozen=True):
    """One in flight a session. The same number again gives what still runs under it again, and nothing new.

    total=0 is legal: promote, reclaim, expire, fire still happen. If it takes nothing, a hint may answer `waits`.
    """

    number: int  # from 1, and one more for every ask that was answered
    pools: Sequence[SlotPool]
    max_suspects: int = 1  # how many tasks whose next crash would be the last may run in this session at once
    known_sources: frozenset[str] | None = None  # private store: ready tasks of other sources come as chores ("stray")
    waits: Mapping[str, int] | None = None  # so many of one of these would be held as the next number's, if they come
    waits_for: float = 0  # ms


class Schedule(Struct, frozen=True):
    name: str
    rule: bytes  # rule, source, args, options, policy: opaque
    definition_digest: str  # digest of what code declared, "" for data
    next_at: int | None
    rev: int = 0
    paused: bool = False
    last_at: int | None = None
    runs: int = 0


class Limit(Struct, frozen=True):
    """name: "source" · "source/*" (each key) · "source/acme" (one key) · "@openai" (a shared lane) · "@openai/*".

    Code's and the operator's are kept apart; field by field the operator's wins where it is set. A lane's own record
    ("source/acme") wins over its star, likewise field by field. On a source the rate counts starts; on a lane, costs.
    A task that costs more than the burst, which was larger when it was added, costs the burst. The reason is the
    operator's; in code's record of a source it says how its lanes are made, for those who add without the code.
    """

    name: str
    cap: int | None = None
    rate: float | None = None  # a second
    burst: float = 1
    paused: bool = False
    reason: str = ""
    owner: Literal["code", "operator"] = "code"


class LeasedTasks(Struct, frozen=True):  # what one claim took
    fence: int  # the same for all
    tasks: Sequence[Record]


class ClaimResult(Struct, frozen=True):
    fence: int
    tasks: Sequence[Record]
    chores: Sequence[Record]  # to be ended without running; past.why says why
    schedules: Sequence[Schedule]  # due now; answer with fire()
    idle: Mapping[str, float | None]  # asked sources with nothing to take now: ms until worth asking, None = on a hint
    woken: frozenset[str]  # sources that got ready tasks or freed capacity in this call
    next_in: float | None  # ms to the next alarm of any kind, fractions kept; None: nothing is set
    more: bool  # promoted or handed out a full batch: come again
    now: float = 0  # the store's moment, in ms: by it schedules are judged


class TurnResult(Struct, frozen=True):
    verdicts: Sequence[Verdict]
    claim: ClaimResult | None = None  # None: nothing was asked, or the session is not alive
    alive: bool = True


class Added(Struct, frozen=True, gc=False):
    uuid: str
    fresh: bool  # not fresh: the one that was there (same uuid, or same unique key)


class Note(Struct, frozen=True, gc=False):
    """A task's journal, under its lease. progress: the last stays; error (one an attempt): the first stays."""

    lease: Lease
    kind: Literal["error", "progress"]
    name: str
    data: bytes


class FireRequest(Struct, frozen=True):
    """Refused unless the schedule still has this rev and is not paused; rev grows on every change."""

    name: str
    rev: int
    tasks: tuple[NewTask, ...]  # uuids derive from (schedule, nominal time)
    next_at: int | None
    last_at: int | None = None  # the nominal time of the last window; None leaves it


class HeartbeatResult(Struct, frozen=True):
    alive: bool  # False: it died before; take a new name
    cancel_requests: Sequence[Lease] = ()  # its runs that somebody wants cancelled


class Hint(Struct, frozen=True):
    """May be lost, doubled, late; resync after every (re)connect."""

    sources: frozenset[str] = frozenset()  # have ready tasks, or an earlier alarm
    cancel_requests: Mapping[str, str] = MappingProxyType({})  # own runs that somebody wants to end, and why
    ended: frozenset[str] = frozenset()  # uuids of tasks whose policy says reply_to this session
    resync: bool = False
    number: int = 0  # of the ask that waited, and has got this; asked again, it gets the same
    held: LeasedTasks | None = None


class Hints(Protocol):
    """Listens from the first look on; `aclose` does not wait."""

    def __aiter__(self) -> Hints: ...
    async def __anext__(self) -> Hint: ...
    async def aclose(self) -> None: ...


class Page(Struct, frozen=True):
    rows: Sequence[Record]
    after: str | None  # cursor of the next page; None: that was all


class Blocker(Struct, frozen=True):  # a limit that a claim would stop at now: the source's own, or the lane's
    limit: Limit  # as it comes to: code's, the operator's and the star's put together; `by` says nothing
    reason: Literal["paused", "cap", "rate"]
    running: int = 0  # under it, and no others: what a lane has let into ready counts for its cap, but does not run
    opens_in: float | None = None  # rate: ms until it lets this one through, as the next; None: time alone will not


class Position(Struct, frozen=True):
    """How a waiting task stands, by the rules of the claim; one that is not due yet, as if it came now."""

    blockers: Sequence[Blocker]  # the source's first, then the lane's; empty: only its place in the order
    ahead: int  # before it by (rank, seq): ready ones of its source, and for a parked one those parked in its lane


class Tasks(Protocol):
    async def add(self, tasks: Sequence[NewTask]) -> Sequence[Added]:
        """≤ BATCH. Inserts only. Due and without a lane: ready; everything else waits for its alarm.

        Same uuid: the first stands. Same live unique key: keep → the other's uuid; replace → the other takes body,
        lane, policy and due time, if it is not held by a claim.
        """
        ...

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        """Settle, then (with an ask) reap dead sessions, refill lanes, promote ≤ BATCH alarms and claim: one step."""
        ...

    async def note(self, notes: Sequence[Note]) -> Sequence[Lease]:
        """Answers with the leases that are lost."""
        ...

    async def cancel(self, session: str, uuids: Sequence[str], reason: str = "") -> LeasedTasks:
        """Flags all that live. Those not held are leased to the caller as chores, who settles them.

        The reason goes to the holders with the hint, and is lost with it.
        """
        ...

    async def lift(self, session: str, uuids: Sequence[str]) -> LeasedTasks:
        """Takes tasks that wait out of the order, to be moved to another store, and leases them to the caller.

        One that was lifted does not start, expire or take another's content; when the lease is over, whoever lifts it
        again gets it. It ends by Ended (here, since it is there), or is put down by Again as if nothing had been; a
        cancel ends it as any other. Not what runs, what must end, or what somebody else has. Reaps dead sessions first.
        """
        ...

    async def adopt(self, records: Sequence[Record]) -> Sequence[Added]:
        """≤ BATCH. Copies of another store's tasks, lifted: due, added and past (but for its lease), and one hop more.

        Same uuid: the first stands, unless it has gone from here: ended while lifted, and after no more hops than the
        one that comes. Then the copy takes its place. Same live unique key: the other's uuid, and nothing is replaced.
        """
        ...

    async def revive(self, uuids: Sequence[str]) -> Sequence[str]:
        """Failed or cancelled → due now, attempts kept, retries and crashes from 0. Answers with those that live now.

        One whose unique key belongs to another by now stays as it is.
        """
        ...


class Sessions(Protocol):
    async def heartbeat(self, session: str, info: bytes, lease: int) -> HeartbeatResult:
        """The first one opens. lease (ms) = 0: it is dead, reclaim at once.

        Death: a suspect among its runs alone is counted as crashed, else all its runs are; then they are ready again
        with their rank, or chores if that was one crash too many. Chores go back uncounted.
        """
        ...

    async def close_session(self, session: str) -> None:
        """What it still holds goes back, uncounted."""
        ...

    def hints(self, session: str) -> Hints:
        """For workers and for those who only wait. Begins with a resync."""
        ...


class Control(Protocol):
    async def put(self, schedules: Sequence[Schedule], limits: Sequence[Limit]) -> Sequence[bool]:
        """One answer each, schedules first.

        A schedule with rev=0 is declared: new → stored; same `declared` (not "") → untouched; else rule, declared and
        next_at are replaced, pause, runs and last_at stay. rev>0: compare-and-set of the whole. A limit always stands.
        """
        ...

    async def fire(self, fires: Sequence[FireRequest]) -> Sequence[bool]: ...
    async def delete_schedules(self, schedules: Sequence[str]) -> None: ...
    async def purge(self, limit: int, most: int = 1_000_000) -> int:
        """Drops ≤ limit ended records that are past keep_until, or the oldest ones beyond `most`; answers how many.

        And results that are past their own time; a result is not seen after that, purged or not.
        """
        ...


class Inspect(Protocol):
    """Reads only, on a connection of their own: a slow page never stops the queue."""

    async def get(self, uuids: Sequence[str]) -> Sequence[Record | None]:
        """With state "running" and past.session, past.started where a claim holds it."""
        ...

    async def find(self, where: Mapping[str, str], after: str | None, limit: int) -> Page:
        """Newest first. where: uuid (a prefix), source, state, tag, unique, lane, since, until (ms of adding).

        Looks at a bounded number of records a call: a page may be short and still have a cursor.
        """
        ...

    async def notes(self, uuid: str, after: int, limit: int) -> Sequence[tuple[int, Note]]: ...
    async def tally(self) -> Mapping[tuple[str, State], int]:
        """Kept, never counted."""
        ...

    async def position(self, uuid: str) -> Position | None:
        """None: it does not wait for a claim (running, about to be ended as a chore, ended, not there).

        Changes nothing: no bucket begins or moves on, no lane is let in. Counts to AHEAD at most.
        """
        ...

    async def state(self) -> tuple[Sequence[Schedule], Sequence[Limit], Mapping[str, bytes]]:
        """Schedules, limits, sessions that have beaten and live, also where nobody has buried the others yet."""
        ...

    async def changes(self, after: str, limit: int) -> Sequence[tuple[str, bytes]]:
        """Bounded log, one row a CALL; "" = from now: one empty row that carries the cursor.

        A row is JSON: ``[[ms, uuid, source, state], …]``.
        """
        ...


class Store(Tasks, Sessions, Control, Inspect, Protocol):
    private: bool  # nobody but this process sees it: an unknown source is unknown to all
    immediate: bool  # answers without suspending, and may be called from any thread
    direct: bool  # minds the time of a call by itself, and who gives up a call does not disturb those of others
    lease: int | None  # ms a session lives without a beat; None: the store sees a death by itself

    async def open(self) -> None: ...
    async def close(self) -> None: ...
