"""Cron expressions. cronsim parses and matches them; this module adds more syntax, and changes of the clock.

The search uses naive wall-clock times. Two offsets of a wall time, before and after a change of the clock, decide which
moments it stands for. Equal: an ordinary time. Before > after: it occurs twice. Before < after: it does not occur.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from calendar import monthrange
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import lru_cache
from typing import Literal, TypeAlias, cast
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from cronsim.cronsim import SYMBOLIC_DAYS, SYMBOLIC_MONTHS, Field

from onthedot.errors import BadSchedule

Zone: TypeAlias = str | tzinfo
ClockChange: TypeAlias = Literal["", "gap", "first", "second"]

NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_FIELDS = (
    ("second", "0-59"),
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("day", "1-31, L, LW, nW or ?"),
    ("month", "1-12 or JAN-DEC"),
    ("weekday", "0-7 or SUN-SAT (0 and 7 are Sunday), n#1-n#5, nL or ?"),
)
_DAY = 3  # index of a field
_MONTH = 4
_WEEKDAY = 5
_MONTHS = {name: number for number, name in enumerate(SYMBOLIC_MONTHS, 1)}
_WEEKDAYS = {name: number for number, name in enumerate(SYMBOLIC_DAYS)}
_NEAREST = re.compile(r"([1-9]|[12][0-9]|3[01])W")
_RANGE = re.compile(r"([0-9A-Z]+)-([0-9A-Z]+)(/0*[1-9][0-9]*)?")
_NAMED_LAST = re.compile(r"\b(SUN|MON|TUE|WED|THU|FRI|SAT)L\b")
_CLOCK = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")
_WEEK = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MAX_LENGTH = 1000  # characters; all sixty seconds listed one by one are 170
_SECOND = timedelta(seconds=1)
_ONE_DAY = timedelta(days=1)
_SEARCH_START = date(1999, 12, 31)


class Cron:
    """A cron expression in a time zone: five fields, or six with seconds first.

    When an hour repeats, fixed hours fire once, in the first one, and an hour field that begins with ``*`` fires in
    both. When an hour is missing, fixed hours fire once, at the first moment after the gap, ``*`` as usual.

    >>> before_spring = datetime(2026, 3, 28, 12, tzinfo=UTC)
    >>> Cron("30 2 * * *", "Europe/Berlin").next_after(before_spring).isoformat()
    '2026-03-29T01:00:00+00:00'
    >>> Cron("61 * * * *")
    Traceback (most recent call last):
    onthedot.errors.BadSchedule: cron '61 * * * *': minute '61' is not one of, or a range or step of, 0-59
    """

    __slots__ = ("_matcher", "_starred", "expr", "zone")

    def __init__(self, expr: str, tz: Zone = UTC) -> None:
        self.expr: str = expr
        self.zone: tzinfo = parse_zone(tz)
        fields = _fields(expr)
        self._starred = fields[2].startswith("*")
        self._matcher = _parse(expr, fields)

    def __repr__(self) -> str:
        return f"Cron({self.expr!r}, {zone_name(self.zone)!r})"

    def next_after(self, moment: datetime) -> datetime | None:
        """The first firing strictly later than an aware moment, in UTC; None after the end of the calendar."""
        if moment.utcoffset() is None:
            raise ValueError(f"{moment!r} has no time zone; pass an aware datetime")
        try:
            local = moment.astimezone(UTC).astimezone(self.zone)
            wall = local.replace(tzinfo=None, microsecond=0)
            found = self._next_starred(wall) if self._starred else self._next_fixed(wall)
        except OverflowError:
            return None
        return found.replace(tzinfo=UTC)

    def mark(self, moment: datetime) -> ClockChange:
        """How a change of the clock affects this firing: after a gap, or in the first or second of a repeated hour.

        >>> Cron("30 2 * * *", "Europe/Berlin").mark(datetime(2026, 3, 29, 1, tzinfo=UTC))
        'gap'
        """
        wall = moment.astimezone(self.zone).replace(tzinfo=None, microsecond=0)
        before, after = self._offsets(wall)
        if before > after:
            return "second" if wall.fold else "first"
        return "" if self._matcher.after(wall - _SECOND) == wall else "gap"

    def _next_fixed(self, wall: datetime) -> datetime:
        before, after = self._offsets(wall)
        if wall.fold and before > after:
            # In the second of a repeated hour: continue at the end of the first, whose times have all fired.
            wall = self._change(wall, before, after) + before - _SECOND
        found = self._matcher.after(wall)
        before, after = self._offsets(found)
        if before < after:
            return self._change(found, before, after)
        return found - before

    def _next_starred(self, wall: datetime) -> datetime:
        found = self._matcher.after(wall)
        before, after = self._offsets(wall)
        if before > after:
            change = self._change(wall, before, after)
            if not wall.fold:
                if found < change + before:
                    return found - before
                found = self._matcher.after(change + after - _SECOND)
            if found < change + before:
                return found - after
        before, after = self._offsets(found)
        while before < after:
            found = self._matcher.after(self._change(found, before, after) + after - _SECOND)
            before, after = self._offsets(found)
        return found - before

    def _offsets(self, wall: datetime) -> tuple[timedelta, timedelta]:
        return self._offset(wall.replace(fold=0)), self._offset(wall.replace(fold=1))

    def _offset(self, wall: datetime) -> timedelta:
        return self.zone.utcoffset(wall.replace(tzinfo=self.zone)) or timedelta()

    def _change(self, wall: datetime, before: timedelta, after: timedelta) -> datetime:
        """The change of the clock, in naive UTC, that makes this wall time repeated or missing.

        Zones do not list their changes, so it is found by bisection between the two readings of the wall time.
        """
        early, late = sorted((wall.replace(fold=0) - before, wall.replace(fold=0) - after))
        while late - early > _SECOND:
            middle = early + timedelta(seconds=(late - early) // _SECOND // 2)
            if middle.replace(tzinfo=UTC).astimezone(self.zone).utcoffset() == after:
                late = middle
            else:
                early = middle
        return late


def parse_zone(tz: Zone) -> tzinfo:
    """The zone of a name, or the zone itself.

    >>> parse_zone("Europe/Berlin")
    zoneinfo.ZoneInfo(key='Europe/Berlin')
    """
    if isinstance(tz, tzinfo):
        return tz
    if not isinstance(tz, str):
        raise BadSchedule(f"tz: {tz!r} is of type {type(tz).__name__}; name a zone, for example 'Europe/Berlin'")
    if tz.upper() == "UTC":
        return UTC  # systems without a zone database have it, too
    try:
        return ZoneInfo(tz)
    except (KeyError, ValueError, OSError):
        raise BadSchedule(f"tz: no time zone {tz!r} is known here; write it as in 'Europe/Berlin' or 'UTC'") from None


def zone_name(tz: Zone) -> str:
    """The name by which every process finds this zone.

    >>> zone_name(UTC)
    'UTC'
    """
    zone = parse_zone(tz)
    if zone is UTC:
        return "UTC"
    if isinstance(zone, ZoneInfo) and zone.key:
        return zone.key
    raise BadSchedule(f"tz: {tz!r} has no name that could be stored; name a zone, for example 'Europe/Berlin'")


@lru_cache(maxsize=1024)
def cached_cron(expr: str, tz: str) -> Cron:
    """A cached Cron: every firing decodes its schedule from the store.

    >>> cached_cron("@daily", "UTC") is cached_cron("@daily", "UTC")
    True
    """
    return Cron(expr, tz)


def parse_daily(at: str | time, weekdays: str | Iterable[str | int] | None) -> tuple[str, tuple[str, ...] | None, str]:
    """A time of day and weekdays: both in normal form, and together as a cron expression.

    >>> parse_daily("7:30", "sat-sun")
    ('07:30', ('sat', 'sun'), '0 30 7 * * SAT,SUN')
    """
    clock = _time_of_day(at)
    if clock is None:
        raise BadSchedule(f"DailySchedule: at {at!r} is out of range: '00:00' to '23:59', or with seconds '23:59:59'")
    text = clock.isoformat("seconds" if clock.second else "minutes")
    days = None
    cron_days = "*"
    if weekdays is not None:
        days = _weekdays(weekdays)
        cron_days = ",".join(days).upper()
    return text, days, f"{clock.second} {clock.minute} {clock.hour} * * {cron_days}"


def _time_of_day(at: str | time) -> time | None:
    if isinstance(at, time):
        at = at.replace(tzinfo=None).isoformat()
    if (found := _CLOCK.fullmatch(str(at))) is None:
        return None
    hour, minute, second = (int(part or 0) for part in found.groups())
    try:
        return time(hour, minute, second)
    except ValueError:
        return None


def _weekdays(days: str | Iterable[str | int]) -> tuple[str, ...]:
    if isinstance(days, str):
        days = days.split(",")
    chosen: set[int] = set()
    for day in days:
        first: str | int = day
        last = ""
        if isinstance(day, str):
            first, _, last = day.partition("-")
        start = _weekday(first)
        chosen.update((start + i) % 7 for i in range((_weekday(last or first) - start) % 7 + 1))
    if not chosen:
        raise BadSchedule("DailySchedule: weekdays is empty, so it never fires; leave it out for every day")
    return tuple(_WEEK[day][:3] for day in sorted(chosen))


def _weekday(value: str | int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 6:
        return value
    name = str(value).strip().lower()
    for number, day in enumerate(_WEEK):
        if isinstance(value, str) and name in (day, day[:3]):
            return number
    raise BadSchedule(f"DailySchedule: weekday {value!r} is not one of mon to sun, or 0 (Monday) to 6 (Sunday)")


def _fields(expr: str) -> list[str]:
    """Six fields in capitals; syntax that cronsim does not know is replaced, except nW."""
    if not isinstance(expr, str):
        raise BadSchedule(f"cron: {expr!r} is of type {type(expr).__name__}; pass text, for example '0 3 * * *'")
    if len(expr) > _MAX_LENGTH:
        raise BadSchedule(f"cron: {expr[:40]!r}… has {len(expr)} characters; the most is {_MAX_LENGTH}")
    text = expr.strip()
    if text.lower() == "@reboot":
        raise BadSchedule(
            "cron '@reboot': a start is not a time; use IntervalSchedule(…, immediately=True) or lifespan"
        )
    if text.startswith("@"):
        if text.lower() not in NICKNAMES:
            raise BadSchedule(f"cron {expr!r}: no such nickname; there are {', '.join(NICKNAMES)}")
        text = NICKNAMES[text.lower()]
    fields = text.upper().split()
    if len(fields) not in (5, 6):
        raise BadSchedule(f"cron {expr!r} has {len(fields)} fields; it takes 5, or 6 with seconds first")
    if len(fields) == 5:
        fields.insert(0, "0")
    for index in (_DAY, _WEEKDAY):
        if fields[index] == "?":
            fields[index] = "*"
    fields[_WEEKDAY] = _NAMED_LAST.sub(lambda named: f"{_WEEKDAYS[named[1]]}L", fields[_WEEKDAY])
    return [",".join(_range(term, index) for term in field.split(",")) for index, field in enumerate(fields)]


def _range(term: str, index: int) -> str:
    """A range that cronsim accepts: it takes FRI-SUN for 5-0, which it refuses, and 5-5/2 for 5/2, which is longer."""
    found = _RANGE.fullmatch(term)
    if found is None:
        return term
    first, last, step = found.groups("")
    if index == _WEEKDAY and last == "SUN" and first != "SUN":
        last = "7"
    names = {_MONTH: _MONTHS, _WEEKDAY: _WEEKDAYS}.get(index, {})
    if str(names.get(first, first)).lstrip("0") == str(names.get(last, last)).lstrip("0"):
        return first
    return f"{first}-{last}{step}"


def _parse(expr: str, fields: list[str]) -> _Matcher:
    for index, value in enumerate(fields):
        for term in value.split(","):
            if not _is_readable(term, index):
                name, allowed = _FIELDS[index]
                raise BadSchedule(f"cron {expr!r}: {name} {term!r} is not one of, or a range or step of, {allowed}")
    try:
        matcher = _Matcher(fields)
        matcher.day_after(_SEARCH_START)  # every pattern of days recurs within 50 years, or never
    except (CronSimError, OverflowError):
        never = f"day {fields[_DAY]!r} does not come in month {fields[_MONTH]!r}"
        raise BadSchedule(f"cron {expr!r} never fires: {never}") from None
    return matcher


def _is_readable(term: str, index: int) -> bool:
    """Whether cronsim accepts a term. Terms are checked one by one, so that the error can name the wrong one."""
    if term.startswith("L") and "/" in term:
        return False  # cronsim would take L/2 for L
    fields = ["*"] * 6
    fields[index] = term
    try:
        _Matcher(fields)
    except CronSimError:
        return False
    return bool(term)


class _Matcher(CronSim):
    """cronsim with nW (the weekday, Monday to Friday, nearest to day n, within its month), and a faster search."""

    def __init__(self, fields: list[str]) -> None:
        days = fields[_DAY].split(",")
        self.nearest = [int(day[:-1]) for day in days if _NEAREST.fullmatch(day)]
        plain = [day for day in days if not _NEAREST.fullmatch(day)]
        # cronsim would refuse a 31 that none of the months has, although a 5W beside it occurs: it gets neither.
        known = [*fields[:_DAY], "1" if self.nearest else fields[_DAY], *fields[_DAY + 1 :]]
        super().__init__(" ".join(known), datetime.combine(_SEARCH_START, time()))
        if self.nearest:
            self.days: set[int] = set()
            if plain:
                self.days = cast("set[int]", Field.DAY.parse(",".join(plain)))
            self.day_and = fields[_DAY].startswith("*") or fields[_WEEKDAY].startswith("*")
        self._times = sorted(self.hours), sorted(self.minutes), sorted(self.seconds)

    def match_dom(self, d: date) -> bool:
        return super().match_dom(d) or any(_nearest_weekday(d, day) == d.day for day in self.nearest)

    def after(self, wall: datetime) -> datetime:
        """The first match later than a wall time: later on its day, or the first on the next day that matches."""
        day = wall.date()
        if day.month in self.months and self.match_day(day) and (later := self._later(wall)) is not None:
            return datetime.combine(day, later)
        hours, minutes, seconds = self._times
        return datetime.combine(self.day_after(day), time(hours[0], minutes[0], seconds[0]))

    def _later(self, wall: datetime) -> time | None:
        hours, minutes, seconds = self._times
        if wall.hour in self.hours:
            if wall.minute in self.minutes and wall.second < seconds[-1]:
                return time(wall.hour, wall.minute, seconds[bisect_right(seconds, wall.second)])
            if wall.minute < minutes[-1]:
                return time(wall.hour, minutes[bisect_right(minutes, wall.minute)], seconds[0])
        if wall.hour < hours[-1]:
            return time(hours[bisect_right(hours, wall.hour)], minutes[0], seconds[0])
        return None

    def day_after(self, day: date) -> date:
        last = day.year + 50
        while day.year <= last:
            if (day + _ONE_DAY).month not in self.months:
                day = day.replace(day=monthrange(day.year, day.month)[1])  # skip the rest of the month
            day += _ONE_DAY
            if day.month in self.months and self.match_day(day):
                return day
        raise OverflowError(f"not within 50 years: {self.parts}")


def _nearest_weekday(month: date, day: int) -> int | None:
    first, last = monthrange(month.year, month.month)
    if day > last:
        return None
    weekday = (first + day - 1) % 7
    if weekday == 5:  # Saturday: Friday, or Monday where Friday is in the month before
        return day - 1 if day > 1 else 3
    if weekday == 6:
        return day + 1 if day < last else day - 2
    return day
