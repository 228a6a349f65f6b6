"""The JSON of one source in full, and of charts."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from onthedot.web.schemas import Moment, ReleaseMark, SeriesDetail, SourceRow, TaskListRow


class ChartDetail(SeriesDetail, frozen=True, kw_only=True):
    """Series with the code releases that began in their span."""

    marks: Sequence[ReleaseMark]


class SourceSchedule(Struct, frozen=True, kw_only=True):
    """A schedule that adds tasks of the source. words: its rule."""

    name: str
    words: str
    enabled: bool
    next_run: Moment | None


class SourceWorker(Struct, frozen=True, kw_only=True):
    """A live worker that knows the source."""

    id: str
    short_id: str
    host: str
    pid: int
    release: str


class SourceDetail(SourceRow, frozen=True, kw_only=True):
    """A source in full. history: tasks that ended in each of the last 60 seconds.

    series: done, failed, latency_p50, latency_p95 and depth; failures: the newest five
    """

    history: Sequence[int]
    series: SeriesDetail
    failures: Sequence[TaskListRow]
    schedules: Sequence[SourceSchedule]
    known_by: Sequence[SourceWorker]
