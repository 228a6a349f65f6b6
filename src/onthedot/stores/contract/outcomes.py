"""Outcomes: the result of a run, as data. Settling one is the only way a task ends."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from onthedot.clock.durations import WEEK
from onthedot.stores.contract.claims import Lease
from onthedot.stores.contract.counters import Wait
from onthedot.stores.contract.events import NewEvent
from onthedot.stores.contract.tasks import NewTask

Verdict: TypeAlias = Literal["ok", "repeat", "lost"]
"""repeat: this lease has been settled before; lost: the task is leased to another session, or to none."""


class Effects(Struct, frozen=True, gc=False):
    """Takes effect with the outcome, or not at all."""

    tasks: tuple[NewTask, ...] = ()
    events: tuple[NewEvent, ...] = ()  # only stores with an outbox take any


class Completed(Struct, frozen=True, tag=True, gc=False):
    """The run returned."""

    lease: Lease
    result: bytes = b""
    keep: int = WEEK  # ms that the record is kept; 0: not at all
    effects: Effects | None = None
    keep_result: int | None = None  # ms that the result is kept; None: as long as the record


class Requeued(Struct, frozen=True, tag=True, gc=False):
    """Retry (counted), snooze (not counted) or release (after=None: due time and rank are kept, as if never claimed).

    A task with a cancel request becomes a chore instead, and a chore stays a chore: it must end. A lifted task returns
    to its place.
    """

    lease: Lease
    after: int | None
    counted: bool
    error: bytes = b""
    effects: Effects | None = None
    reset_crashes: bool = False  # attempts are kept, crashes start from 0, as with Suspended


class Ended(Struct, frozen=True, tag=True, gc=False):
    """The task failed for good, or was cancelled."""

    lease: Lease
    state: Literal["failed", "cancelled"]
    error: bytes
    keep: int = WEEK
    effects: Effects | None = None


class Suspended(Struct, frozen=True, tag=True, gc=False):
    """The run is over, the task is not: it waits, holds no slot and no lane, and is claimed again after the wait.

    Not counted. Attempts are kept and crashes start from 0: a run that gets this far does not kill its worker. A task
    that is flagged to be cancelled becomes a chore instead, and a chore stays one.
    """

    lease: Lease
    wait: Wait
    effects: Effects | None = None


Outcome: TypeAlias = Completed | Requeued | Ended | Suspended
