"""Rules that make tasks over time: when they fire next, and which of their windows run when we look."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, time, timedelta
from hashlib import sha256
from typing import Any, Literal, NamedTuple, Protocol, Self, TypeAlias, cast, get_args
from uuid import UUID

from onthedot.errors import BadSchedule
from onthedot.model.backoff import Duration, seconds
from onthedot.schedules.cron import Zone, cron_in, daily, zone_name

Overlap: TypeAlias = Literal["skip", "allow", "queue"]
CatchUp: TypeAlias = Literal["latest", "all", "none"]
MAX_WINDOWS = 1000  # the most windows that one decision looks at
_TICK = timedelta(microseconds=1)


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
        _set(self, "interval", seconds(self.interval, "IntervalSchedule: interval", BadSchedule))
        if self.step < timedelta(milliseconds=1):
            raise BadSchedule(f"IntervalSchedule: interval {self.interval} is out of range: at least 0.001 seconds")
        if not isinstance(self.immediately, bool):
            raise BadSchedule(f"IntervalSchedule: immediately={self.immediately!r} is neither True nor False")

    @property
    def step(self) -> timedelta:
        return timedelta(seconds=seconds(self.interval, "interval"))

    def with_anchor(self, moment: datetime) -> IntervalSchedule:
        """Its grid starts here, unless it has one."""
        return self if self.start or self.anchor else replace(self, anchor=moment)

    def next_after(self, moment: datetime) -> datetime | None:
        moment = _utc(moment)
        origin = self.start or self.anchor or moment
        try:
            first = origin if self.start or (self.anchor and self.immediately) else origin + self.step
            found = first if moment < first else first + ((moment - first) // self.step + 1) * self.step
        except OverflowError:
            return None  # after the end of the calendar
        return _until(self.end, found)


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
        cron_in(self.expr, "UTC")  # refuses what cannot be read
        if self.tz and self.start and self.end and self.next_after(self.start - _TICK) is None:
            raise BadSchedule(f"CronSchedule: {self.expr!r} never fires between {self.start} and {self.end}")

    def in_zone(self, tz: Zone) -> Self:
        return replace(self, tz=tz) if self.tz is None else self

    def next_after(self, moment: datetime) -> datetime | None:
        cron = cron_in(self.expr, str(self.tz or "UTC"))
        return _until(self.end, cron.next_after(_from(self.start, moment)))


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
        at, weekdays, expr = daily(self.at, self.weekdays)
        for name, value in (("at", at), ("weekdays", weekdays), ("_expr", expr)):
            _set(self, name, value)

    def in_zone(self, tz: Zone) -> Self:
        return replace(self, tz=tz) if self.tz is None else self

    def next_after(self, moment: datetime) -> datetime | None:
        cron = cron_in(self._expr, str(self.tz or "UTC"))
        return _until(self.end, cron.next_after(_from(self.start, moment)))


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
        return self.at if self.at > _utc(moment) else None


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
        return _until(self.end, found)


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


class DueWindows(NamedTuple):
    """What to do about a schedule now."""

    run: list[datetime]  # the windows that run, oldest first
    skipped: int  # windows that were missed and do not run; from LOOKED on, only intervals are counted exactly
    next_at: datetime | None  # may be due already: look again


def first_run(schedule: ScheduleRule, moment: datetime) -> datetime | None:
    """The first window of a schedule that is stored at this moment: what lies before is not its own.

    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> first_run(IntervalSchedule(60, immediately=True), now) == now
    True
    """
    moment = _utc(moment)
    if isinstance(schedule, IntervalSchedule) and schedule.immediately:
        return _until(schedule.end, max(moment, schedule.start or moment))
    if isinstance(schedule, OnceSchedule):
        # "now", said a moment ago, is meant to run.
        moment -= timedelta(seconds=seconds(schedule.grace, "grace")) + _TICK
    return schedule.next_after(moment)


def due_windows(
    rule: Rule, next_at: datetime, now: datetime, catch_up: CatchUp = "latest", grace: Duration = 60
) -> DueWindows:
    """Which windows from `next_at` up to `now` run, and which one is next. `next_at` only grows.

    A window that is up to `grace` late is on time and runs. Of those missed, "all" runs every one (some at a time),
    "none" none, and "latest" the newest, unless a newer one is on time.

    >>> hourly, at = CronSchedule("@hourly"), datetime(2026, 1, 1, tzinfo=UTC)
    >>> plan = due_windows(hourly, at, at + timedelta(hours=5, minutes=30))
    >>> [run.hour for run in plan.run], plan.skipped, plan.next_at.hour
    ([5], 5, 6)
    """
    next_at, now = _utc(next_at), _utc(now)
    if isinstance(rule, IntervalSchedule):
        rule = rule.with_anchor(next_at)
    on_time = now - timedelta(seconds=seconds(grace, "grace"))
    at: datetime | None = next_at
    run: list[datetime] = []
    skipped = 0
    if next_at < on_time and catch_up != "all":
        skipped = _count(rule, next_at, on_time)
        at = rule.next_after(on_time - _TICK)
        if catch_up == "latest" and (at is None or at > now):
            run.append(_newest(rule, next_at, on_time))
            skipped -= 1
    while at is not None and at <= now and len(run) < MAX_WINDOWS:
        run.append(at)
        at = rule.next_after(at)
    return DueWindows(run, skipped, at)


def _newest(rule: Rule, window: datetime, before: datetime) -> datetime:
    """The newest window before a moment, from a known one on: halving, since there may be millions."""
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
            window, high = following, middle
    return window


def _count(rule: Rule, first: datetime, before: datetime) -> int:
    if isinstance(rule, IntervalSchedule):
        second, last = rule.next_after(first), min(before, (rule.end or before) + _TICK) - _TICK
        return 1 if second is None or second > last else 2 + (last - second) // rule.step
    count, window = 0, first
    while count < MAX_WINDOWS and window < before:
        count += 1
        following = rule.next_after(window)
        if following is None:
            break
        window = following
    return count


def jitter_of(name: str, nominal_ms: int, jitter: Duration) -> int:
    """Milliseconds, up to the jitter, by which this window of this schedule starts later: the same for everybody.

    >>> jitter_of("report", 1_767_225_600_000, 30) == jitter_of("report", 1_767_225_600_000, 30) <= 30_000
    True
    """
    most = int(seconds(jitter, "jitter", BadSchedule) * 1000)
    return int.from_bytes(_digest("jitter", name, nominal_ms)[:8], "big") * (most + 1) >> 64


def nominal_uuid(name: str, nominal_ms: int) -> str:
    """The uuid of the task of this window: whoever fires it makes the same. Begins with the time, as other uuids do.

    >>> nominal_uuid("report", 1_767_225_600_000)
    '019b76da-a800-8e5c-94ab-c20b636bd3dc'
    """
    number = int.from_bytes(_digest("uuid", name, nominal_ms)[:16], "big")
    number = (nominal_ms & 0xFFFF_FFFF_FFFF) << 80 | number & ((1 << 80) - 1)
    number = number & ~(0xF << 76) | 8 << 76  # version 8: made in our own way
    return str(UUID(int=number & ~(0b11 << 62) | 0b10 << 62))


def _digest(purpose: str, name: str, nominal_ms: int) -> bytes:
    return sha256(f"{purpose}\0{nominal_ms}\0{name}".encode("utf-8", "surrogatepass")).digest()


def _check(schedule: ScheduleRule) -> None:
    """Checks what all have in common, and brings it into one form: seconds as float, moments in UTC."""
    what = type(schedule).__name__
    for name, kind in (("overlap", Overlap), ("catch_up", CatchUp)):
        if (value := getattr(schedule, name)) not in get_args(kind):
            raise BadSchedule(f"{what}: {name}={value!r} is not one of {', '.join(get_args(kind))}")
    for name in ("grace", "jitter"):
        _set(schedule, name, seconds(getattr(schedule, name), f"{what}: {name}", BadSchedule))
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


def _utc(moment: datetime) -> datetime:
    return _aware(moment, "moment")


def _from(start: datetime | None, moment: datetime) -> datetime:
    moment = _utc(moment)
    return max(moment, start - _TICK) if start else moment


def _until(end: datetime | None, found: datetime | None) -> datetime | None:
    return None if found is None or (end and found > end) else found
