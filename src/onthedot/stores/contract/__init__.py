"""The store contract. Read this first.

A store keeps order, leases, limits and counts. It knows nothing of arguments, results or retries: the engine decides
what a failure means, when a retry comes and how a schedule continues.

Times are milliseconds by the *store's* clock. A relative time is resolved there and rounded up, so nothing is early;
``after=0`` is now, rounded down, and therefore due at once.

The states of a task::

    add ─▶ scheduled ──alarm──▶ ready ──turn──▶ running ──settle──▶ succeeded · failed · cancelled
               ▲                  ▲ │                │                        │
               │                  │ ▼ lane without   │                        │
               │                parked  capacity     │                        │
               └──── Requeued (retry, snooze) ───────┴──── revive ────────────┘

    add with links.waits, Suspended ──▶ waiting ──counter reached──▶ scheduled · parked · ready

Invariants, tested by one suite over all stores (``tests/contract``):

1. Every write is one transaction or one script. It can be repeated with the same arguments after an unknown outcome:
   the end state is the same, and the answer shows that it was a repeat. No call loops without a bound.
2. No task runs before its time, and none is leased twice while its session lives. ``(uuid, fence, session)`` is the
   lease; the fence is the number of the claim that took the task, store-wide and growing. A claim writes one entry and
   never touches the records.
3. *Settle is the only end.* A task that must end without a run (cancelled, expired, crashed too often, undecodable,
   unknown to a private store, not wanted after the ends of others) is handed out as a *chore*: leased like a run,
   outside all limits, and settled by the session that got it.
4. Order is ``(rank = due − boost, seq)``. A turn promotes at most ``BATCH`` tasks.
"""

from onthedot.stores.contract.changes import (
    MAX_TRANSITIONS as MAX_TRANSITIONS,
    ChangeEntry as ChangeEntry,
    ChangePage as ChangePage,
    Transition as Transition,
)
from onthedot.stores.contract.claims import (
    CHORES as CHORES,
    ClaimRequest as ClaimRequest,
    ClaimResult as ClaimResult,
    HandoffOffer as HandoffOffer,
    Lease as Lease,
    LeasedTasks as LeasedTasks,
    SlotPool as SlotPool,
    StoreIdentity as StoreIdentity,
    TurnResult as TurnResult,
)
from onthedot.stores.contract.counters import (
    COUNTER_KEEP as COUNTER_KEEP,
    MAX_INCREMENTS as MAX_INCREMENTS,
    MAX_WAIT_COUNTERS as MAX_WAIT_COUNTERS,
    NO_COUNTER as NO_COUNTER,
    Counter as Counter,
    Links as Links,
    Wait as Wait,
)
from onthedot.stores.contract.errors import DeadlinePassed as DeadlinePassed
from onthedot.stores.contract.events import (
    BUCKETS as BUCKETS,
    MAX_EVENTS as MAX_EVENTS,
    MAX_READ_BYTES as MAX_READ_BYTES,
    RELAYS as RELAYS,
    Arrival as Arrival,
    EventStatus as EventStatus,
    HandleRecord as HandleRecord,
    HandleStatus as HandleStatus,
    LogPage as LogPage,
    NewEvent as NewEvent,
    OutboxEvent as OutboxEvent,
    OutboxState as OutboxState,
    RelayRequest as RelayRequest,
    RelayResult as RelayResult,
    TopicState as TopicState,
    UnreadCount as UnreadCount,
)
from onthedot.stores.contract.journal import Note as Note, NoteKind as NoteKind
from onthedot.stores.contract.limits import Limit as Limit
from onthedot.stores.contract.outcomes import (
    Completed as Completed,
    Effects as Effects,
    Ended as Ended,
    Outcome as Outcome,
    Requeued as Requeued,
    Suspended as Suspended,
    Verdict as Verdict,
)
from onthedot.stores.contract.position import MAX_AHEAD as MAX_AHEAD, Blocker as Blocker, Position as Position
from onthedot.stores.contract.protocol import (
    Control as Control,
    Inspect as Inspect,
    Sessions as Sessions,
    Store as Store,
    StoreTraits as StoreTraits,
    Tasks as Tasks,
)
from onthedot.stores.contract.schedules import FireRequest as FireRequest, Schedule as Schedule
from onthedot.stores.contract.series import (
    MAX_SERIES_DATA as MAX_SERIES_DATA,
    SERIES as SERIES,
    SeriesEntry as SeriesEntry,
    SeriesRetention as SeriesRetention,
)
from onthedot.stores.contract.sessions import (
    CLIENT_LEASE as CLIENT_LEASE,
    MAX_SUBSCRIPTIONS as MAX_SUBSCRIPTIONS,
    SESSION_FORMAT as SESSION_FORMAT,
    HandoffMessage as HandoffMessage,
    HeartbeatResult as HeartbeatResult,
    Hint as Hint,
    Hints as Hints,
)
from onthedot.stores.contract.signals import (
    MAX_KEPT_SIGNALS as MAX_KEPT_SIGNALS,
    NewSignal as NewSignal,
    SignalPage as SignalPage,
    StoredSignal as StoredSignal,
)
from onthedot.stores.contract.tasks import (
    BATCH as BATCH,
    DEFAULT as DEFAULT,
    ENDED as ENDED,
    LIVE as LIVE,
    MAX_ADD as MAX_ADD,
    NO_HISTORY as NO_HISTORY,
    NOT_STARTED as NOT_STARTED,
    PENDING as PENDING,
    RECENT_MS as RECENT_MS,
    Added as Added,
    History as History,
    NewTask as NewTask,
    Page as Page,
    Policy as Policy,
    Reason as Reason,
    Record as Record,
    State as State,
)
