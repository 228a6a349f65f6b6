"""The JSON of schedules and of their plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from onthedot.web.schemas import Moment


class ScheduleRunRow(Struct, frozen=True, kw_only=True):
    """A past window. state: of its task; none: it was skipped, or its task is no longer kept."""

    at: Moment
    uuid: str
    state: Literal["scheduled", "ready", "running", "waiting", "succeeded", "failed", "cancelled", "none"]
    lateness_ms: float | None


class ScheduleFormRow(Struct, frozen=True, kw_only=True):
    """The part of a schedule that an edit can change. rule: as `POST /schedules` takes it; grace, jitter: seconds."""

    rule: str
    tz: str
    overlap: Literal["skip", "allow", "queue"]
    catch_up: Literal["latest", "all", "none"]
    grace: float
    jitter: float
    start: Moment | None
    end: Moment | None


class ScheduleRow(Struct, frozen=True, kw_only=True):
    """A schedule. words: its rule; revision: for If-Match; next: the next three runs; runs: the last twenty.

    lateness_ms: of the latest start among `runs`; form: None: only code can make its rule
    """

    name: str
    source: str
    rule: str
    enabled: bool
    next_run: Moment | None
    last_run: Moment | None
    run_count: int
    owner: Literal["code", "data"]
    orphan: bool
    reason: str
    args: Any
    options: Any
    skipped: Mapping[str, int]
    next: Sequence[Moment]
    words: str
    revision: str
    runs: Sequence[ScheduleRunRow]
    lateness_ms: float | None
    form: ScheduleFormRow | None
    status: Literal["active", "paused", "orphan", "invalid", "over"]


class PlanRow(Struct, frozen=True):
    """A future run. wall: the time in the schedule's zone; mark: gap, first or second at a change of clocks."""

    name: str
    at: Moment
    wall: str
    due: Moment
    mark: str


class HourLoad(Struct, frozen=True):
    """How many runs begin in the hour that begins then."""

    at: Moment
    runs: int


class MomentLoad(Struct, frozen=True):
    """How many runs begin at a moment."""

    at: Moment
    runs: int


class PlanDetail(Struct, frozen=True):
    """The next runs, and how many there are per hour.

    words: of a rule that was asked for; busiest: the moment at which most runs begin, and their number
    """

    items: Sequence[PlanRow]
    load: Sequence[HourLoad]
    words: str = ""
    busiest: MomentLoad | None = None
