"""The rules by which schedules fire: the public schedule classes, and their stored form."""

from __future__ import annotations

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
    """What a schedule needs: any object with this method is one."""

    def next_after(self, moment: datetime, /) -> datetime | None:
        """Aware and strictly later than the moment, or None: never again."""
        ...


class NaiveDatetime(BadSchedule, ValueError):
    """A moment without a time zone."""


@dataclass(frozen=True, kw_only=True)
class _Common:
    args: Mapping[str, object] | None = field(default=None, hash=False)
    overlap: Overlap = "skip"
    catch_up: CatchUp = "latest"
    grace: Duration = 60

    def in_zone(self, tz: Zone) -> Self:  # noqa: ARG002 - those that go by wall clocks use it
        """The same in this zone, if it goes by wall clocks and has named no zone."""
        return self


@dataclass(frozen=True, kw_only=True)
class _Bounded(_Common):
    jitter: Duration = 0
    start: datetime | None = None
    end: datetime | None = None


@dataclass(frozen=True)
class IntervalSchedule(_Common):
    """Every so many seconds, on a grid that does not drift: from `start` on, else from when it was first stored.

    >>> every = IntervalSchedule(90, start=datetime(2026, 1, 1, tzinfo=UTC))
    >>> every.next_after(datetime(2026, 1, 1, 0, 2, tzinfo=UTC)).isoformat()
    '2026-01-01T00:03:00+00:00'
    """

    interval: Duration
    start: datetime | None = None
    end: datetime | None = None
    jitter: Duration = 0
    immediately: bool = False
    anchor: datetime | None = field(default=None, kw_only=True)  # when it was first stored

    def __post_init__(self) -> None:
        _check(self)
        _set(self, "interval", to_seconds(self.interval, "IntervalSchedule: interval", BadSchedule))
        if self.step < timedelta(milliseconds=1):
            raise BadSchedule(f"IntervalSchedule: interval {self.interval} is out of range: at least 0.001 seconds")
        if not isinstance(self.immediately, bool):
            raise BadSchedule(f"IntervalSchedule: immediately={self.immediately!r} is neither True nor False")

    @property
    def step(self) -> timedelta:
        return timedelta(seconds=to_seconds(self.interval, "interval"))

    def with_anchor(self, moment: datetime) -> IntervalSchedule:
        """Its grid starts here, unless it has one."""
        return self if self.start or self.anchor else replace(self, anchor=moment)

    def next_after(self, moment: datetime) -> datetime | None:
        moment = to_utc(moment)
        origin = self.start or self.anchor or moment
        try:
            first = origin if self.start or (self.anchor and self.immediately) else origin + self.step
            found = first if moment < first else first + ((moment - first) // self.step + 1) * self.step
        except OverflowError:
            return None  # after the end of the calendar
        return until_end(self.end, found)


@dataclass(frozen=True)
class CronSchedule(_Bounded):
    """By a cron expression, in a time zone (without one: the app's).

    >>> nightly = CronSchedule("0 3 * * *", tz="Europe/Berlin")
    >>> nightly.next_after(datetime(2026, 7, 1, 12, tzinfo=UTC)).isoformat()
    '2026-07-02T01:00:00+00:00'
    """

    expr: str
    tz: Zone | None = None

    def __post_init__(self) -> None:
        _check(self)
        _set(self, "tz", None if self.tz is None else zone_name(self.tz))
        cached_cron(self.expr, "UTC")  # refuses what cannot be read
        if self.tz and self.start and self.end and self.next_after(self.start - TICK) is None:
            raise BadSchedule(f"CronSchedule: {self.expr!r} never fires between {self.start} and {self.end}")

    def in_zone(self, tz: Zone) -> Self:
        return replace(self, tz=tz) if self.tz is None else self

    def next_after(self, moment: datetime) -> datetime | None:
        cron = cached_cron(self.expr, str(self.tz or "UTC"))
        return until_end(self.end, cron.next_after(_from(self.start, moment)))


@dataclass(frozen=True)
class DailySchedule(_Bounded):
    """At a time of day, every day or on some weekdays: names, a range of names, or numbers as in `date.weekday()`.

    >>> early = DailySchedule("03:00", tz="Europe/Berlin", weekdays="mon-fri")
    >>> early.next_after(datetime(2026, 7, 3, 12, tzinfo=UTC)).isoformat()
    '2026-07-06T01:00:00+00:00'
    """

    at: str | time
    tz: Zone | None = None
    weekdays: str | Iterable[str | int] | None = None
    _expr: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self)
        zone = self.at.tzinfo if isinstance(self.at, time) and self.tz is None else self.tz
        _set(self, "tz", None if zone is None else zone_name(zone))
        at, weekdays, expr = parse_daily(self.at, self.weekdays)
        for name, value in (("at", at), ("weekdays", weekdays), ("_expr", expr)):
            _set(self, name, value)

    def in_zone(self, tz: Zone) -> Self:
        return replace(self, tz=tz) if self.tz is None else self

    def next_after(self, moment: datetime) -> datetime | None:
        cron = cached_cron(self._expr, str(self.tz or "UTC"))
        return until_end(self.end, cron.next_after(_from(self.start, moment)))


@dataclass(frozen=True)
class OnceSchedule(_Bounded):
    """Once, at a moment.

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
    """A rule of one's own, held to what rules promise; it takes its options from attributes of the rule."""

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
    """What may stand for a schedule, as one, in its own zone or else in this one.

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
    said: dict[str, Any] = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return RuleSchedule(cast(Rule, value), **said)


def to_data(schedule: ScheduleRule) -> dict[str, object]:
    """As plain JSON data, without `args`: those are encoded with the task they are for.

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
    """The way back.

    >>> from_data({"type": "interval", "interval": 5}) == IntervalSchedule(5)
    True
    """
    said = dict(data)
    kind = _KINDS.get(said.pop("type", ""))
    if kind is None:
        raise BadSchedule(f"stored schedule {data!r} is of no known type: {', '.join(_KINDS)}")
    try:
        for name in ("start", "end", "anchor") + (("at",) if kind is OnceSchedule else ()):
            if said.get(name) is not None:
                said[name] = datetime.fromisoformat(said[name])
        return kind(**said, args=args)
    except (TypeError, ValueError) as error:
        raise BadSchedule(f"stored schedule {data!r} cannot be read: {error}") from error


def _check(schedule: ScheduleRule) -> None:
    """Checks what all have in common, and brings it into one form: seconds as float, moments in UTC."""
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
    return _aware(moment, "moment")


def _from(start: datetime | None, moment: datetime) -> datetime:
    moment = to_utc(moment)
    return max(moment, start - TICK) if start else moment


def until_end(end: datetime | None, found: datetime | None) -> datetime | None:
    return None if found is None or (end and found > end) else found
