"""A task: as it is added, as a store keeps it, and its history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from onthedot.stores.contract.counters import Links, Wait

BATCH = 1000  # the most a turn promotes and most calls take; part of the semantics, the same in every store
MAX_ADD = 11_000  # the most tasks of one add; callers that have no reason to store them together add BATCH at a time

RECENT_MS = 10_000  # a repeated add within this time of the first is not fresh, even if the task has ended with keep=0

State: TypeAlias = Literal["scheduled", "parked", "ready", "running", "waiting", "succeeded", "failed", "cancelled"]
"""parked: due, but its lane has no capacity; users see it as ready.

waiting: for a counter; it holds no slot and no place in a lane.
"""
PENDING: tuple[State, ...] = ("scheduled", "parked", "ready")
NOT_STARTED: tuple[State, ...] = ("waiting", *PENDING)
LIVE: tuple[State, ...] = (*NOT_STARTED, "running")
"""In the order in which tasks go through them, so that a reader of one after the other passes none over."""
ENDED: frozenset[State] = frozenset({"succeeded", "failed", "cancelled"})
Reason: TypeAlias = Literal[
    "due", "crash", "cancel", "expired", "crashed", "stray", "undecodable", "lifted", "upstream"
]
"""Why a task is in its place; for a chore, why it must end.

undecodable: its record or policy cannot be read; fields that cannot be read have their defaults. lifted: it is being
moved to another store. upstream: the ends that it waited for do not meet `Wait.requires`.
"""


class Policy(Struct, frozen=True, gc=False):
    """How the store treats a task. One per definition, shared by its tasks."""

    priority: int = 5
    boost: int = 0  # priority × aging; rank = due − boost
    cost: float = 1  # tokens that a start takes from the lane's rate
    on_conflict: Literal["keep", "replace"] = "keep"
    unique_for: int | None = None  # ms from adding that the unique key is held; None: until the task ends
    expires: int | None = None  # ms after due at which a task that never started becomes a chore
    max_crashes: int = 3
    tags: tuple[str, ...] = ()
    reply_to: str | None = None  # the session that gets a hint when the task ends


DEFAULT = Policy()


class NewTask(Struct, frozen=True, gc=False):
    """A task to be added."""

    uuid: str  # made by the caller before any I/O
    source: str
    body: bytes  # arguments and headers: opaque
    at: int | None = None
    after: float = 0  # due = at, else now + after; fractions are kept, so that the sum is rounded once
    lane: str | None = None  # "source/key" or "@shared[/key]": at most one
    unique: str | None = None  # scope: the source
    policy: Policy = DEFAULT
    links: Links | None = None


class History(Struct, frozen=True, gc=False):
    """Attempts, times, result and error of a task; written at settle, cancel, crash and revive."""

    reason: Reason = "due"
    retries: int = 0  # counted retries since the last revive
    crashes: int = 0
    earlier: int = 0  # attempts that count neither as retries nor as crashes: before a revive or a suspension
    cancel_requested: bool = False
    settled_fence: int = 0  # the last fence that settled
    session: str | None = None  # the session of that fence
    started: int | None = None  # the last start that was not released
    ended: int | None = None
    keep_until: int | None = None
    result: bytes | None = None  # None: there is none, or it is no longer kept
    error: bytes | None = None  # the last one
    hops: int = 0  # moves between stores so far
    revives: int = 0  # an operator's retries: ids that derive from a task are new after one
    wait: Wait | None = None  # of a waiting task that has started; before the first run it is links.waits
    wait_until: int | None = None  # when the wait times out


NO_HISTORY = History()


class Record(Struct, frozen=True, gc=False):
    """A task as a store keeps it."""

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
    links: Links | None = None

    @property
    def rank(self) -> int:
        """Order of claims: rank, then seq."""
        return self.due - self.policy.boost

    @property
    def attempt(self) -> int:
        """The number of its current or next run, from 1."""
        return self.history.earlier + 1 + self.history.retries + self.history.crashes

    @property
    def wait(self) -> Wait | None:
        """The condition that it waits for; None: it does not wait."""
        if self.state != "waiting":
            return None
        return self.history.wait or (None if self.links is None else self.links.waits)

    @property
    def is_arriving(self) -> bool:
        """A copy by a move that is not finished: the store it comes from still has the task."""
        return self.history.reason == "lifted" and self.history.hops > 0 and not self.history.settled_fence

    @property
    def is_suspect(self) -> bool:
        """Its next crash would be its last."""
        return self.history.crashes + 1 >= self.policy.max_crashes


class Added(Struct, frozen=True, gc=False):
    """The answer to one added task."""

    uuid: str
    fresh: bool  # False: a task with this uuid or unique key exists; uuid is the existing one


class Page(Struct, frozen=True):
    """One page of records, in the order of their state (`Inspect.find`)."""

    rows: Sequence[Record]
    after: str | None  # cursor of the next page, opaque; None: this was the last
    scanned: int = 0  # records that the call has looked at; those that do not match are not in `rows`
    scanned_to: int | None = None
    """Time of the last of them, as ordered: when it was added, is due (less its boost), or has ended."""
