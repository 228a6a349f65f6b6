"""The JSON of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from onthedot.web.schemas import Moment, TaskListRow


class RunningRow(Struct, frozen=True, kw_only=True):
    """A task that a worker runs."""

    uuid: str
    short_id: str
    source: str
    label: str
    started_at: Moment | None


class LostTasksRow(Struct, frozen=True):
    """The tasks of a worker that died. requeued; failed: by the limit of crashes; held: not released yet."""

    requeued: int
    failed: int
    held: int


class WorkerRow(Struct, frozen=True, kw_only=True):
    """A worker; not alive: it died in the last ten minutes. slots: by pool.

    longest: those of its tasks that have been running longest; lost: of one that died

    The others come from what it writes every ten seconds while it works, and every minute while it is idle. seen: when
    it did so last; done: tasks that ended in each of the last ten minutes; rss: bytes of memory; loop_lag_ms: by which
    its event loop is late, p99 of a minute; clock_offset_ms: by which its clock is ahead of the store's
    """

    id: str
    short_id: str
    host: str
    pid: int
    version: str
    release: str
    since: Moment | None
    slots: Mapping[str, int]
    running: int
    longest: Sequence[RunningRow]
    sources: Sequence[str]
    schedules: Sequence[str]
    data_lost: Moment | None
    seen: Moment | None
    done_per_minute: float | None
    done: Sequence[int]
    rss: int | None
    loop_lag_ms: float | None
    clock_offset_ms: float | None
    lost: LostTasksRow | None
    alive: bool = True


class WorkerDetail(WorkerRow, frozen=True, kw_only=True):
    """A worker in full. tasks: that it runs, at most 200, those that have been running longest first."""

    tasks: Sequence[TaskListRow]
