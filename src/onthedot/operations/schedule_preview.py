"""The next runs of schedules, and how many there are per hour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice, pairwise

from onthedot.clock.epoch import from_ms, to_ms
from onthedot.schedules.cron import ClockChange, cached_cron, parse_zone
from onthedot.schedules.rules import CronSchedule, DailySchedule, IntervalSchedule, ScheduleRule
from onthedot.schedules.windows import due_windows, jitter_ms
from onthedot.stores import contract

HOUR = timedelta(hours=1)
_MAX_WINDOWS = 100_000  # of one rule; a cron has at most 86,400 per day


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A future window."""

    name: str
    at: datetime  # in UTC
    wall: datetime  # in the schedule's own zone
    due: datetime  # in UTC, with its jitter
    mark: ClockChange = ""  # gap: its hour does not exist, so it runs right after · first, second: its hour comes twice


def planned_run(name: str, rule: ScheduleRule | None, at: datetime) -> PlannedRun:
    due = at
    if rule is not None and rule.jitter:
        due += timedelta(milliseconds=jitter_ms(name, to_ms(at), rule.jitter))
    if not isinstance(rule, CronSchedule | DailySchedule):
        return PlannedRun(name, at, at, due)
    zone = str(rule.tz or "UTC")
    return PlannedRun(name, at, at.astimezone(parse_zone(zone)), due, cached_cron(rule.expr, zone).mark(at))


def coming_windows(record: contract.Schedule, rule: ScheduleRule, now: float) -> Iterator[datetime]:
    """Yield the windows that are still to run; of a paused schedule, as if it were resumed now."""
    if record.next_at is None:
        return
    moment = from_ms(now)
    at = from_ms(record.next_at)
    if isinstance(rule, IntervalSchedule):
        rule = rule.with_anchor(at)
    following: datetime | None = at
    if at <= moment and record.paused:
        following = due_windows(rule, at, moment, "none", rule.grace).next_at
    elif at <= moment:
        due = due_windows(rule, at, moment, rule.catch_up, rule.grace)
        yield from due.run
        following = due.next_at
    while following is not None:
        yield following
        following = rule.next_after(following)


def count_by_hour(record: contract.Schedule, rule: ScheduleRule, now: float, hours: int) -> list[int]:
    """Return the number of windows per hour, from the current hour on."""
    begin = from_ms(now).replace(minute=0, second=0, microsecond=0)
    counts = [0] * hours
    for at in islice(coming_windows(record, rule, now), _MAX_WINDOWS):
        if at < begin:
            continue
        if isinstance(rule, IntervalSchedule):
            return _count_on_grid(rule, at, begin, counts)
        if (hour := (at - begin) // HOUR) >= hours:
            break
        counts[hour] += 1
    return counts


def _count_on_grid(rule: IntervalSchedule, first: datetime, begin: datetime, counts: list[int]) -> list[int]:
    """The windows of an interval are computed, not iterated: there may be millions."""

    def before(moment: datetime) -> int:
        if rule.end is not None:
            moment = min(moment, rule.end + timedelta(microseconds=1))
        return max(0, -((first - moment) // rule.step))

    edges = [before(begin + hour * HOUR) for hour in range(len(counts) + 1)]
    return [later - earlier for earlier, later in pairwise(edges)]
