"""The windows of a schedule: which ones run now, and the task id and jitter of each."""

from __future__ import annotations

from datetime import datetime, timedelta
from hashlib import sha256
from typing import NamedTuple
from uuid import UUID

from onthedot.clock.durations import Duration, to_seconds
from onthedot.errors import BadSchedule
from onthedot.schedules.rules import (
    TICK,
    CatchUp,
    IntervalSchedule,
    OnceSchedule,
    Rule,
    ScheduleRule,
    to_utc,
    until_end,
)

MAX_WINDOWS = 1000  # the most windows that one decision looks at


class DueWindows(NamedTuple):
    """The windows of a schedule that run now."""

    run: list[datetime]  # oldest first
    skipped: int  # missed windows that do not run; above MAX_WINDOWS only intervals are counted exactly
    next_at: datetime | None  # may be due already: call again


def first_run(schedule: ScheduleRule, moment: datetime) -> datetime | None:
    """The first window of a schedule that is stored at this moment; earlier windows do not count as missed.

    >>> now = datetime.fromisoformat("2026-01-01T00:00Z")
    >>> first_run(IntervalSchedule(60, immediately=True), now) == now
    True
    """
    moment = to_utc(moment)
    if isinstance(schedule, IntervalSchedule) and schedule.immediately:
        return until_end(schedule.end, max(moment, schedule.start or moment))
    if isinstance(schedule, OnceSchedule):
        # at=datetime.now(UTC), evaluated a moment ago, is meant to run.
        moment -= timedelta(seconds=to_seconds(schedule.grace, "grace")) + TICK
    return schedule.next_after(moment)


def due_windows(
    rule: Rule, next_at: datetime, now: datetime, catch_up: CatchUp = "latest", grace: Duration = 60
) -> DueWindows:
    """Which windows from `next_at` up to `now` run, and which one is next. `next_at` only grows.

    The newest due window is the current one, the older ones are missed. `catch_up="latest"` runs the current one,
    "none" only if it is at most `grace` late, and "all" runs every window (at most `MAX_WINDOWS` per call).

    >>> at = datetime.fromisoformat("2026-01-01T00:00Z")
    >>> windows = due_windows(IntervalSchedule(3600), at, at + timedelta(hours=5, minutes=30))
    >>> [run.hour for run in windows.run], windows.skipped, windows.next_at.hour
    ([5], 5, 6)
    """
    next_at = to_utc(next_at)
    now = to_utc(now)
    if next_at > now:
        return DueWindows([], 0, next_at)
    if isinstance(rule, IntervalSchedule):
        rule = rule.with_anchor(next_at)
    if catch_up == "all":
        return _all_windows(rule, next_at, now)
    current = _newest(rule, next_at, now + TICK)
    following = rule.next_after(current)
    missed = _count(rule, next_at, current)
    if catch_up == "none" and now - current > timedelta(seconds=to_seconds(grace, "grace")):
        return DueWindows([], missed + 1, following)
    return DueWindows([current], missed, following)


def _all_windows(rule: Rule, first: datetime, now: datetime) -> DueWindows:
    run: list[datetime] = []
    at: datetime | None = first
    while at is not None and at <= now and len(run) < MAX_WINDOWS:
        run.append(at)
        at = rule.next_after(at)
    return DueWindows(run, 0, at)


def _newest(rule: Rule, window: datetime, before: datetime) -> datetime:
    """The newest window before a moment, from a known one on: by bisection, since there may be millions."""
    high = before
    for _ in range(200):  # a hundred halvings of all time end below a microsecond
        following = rule.next_after(window)
        if following is None or following >= before:
            break
        middle = window + (high - window) / 2
        found = rule.next_after(middle)
        if found is not None and found < before:
            window = found
        else:
            window = following
            high = middle
    return window


def _count(rule: Rule, first: datetime, before: datetime) -> int:
    """The windows from the first one up to a later moment, without that."""
    if first >= before:
        return 0
    if isinstance(rule, IntervalSchedule):
        second = rule.next_after(first)
        last = min(before, (rule.end or before) + TICK) - TICK
        if second is None or second > last:
            return 1
        return 2 + (last - second) // rule.step
    count = 0
    window = first
    while count < MAX_WINDOWS and window < before:
        count += 1
        following = rule.next_after(window)
        if following is None:
            break
        window = following
    return count


def jitter_ms(name: str, nominal_ms: int, jitter: Duration) -> int:
    """Milliseconds, up to `jitter`, by which this window of this schedule starts later: the same in every process.

    >>> jitter_ms("report", 1_767_225_600_000, 30) == jitter_ms("report", 1_767_225_600_000, 30) <= 30_000
    True
    """
    most = int(to_seconds(jitter, "jitter", BadSchedule) * 1000)
    return int.from_bytes(_digest("jitter", name, nominal_ms)[:8], "big") * (most + 1) >> 64


def nominal_uuid(name: str, nominal_ms: int) -> str:
    """The uuid of this window's task: every process computes the same. It begins with the time, as uuid7 does.

    >>> nominal_uuid("report", 1_767_225_600_000)
    '019b76da-a800-8e5c-94ab-c20b636bd3dc'
    """
    number = int.from_bytes(_digest("uuid", name, nominal_ms)[:16], "big")
    number = (nominal_ms & 0xFFFF_FFFF_FFFF) << 80 | number & ((1 << 80) - 1)
    number = number & ~(0xF << 76) | 8 << 76  # version 8: custom
    return str(UUID(int=number & ~(0b11 << 62) | 0b10 << 62))


def _digest(purpose: str, name: str, nominal_ms: int) -> bytes:
    return sha256(f"{purpose}\0{nominal_ms}\0{name}".encode("utf-8", "surrogatepass")).digest()
