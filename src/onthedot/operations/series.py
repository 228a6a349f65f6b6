"""Charts: what all workers did over time, from the series of the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from onthedot.clock.durations import HOUR
from onthedot.clock.epoch import from_ms
from onthedot.clock.protocol import Clock
from onthedot.errors import ArgumentError
from onthedot.model.source_figures import Depth, FigureRecord, SourceFigures, sum_sources
from onthedot.operations.argument_checks import check_time
from onthedot.operations.figure_records import add_up, by_time, read_all
from onthedot.stores.contract import SERIES, Store

_SERIES: Mapping[int, str] = {60: "minutes", 600: "ten_minutes", 3600: "hours"}  # by step, in seconds
_MAX_POINTS = 1500
_COUNTS: Mapping[str, str] = {
    "done": "succeeded", "succeeded": "succeeded", "failed": "failed", "cancelled": "cancelled", "started": "started",
    "retried": "retried", "crashed": "crashed", "rate_limited": "rate_limited",
}  # fmt: skip
_PERCENTS = ("p50", "p95", "p99")
_TIMES: Mapping[str, tuple[str, int]] = {
    f"{what}_{percent}": (what, int(percent[1:]))
    for what in ("latency", "duration", "lateness")
    for percent in _PERCENTS
}
_DEPTHS = ("ready", "scheduled", "running", "waiting")
SERIES_NAMES: tuple[str, ...] = (*_COUNTS, *_TIMES, "depth", *_DEPTHS, "arrived")
"""The names that `series` takes."""


@dataclass(frozen=True, slots=True)
class SeriesData:
    """Values over time. A value is None where no worker was alive, and where nothing was timed."""

    step: int
    """Seconds between two points."""
    at: tuple[datetime, ...]
    """The beginning of each span."""
    series: Mapping[str, tuple[float | None, ...]]
    """By name; times are in milliseconds."""


async def read_series(
    store: Store,
    clock: Clock,
    names: Sequence[str],
    source: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    step: int | None = None,
) -> SeriesData:
    """See `Operations.series`."""
    unknown = [name for name in names if name not in SERIES_NAMES]
    if unknown:
        raise ArgumentError(f"there is no series {unknown[0]!r}; there are {', '.join(SERIES_NAMES)}")
    if step is not None and step not in _SERIES:
        raise ArgumentError(f"step is 60, 600 or 3600 seconds, not {step!r}")
    now = int(clock.now())
    end = now if until is None else min(now, check_time("series", "until", until))
    begin = end - HOUR if since is None else check_time("series", "since", since)
    if begin > end:
        raise ArgumentError("since is after until, or in the future")
    step = step or _fitting_step(begin, end, now)
    span = step * 1000
    begin = max(begin // span * span, end - _MAX_POINTS * span)
    times = range(-(-begin // span) * span, end, span)
    records = await read_records(store, step, times, now)
    values = {name: tuple(_values(name, [records.get(at) for at in times], source)) for name in names}
    return SeriesData(step, tuple(from_ms(at) for at in times), values)


def _fitting_step(begin: int, end: int, now: int) -> int:
    """The smallest one whose series is kept for the whole span."""
    for step, series in _SERIES.items():
        keep = SERIES[series].keep
        if (keep is None or begin >= now - keep) and (end - begin) // (step * 1000) < _MAX_POINTS:
            return step
    return max(_SERIES)


async def read_records(store: Store, step: int, times: range, now: int) -> dict[int, FigureRecord]:
    """Return the records that begin at these times, in ms. step: 60, 600 or 3600 seconds."""
    series = _SERIES[step]
    span = step * 1000
    if not times:
        return {}
    found = by_time(await read_all(store, series, times[0], times[-1]))
    if series == "minutes":
        return found
    recent = now // span * span - span  # the last spans may not be added up yet
    since = max(times[0], recent)
    minutes = by_time(await read_all(store, "minutes", since, times[-1] + span - 1))
    for at in range(since, times[-1] + 1, span):
        parts = [record for minute, record in minutes.items() if at <= minute < at + span]
        if at not in found and parts:
            found[at] = add_up(parts)
    return found


def _values(name: str, records: Sequence[FigureRecord | None], source: str | None) -> list[float | None]:
    if name == "arrived":
        return _arrived(records, source)
    return [None if record is None else _value(name, record, source) for record in records]


def _value(name: str, record: FigureRecord, source: str | None) -> float | None:
    if name in _COUNTS:
        return float(getattr(sum_sources([record], source), _COUNTS[name]))
    if name in _TIMES:
        what, percent = _TIMES[name]
        value: float | None = getattr(sum_sources([record], source), what).percentile(percent)
        return value
    depth = _depth(record, source)
    if depth is None:
        return None
    if name == "depth":
        return float(depth.ready + depth.scheduled + depth.waiting)
    return float(getattr(depth, name))


def _depth(record: FigureRecord, source: str | None) -> Depth | None:
    """None: it was not sampled yet."""
    if not record.depth:
        return None
    chosen = [each for name, each in record.depth.items() if source is None or name == source]
    return Depth(
        sum(each.ready for each in chosen),
        sum(each.scheduled for each in chosen),
        sum(each.running for each in chosen),
        sum(each.waiting for each in chosen),
        sum(each.failed for each in chosen),
    )


def _arrived(records: Sequence[FigureRecord | None], source: str | None) -> list[float | None]:
    """Tasks that were added: the growth of those that have not ended, and those that ended."""
    values: list[float | None] = []
    before: int | None = None
    for record in records:
        depth = None if record is None else _depth(record, source)
        live = None if depth is None else depth.ready + depth.scheduled + depth.running + depth.waiting
        if record is None or live is None or before is None:
            values.append(None)
        else:
            values.append(float(max(0, live - before + _ended(sum_sources([record], source)))))
        before = live
    return values


def _ended(figures: SourceFigures) -> int:
    return figures.succeeded + figures.failed + figures.cancelled
