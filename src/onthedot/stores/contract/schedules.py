"""Schedules: rules that create tasks over time. The store keeps them and reports which are due."""

from __future__ import annotations

from msgspec import Struct

from onthedot.stores.contract.tasks import NewTask


class Schedule(Struct, frozen=True):
    """A schedule as a store keeps it. The revision grows with every change."""

    name: str
    rule: bytes  # rule, source, args, options, policy: opaque
    definition_digest: str  # of what code declared; "" for a schedule owned by data
    next_at: int | None
    rev: int = 0
    paused: bool = False
    last_at: int | None = None
    runs: int = 0
    incoming: bool = False  # copied by a move that is not finished: not active here yet


class FireRequest(Struct, frozen=True):
    """Refused unless the schedule still has this revision and is not paused."""

    name: str
    rev: int
    tasks: tuple[NewTask, ...]  # their uuids derive from (schedule, nominal time)
    next_at: int | None
    last_at: int | None = None  # the nominal time of the last window; None leaves it unchanged
