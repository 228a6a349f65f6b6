"""The rules by which schedules fire: the public schedule classes, and their stored form."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, time, timedelta
from typing import Any, Literal, Protocol, Self, TypeAlias, cast, get_args

from onthedot.clock.durations import Duration, to_seconds
from onthedot.errors import BadSchedule
from onthedot.schedules.cron import Zone, cached_cron, parse_daily, zone_name

Overlap: TypeAlias = Literal["skip", "allow", "queue"]
CatchUp: TypeAlias = Literal["latest", "all", "none"]
TICK = timedelta(microseconds=1)  # the smallest step of a datetime


class Rule(Protocol):
    """A custom rule: any object with this method."""

    def next_after(self, moment: datetime, /) -> datetime | None:
        """The first window strictly later than the moment, as an aware datetime; None if there is no more."""
        ...


class NaiveDatetime(BadSchedule, ValueError):
    """A datetime without a time zone."""


@dataclass(frozen=True, kw_only=True)
class _Common(ABC):
    args: Mapping[str, object] | None = field(default=None, hash=False)
    overlap: Overlap = "skip"
    catch_up: CatchUp = "latest"
    grace: Duration = 60

    @abstractmethod
    def next_after(self, moment: datetime) -> datetime | None:
        """Returns the next window, aware and strictly later; None if there is no more.

        Args:
            moment: An aware datetime.
        """

    def in_zone(self, tz: Zone) -> Self:  # noqa: ARG002 - schedules by wall clock override it
        """The same schedule in this zone, if it depends on one and names none."""
        return self


@dataclass(frozen=True, kw_only=True)
class _Bounded(_Common):
    jitter: Duration = 0
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True)
class IntervalSchedule(_Common):
    """Runs a task at a fixed interval that does not drift.

    Args:
        interval: seconds, or a timedelta, between two windows; at least 0.001.
        start: the first window, an aware datetime; by default one interval after the schedule was first stored.
        end: no window after this aware datetime.
        jitter: starts each run later by up to this many seconds, or a timedelta; the same delay in every process.
        immediately: the first window is the moment when the schedule is first stored.
        args: arguments of the task, by name.
        overlap: what happens while the last run is not finished: "skip" the window, "allow" both to run, or "queue" it.
        catch_up: if several windows are due at once, run the "latest", "all" of them, or the newest only if it is at
            most `grace` late ("none").
        grace: seconds or a timedelta, for ``catch_up="none"``.
        anchor: set by the store: when the schedule was first stored.

    >>> every = IntervalSchedule(90, start=datetime(2026, 1, 1, tzinfo=UTC))
    >>> every.next_after(datetime(2026, 1, 1, 0, 2, tzinfo=UTC)).isoformat()
    '2026-01-01T00:03:00+00:00'
    """

    interval: Duration
    start: datetime | None = None
    end: datetime | None = None
    jitter: Duration = 0
    immediately: bool = False
    anchor: datetime | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check(self)
        _set(self, "interval", to_seconds(self.interval, "IntervalSchedule: interval", BadSchedule))
        if self.step < timedelta(milliseconds=1):
            raise BadSchedule(f"IntervalSchedule: interval {self.interval} is out of range: at least 0.001 seconds")
        if not isinstance(self.immediately, bool):
            raise BadSchedule(f"IntervalSchedule: immediately={self.immediately!r} is neither True nor False")

    @property
    def step(self) -> timedelta:
        """The interval as a timedelta."""
        return timedelta(seconds=to_seconds(self.interval, "interval"))

    def with_anchor(self, moment: datetime) -> IntervalSchedule:
        """The schedule with this moment as its anchor, unless it has a start or an anchor."""
        if self.start or self.anchor:
            return self
        return replace(self, anchor=moment)

    def next_after(self, moment: datetime) -> datetime | None:
        moment = to_utc(moment)
        origin = self.start or self.anchor or moment
        try:
            first = origin
            if not self.start and not (self.anchor and self.immediately):
                first = origin + self.step
            found = first
            if moment >= first:
                found = first + ((moment - first) // self.step + 1) * self.step
        except OverflowError:
            return None  # after the end of the calendar
        return until_end(self.end, found)


@dataclass(frozen=True)
class CronSchedule(_Bounded):
    """Runs a task by a cron expression in a time zone.

    Args:
        expr: five fields, or six with seconds first, or a nickname such as ``@hourly`` or ``@daily``.
        tz: name of the time zone, or a tzinfo that has one; by default the app's.
        jitter: starts each run later by up to this many seconds, or a timedelta; the same delay in every process.
        start: no window before this aware datetime.
        end: no window after this aware datetime.
        args: arguments of the task, by name.
        overlap: what happens while the last run is not finished: "skip" the window, "allow" both to run, or "queue" it.
        catch_up: if several windows are due at once, run the "latest", "all" of them, or the newest only if it is at
            most `grace` late ("none").
        grace: seconds or a timedelta, for ``catch_up="none"``.

    >>> nightly = CronSchedule("0 3 * * *", tz="Europe/Berlin")
    >>> nightly.next_after(datetime(2026, 7, 1, 12, tzinfo=UTC)).isoformat()
    '2026-07-02T01:00:00+00:00'
    """

    expr: str
    tz: Zone | None = None

    def __post_init__(self) -> None:
        _check(self)
        if self.tz is not None:
            _set(self, "tz", zone_name(self.tz))
        cached_cron(self.expr, "UTC")  # raises if it cannot be read
        if self.tz and self.start and self.end and self.next_after(self.start - TICK) is None:
            raise BadSchedule(f"CronSchedule: {self.expr!r} never fires between {self.start} and {self.end}")

    def in_zone(self, tz: Zone) -> Self:
        return replace(self, tz=tz) if self.tz is None else self

    def next_after(self, moment: datetime) -> datetime | None:
        cron = cached_cron(self.expr, str(self.tz or "UTC"))
        return until_end(self.end, cron.next_after(_from(self.start, moment)))


@dataclass(frozen=True)
class DailySchedule(_Bounded):
    """Runs a task at a time of day, every day or on some weekdays.

    Args:
        at: time of day, as in "03:00", "03:00:30" or ``time(3)``.
        tz: name of the time zone, or a tzinfo that has one; by default that of `at`, else the app's.
        weekdays: "mon-fri", "sat,sun", a list of names, or numbers as in ``date.weekday()``; by default every day.
        jitter: starts each run later by up to this many seconds, or a timedelta; the same delay in every process.
        start: no window before this aware datetime.
        end: no window after this aware datetime.
        args: arguments of the task, by name.
        overlap: what happens while the last run is not finished: "skip" the window, "allow" both to run, or "queue" it.
        catch_up: if several windows are due at once, run the "latest", "all" of them, or the newest only if it is at
            most `grace` late ("none").
        grace: seconds or a timedelta, for ``catch_up="none"``.

    >>> early = DailySchedule("03:00", tz="Europe/Berlin", weekdays="mon-fri")
    >>> early.next_after(datetime(2026, 7, 3, 12, tzinfo=UTC)).isoformat()
    '2026-07-06T01:00:00+00:00'
    """

    at: str | time
    tz: Zone | None = None
    weekdays: str | Iterable[str | int] | None = None
    expr: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        zone = self.tz
        if zone is None and isinstance(self.at, time):
            zone = self.at.tzinfo
        if zone is not None:
            _set(self, "tz", zone_name(zone))
        at, weekdays, expr = parse_daily(self.at, self.weekdays)
        for name, value in (("at", at), ("weekdays", weekdays), ("expr", expr)):
            _set(self, name, value)

    def in_zone(self, tz: Zone) -> Self:
        return replace(self, tz=tz) if self.tz is None else self

    def next_after(self, moment: datetime) -> datetime | None:
        cron = cached_cron(self.expr, str(self.tz or "UTC"))
        return until_end(self.end, cron.next_after(_from(self.start, moment)))


@dataclass(frozen=True)
class OnceSchedule(_Bounded):
    """Runs a task once.

    Args:
        at: when, an aware datetime.
        jitter: starts the run later by up to this many seconds, or a timedelta; the same delay in every process.
        start: an aware datetime; an earlier `at` is refused.
        end: an aware datetime; a later `at` is refused.
        args: arguments of the task, by name.
        overlap: what happens while the last run is not finished: "skip" the window, "allow" both to run, or "queue" it.
        catch_up: "none": it does not run if it is more than `grace` late.
        grace: seconds or a timedelta, for ``catch_up="none"``; also how late it may be declared.

    >>> OnceSchedule(datetime(2026, 1, 1, tzinfo=UTC)).next_after(datetime(2025, 1, 1, tzinfo=UTC)).isoformat()
    '2026-01-01T00:00:00+00:00'
    """

    at: datetime

    def __post_init__(self) -> None:
        _check(self)
        if (self.start and self.at < self.start) or (self.end and self.at > self.end):
            raise BadSchedule(f"OnceSchedule: at {self.at} never comes between start {self.start} and end {self.end}")

    def next_after(self, moment: datetime) -> datetime | None:
        return self.at if self.at > to_utc(moment) else None


@dataclass(frozen=True)
class RuleSchedule(_Bounded):
    """A custom rule, whose answers are checked; its options come from attributes of the rule."""

    rule: Rule

    def __post_init__(self) -> None:
        _check(self)

    def next_after(self, moment: datetime) -> datetime | None:
        moment = _from(self.start, moment)
        found = self.rule.next_after(moment)
        if found is None:
            return None
        found = _aware(found, f"{self.rule!r}: next_after({moment})")
        if found <= moment:
            raise BadSchedule(f"{self.rule!r}: next_after({moment}) gave {found}, which is not later")
        return until_end(self.end, found)


ScheduleRule: TypeAlias = IntervalSchedule | CronSchedule | DailySchedule | OnceSchedule | RuleSchedule
_KINDS: dict[str, type[ScheduleRule]] = {
    "interval": IntervalSchedule,
    "cron": CronSchedule,
    "daily": DailySchedule,
    "once": OnceSchedule,
}


def as_schedule(value: object, tz: Zone = "UTC") -> ScheduleRule:
    """A schedule from any form that users may write, in its own zone or else in this one.

    >>> as_schedule(timedelta(minutes=5)) == IntervalSchedule(300)
    True
    """
    match value:
        case IntervalSchedule() | CronSchedule() | DailySchedule() | OnceSchedule() | RuleSchedule():
            return value.in_zone(tz)
        case str():
            return CronSchedule(value, tz)
        case timedelta():
            return IntervalSchedule(value)
        case time():
            return DailySchedule(value).in_zone(tz)
        case datetime():
            return OnceSchedule(value)
        case _:
            return _custom_rule(value)


def _custom_rule(value: object) -> RuleSchedule:
    if isinstance(value, type) or not callable(getattr(value, "next_after", None)):
        raise BadSchedule(
            f"schedule: {value!r} is of type {type(value).__name__}; pass a cron str, a timedelta, a time of day, an "
            "aware datetime, one of the …Schedule classes, or an object with next_after(moment)"
        )
    names = ("args", "overlap", "catch_up", "grace", "jitter")
    options: dict[str, Any] = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return RuleSchedule(cast(Rule, value), **options)


def to_data(schedule: ScheduleRule) -> dict[str, object]:
    """A schedule as plain JSON data, without `args`: those are encoded with their task.

    >>> to_data(CronSchedule("@daily", grace=5))
    {'type': 'cron', 'grace': 5.0, 'expr': '@daily'}
    """
    kind = next((name for name, each in _KINDS.items() if isinstance(schedule, each)), None)
    if kind is None:
        raise BadSchedule(f"{schedule!r} cannot be stored as data: only the code that has the rule can compute it")
    data: dict[str, object] = {"type": kind}
    for each in fields(schedule):
        value = getattr(schedule, each.name)
        if each.init and each.name != "args" and value != each.default:
            data[each.name] = value.isoformat() if isinstance(value, datetime) else value
    if isinstance(schedule, DailySchedule) and schedule.weekdays is not None:
        data["weekdays"] = list(schedule.weekdays)
    return data


def from_data(data: Mapping[str, Any], args: Mapping[str, object] | None = None) -> ScheduleRule:
    """The schedule of data from `to_data`.

    >>> from_data({"type": "interval", "interval": 5}) == IntervalSchedule(5)
    True
    """
    options = dict(data)
    kind = _KINDS.get(options.pop("type", ""))
    if kind is None:
        raise BadSchedule(f"stored schedule {data!r} is of no known type: {', '.join(_KINDS)}")
    try:
        moments = ["start", "end", "anchor"]
        if kind is OnceSchedule:
            moments.append("at")
        for name in moments:
            if options.get(name) is not None:
                options[name] = datetime.fromisoformat(options[name])
        return kind(**options, args=args)
    except (TypeError, ValueError) as error:
        raise BadSchedule(f"stored schedule {data!r} cannot be read: {error}") from error


def _check(schedule: ScheduleRule) -> None:
    """Checks the common options and normalizes them: seconds as float, moments in UTC."""
    what = type(schedule).__name__
    for name, kind in (("overlap", Overlap), ("catch_up", CatchUp)):
        if (value := getattr(schedule, name)) not in get_args(kind):
            raise BadSchedule(f"{what}: {name}={value!r} is not one of {', '.join(get_args(kind))}")
    for name in ("grace", "jitter"):
        _set(schedule, name, to_seconds(getattr(schedule, name), f"{what}: {name}", BadSchedule))
    for name in ("start", "end", "anchor"):
        if (moment := getattr(schedule, name, None)) is not None:
            _set(schedule, name, _aware(moment, f"{what}: {name}"))
    if isinstance(schedule, OnceSchedule):
        _set(schedule, "at", _aware(schedule.at, f"{what}: at"))
    if schedule.start and schedule.end and schedule.end < schedule.start:
        raise BadSchedule(f"{what}: end {schedule.end} is before start {schedule.start}")
    if schedule.args is not None:
        if not isinstance(schedule.args, Mapping) or not all(isinstance(name, str) for name in schedule.args):
            raise BadSchedule(f"{what}: args={schedule.args!r}; pass a dict of the parameters' names and values")
        _set(schedule, "args", dict(schedule.args))


def _set(schedule: object, name: str, value: object) -> None:
    object.__setattr__(schedule, name, value)


def _aware(moment: object, what: str) -> datetime:
    if not isinstance(moment, datetime):
        raise BadSchedule(f"{what}: {moment!r} is of type {type(moment).__name__}; it must be an aware datetime")
    if moment.utcoffset() is None:
        raise NaiveDatetime(f"{what}: {moment!r} has no time zone; pass an aware datetime, for example with tzinfo=UTC")
    return moment.astimezone(UTC)


def to_utc(moment: datetime) -> datetime:
    """An aware datetime in UTC; BadSchedule for a naive one."""
    return _aware(moment, "moment")


def _from(start: datetime | None, moment: datetime) -> datetime:
    moment = to_utc(moment)
    if start is None:
        return moment
    return max(moment, start - TICK)


def until_end(end: datetime | None, found: datetime | None) -> datetime | None:
    """The window that was found, or None if it is after the end."""
    if found is not None and end is not None and found > end:
        return None
    return found
