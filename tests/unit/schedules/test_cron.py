"""Cron against a naive daemon that compares the wall clock with the expression at every minute or second."""

from __future__ import annotations

import random
from bisect import bisect_right
from calendar import monthrange
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from zoneinfo import ZoneInfo, available_timezones

import pytest

from onthedot.errors import BadSchedule
from onthedot.schedules.cron import Cron, cached_cron, parse_daily, parse_zone, zone_name

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
TELLING = (
    "Europe/Berlin",  # 02:00 → 03:00
    "America/New_York",
    "America/Havana",  # changes at midnight
    "Asia/Beirut",  # midnight is missing
    "America/Asuncion",
    "Australia/Lord_Howe",  # by half an hour
    "Antarctica/Troll",  # by two hours
    "Africa/Casablanca",  # Ramadan
    "Pacific/Apia",  # a day is missing
    "America/St_Johns",  # changed at 00:01
    "Asia/Pyongyang",  # by half an hour, at 23:30
    "America/Caracas",
    "Atlantic/Azores",
    "Europe/Dublin",  # winter is the exception
    "Asia/Tehran",
)


@dataclass(frozen=True)
class Sample:
    """An expression and its meaning, generated together, so that no second parser is needed."""

    text: str
    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    months: frozenset[int]
    day: Callable[[date], bool]

    @property
    def starred(self) -> bool:
        return self.text.split()[-4].startswith("*")

    def matches(self, wall: datetime) -> bool:
        return (
            wall.minute in self.minutes
            and wall.hour in self.hours
            and wall.second in self.seconds
            and wall.month in self.months
            and self.day(wall.date())
        )


def numbers(rand: random.Random, low: int, high: int, star: float) -> tuple[str, frozenset[int]]:
    everything = range(low, high + 1)
    if rand.random() < star:
        step = rand.choice((1, 1, 2, 3, 5, 15))
        return ("*" if step == 1 else f"*/{step}"), frozenset(everything[::step])
    match rand.randrange(4):
        case 0:
            first = rand.randint(low, high)
            last = rand.randint(first, high)
            return f"{first}-{last}", frozenset(range(first, last + 1))
        case 1:
            first = rand.randint(low, high)
            step = rand.randint(1, 10)
            last = rand.randint(first, high)
            return f"{first}-{last}/{step}", frozenset(range(first, last + 1, step))
        case _:
            chosen = rand.sample(everything, rand.randint(1, 3))
            return ",".join(map(str, chosen)), frozenset(chosen)


def sample(rand: random.Random, around: datetime, seconds: bool = False) -> Sample:
    second_text, second_set = numbers(rand, 0, 59, 0.2) if seconds else ("0", frozenset({0}))
    minute_text, minute_set = numbers(rand, 0, 59, 0.3)
    hour_text, hour_set = numbers(rand, 0, 23, 0.4)
    if rand.random() < 0.5:  # near the change of the clock
        hour = rand.choice((around.hour - 1, around.hour, around.hour + 1)) % 24
        hour_text = str(hour)
        hour_set = frozenset({hour})
    day_text, weekday_text, day = days(rand, around.date())
    fields = [minute_text, hour_text, day_text, "*", weekday_text]
    text = " ".join([second_text, *fields] if seconds else fields)
    return Sample(text, second_set, minute_set, hour_set, frozenset(range(1, 13)), day)


def days(rand: random.Random, near: date) -> tuple[str, str, Callable[[date], bool]]:
    day = near.day
    weekday = near.isoweekday()
    match rand.randrange(8):
        case 0:
            return str(day), "?", lambda d: d.day == day
        case 1:
            return "?", f"{weekday}", lambda d: d.isoweekday() == weekday
        case 2:
            return f"{day}", f"{weekday % 7}", lambda d: d.day == day or d.isoweekday() == weekday
        case 3:
            return "*/2", f"{weekday}", lambda d: d.day % 2 == 1 and d.isoweekday() == weekday
        case 4:
            return "*", f"{weekday}L", lambda d: d.isoweekday() == weekday and (d + timedelta(days=7)).month != d.month
        case 5:
            return f"{day}W", "*", lambda d: d == nearest(d, day)
        case _:
            return "*", "*", lambda d: True


def nearest(month: date, day: int) -> date | None:
    last = monthrange(month.year, month.month)[1]
    working = [d for n in range(1, last + 1) if (d := month.replace(day=n)).weekday() < 5]
    return min(working, key=lambda d: abs(d.day - day)) if day <= last else None


def daemon(expression: Sample, zone: ZoneInfo, start: datetime, end: datetime, tick: timedelta) -> list[datetime]:
    """Every moment at which a daemon fires that reads the wall clock at each tick."""
    fired: list[datetime] = []
    moment = start
    highest = start.astimezone(zone).replace(tzinfo=None) - tick
    while moment <= end:
        wall = moment.astimezone(zone).replace(tzinfo=None)
        if expression.starred:
            due = expression.matches(wall)
        else:
            due = False
            while highest < wall:  # usually one step; many after a gap; none in a repeated hour
                highest += tick
                due = due or expression.matches(highest)
        if due:
            fired.append(moment)
        moment += tick
    return fired


def changes(zone: ZoneInfo, first: int, last: int) -> Iterator[datetime]:
    day = timedelta(days=1)
    moment = datetime(first, 1, 1, tzinfo=UTC)
    end = datetime(last, 1, 1, tzinfo=UTC)
    while moment < end:
        if moment.astimezone(zone).utcoffset() != (moment + day).astimezone(zone).utcoffset():
            low = moment
            high = moment + day
            while high - low > SECOND:
                middle = low + (high - low) // SECOND // 2 * SECOND
                same = middle.astimezone(zone).utcoffset() == low.astimezone(zone).utcoffset()
                low, high = (middle, high) if same else (low, middle)
            yield high
        moment += day


def compare(rand: random.Random, zone: str, change: datetime, seconds: bool = False) -> None:
    info = ZoneInfo(zone)
    span, tick = (timedelta(hours=3), SECOND) if seconds else (timedelta(hours=40), MINUTE)
    expression = sample(rand, rand.choice((change - SECOND, change)).astimezone(info), seconds)
    fired = daemon(expression, info, change - span, change + span, tick)
    cron = Cron(expression.text, zone)
    # The daemon does not know times that were repeated before its start, so the comparison begins later.
    early = change - 0.7 * span
    end = change + span
    moments = [early, *(change + timedelta(seconds=s) for s in (-7200, -3600, -1, 0, 1, 1800, 3600, 7199))]
    moments += [change + rand.uniform(-0.6, 1) * span for _ in range(12)]
    moments += [moment for moment in rand.sample(fired, min(len(fired), 20)) if moment > early]
    for moment in moments:
        place = bisect_right(fired, moment)
        found = cron.next_after(moment)
        wanted = fired[place] if place < len(fired) else None  # None: after the daemon was stopped
        agree = found == wanted if wanted else found is None or found > end
        assert agree, f"{expression.text!r} in {zone} after {moment}: {found}, daemon {wanted}"


@pytest.mark.parametrize("zone", TELLING)
def test_cron_agrees_with_a_naive_daemon_at_clock_changes(zone: str) -> None:
    rand = random.Random(zone)
    found = list(changes(ZoneInfo(zone), 2005, 2030))
    for change in rand.sample(found, min(12, len(found))):
        compare(rand, zone, change)
    for change in rand.sample(found, 2):
        compare(rand, zone, change, seconds=True)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_cron_agrees_with_a_naive_daemon_in_all_zones(part: int) -> None:
    for zone in sorted(available_timezones())[part::20]:
        rand = random.Random(zone)
        found = list(changes(ZoneInfo(zone), 2020, 2030))
        old = list(changes(ZoneInfo(zone), 1975, 2020))
        for change in found + rand.sample(old, min(6, len(old))):
            compare(rand, zone, change)


def firings(expr: str, after: str, count: int = 3, tz: str = "UTC") -> list[str]:
    """The next firings as wall-clock times with their offset."""
    cron = Cron(expr, tz)
    moment = datetime.fromisoformat(after)
    times = []
    for _ in range(count):
        found = cron.next_after(moment)
        assert found is not None
        assert found > moment
        times.append(found.astimezone(ZoneInfo(tz)).isoformat())
        moment = found
    return times


BERLIN_SPRING = "2026-03-28T12:00+01:00"
BERLIN_AUTUMN = "2026-10-25T00:59+02:00"


@pytest.mark.parametrize(
    ("expr", "after", "wanted"),
    [
        # 02:00 to 03:00 is missing
        ("30 2 * * *", BERLIN_SPRING, ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]),
        ("*/20 2 * * *", BERLIN_SPRING, ["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"]),
        ("0 2,3 * * *", BERLIN_SPRING, ["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"]),
        ("* * 2 * * *", BERLIN_SPRING, ["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"]),
        ("30 */2 29 3 *", BERLIN_SPRING, ["2026-03-29T00:30:00+01:00", "2026-03-29T04:30:00+02:00"]),
        # 02:00 to 03:00 comes twice
        ("30 2 * * *", BERLIN_AUTUMN, ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]),
        ("*/30 2 * * *", "2026-10-25T02:29+02:00", ["2026-10-25T02:30:00+02:00", "2026-10-26T02:00:00+01:00"]),
        ("*/30 2 * * *", "2026-10-25T02:15+01:00", ["2026-10-26T02:00:00+01:00", "2026-10-26T02:30:00+01:00"]),
        ("0 */30 2 * * *", "2026-10-25T02:29+02:00", ["2026-10-25T02:30:00+02:00", "2026-10-26T02:00:00+01:00"]),
        (
            "30 1-3 * * *",
            BERLIN_AUTUMN,
            [f"2026-10-25T0{t}" for t in ("1:30:00+02:00", "2:30:00+02:00", "3:30:00+01:00")],
        ),
        ("30 * * * *", "2026-10-25T01:45+02:00", [f"2026-10-25T02:30:00+0{h}:00" for h in (2, 1)]),
        ("30 */2 * * *", "2026-10-25T01:45+02:00", [f"2026-10-25T02:30:00+0{h}:00" for h in (2, 1)]),
        ("59 * * * *", "2026-10-25T02:59+02:00", ["2026-10-25T02:59:00+01:00", "2026-10-25T03:59:00+01:00"]),
    ],
)
def test_firings_at_clock_changes(expr: str, after: str, wanted: list[str]) -> None:
    assert firings(expr, after, len(wanted), "Europe/Berlin") == wanted


def test_starred_hours_fire_in_every_hour_once() -> None:
    cron = Cron("*/15 * * * *", "Australia/Lord_Howe")
    moment = datetime(2026, 4, 4, tzinfo=UTC)
    for _ in range(200):
        found = cron.next_after(moment)
        assert found == moment + timedelta(minutes=15)
        moment = found


@pytest.mark.parametrize(
    ("expr", "wanted"),
    [
        ("@yearly", "2027-01-01T00:00"),
        ("@annually", "2027-01-01T00:00"),
        ("@monthly", "2026-09-01T00:00"),
        ("@weekly", "2026-08-02T00:00"),
        ("@daily", "2026-08-02T00:00"),
        ("@Midnight", "2026-08-02T00:00"),
        (" @hourly ", "2026-08-01T11:00"),
        ("*/7 * * * *", "2026-08-01T10:07"),
        ("30 * * * * *", "2026-08-01T10:00:30"),
        ("5,50-55 * * * *", "2026-08-01T10:05"),
        ("40-50/5 * * * *", "2026-08-01T10:40"),
        ("7/20 * * * *", "2026-08-01T10:07"),
        ("7-7/20 * * * *", "2026-08-01T10:07"),
        ("7-7/20,8 11 * * *", "2026-08-01T11:07"),
        ("15,7-7/9 9-9/1 * * *", "2026-08-02T09:07"),
        ("*/20 11-17/3 * * *", "2026-08-01T11:00"),
        ("0 0 1,15 * *", "2026-08-15T00:00"),
        ("0 0 10-20/5 * *", "2026-08-10T00:00"),
        ("0 0 1 */3 *", "2026-10-01T00:00"),
        ("0 0 1 jan,Sep-NOV/2 *", "2026-09-01T00:00"),
        ("0 0 1 dec-12/2 *", "2026-12-01T00:00"),
        ("0 0 * * mon-fri", "2026-08-03T00:00"),
        ("0 0 * * mon-fri/2", "2026-08-03T00:00"),
        ("0 0 * * TUE,thu", "2026-08-04T00:00"),
        ("0 0 * * wed-wed/2", "2026-08-05T00:00"),
        ("0 1 * * sun-sun", "2026-08-02T01:00"),
        ("0 0 * * 0#1", "2026-08-02T00:00"),
        ("0 0 * * 7#2,sat#3", "2026-08-09T00:00"),
        ("0 0 LW * ?", "2026-08-31T00:00"),
        ("0 0 L,15 * *", "2026-08-15T00:00"),
        ("0 0 L * 5", "2026-08-07T00:00"),  # either
        ("0\t12  *\n* *", "2026-08-01T12:00"),
        ("0 0 * * 0", "2026-08-02T00:00"),
        ("0 0 * * 7", "2026-08-02T00:00"),
        ("0 0 * * sun", "2026-08-02T00:00"),
        ("0 0 * * 5-7", "2026-08-02T00:00"),
        ("0 0 * * Fri-Sun", "2026-08-02T00:00"),
        ("0 0 ? feb-mar *", "2027-02-01T00:00"),
        ("0 0 L * ?", "2026-08-31T00:00"),
        ("0 0 L 10 ?", "2026-10-31T00:00"),
        ("0 0 LW 10 *", "2026-10-30T00:00"),  # the 31st is a Saturday
        ("0 0 1W 8 *", "2026-08-03T00:00"),  # Saturday the 1st: not back into July
        ("0 0 31W 1 *", "2027-01-29T00:00"),  # Sunday the 31st: not on into February
        ("0 0 15W * *", "2026-08-14T00:00"),
        ("0 0 16w * *", "2026-08-17T00:00"),
        ("0 0 4,15W * *", "2026-08-04T00:00"),
        ("0 0 5W,31 jun,sep *", "2026-09-04T00:00"),  # neither month has a 31st, but both have a 5W
        ("0 0 31W 9,10 *", "2026-10-30T00:00"),  # September has no 31st
        ("0 0 * * 1#2", "2026-08-10T00:00"),
        ("0 0 * * mon#5", "2026-08-31T00:00"),
        ("0 0 * * 5L", "2026-08-28T00:00"),
        ("0 0 * * friL", "2026-08-28T00:00"),
        ("0 0 * * 7L", "2026-08-30T00:00"),
        ("0 0 13 * 5", "2026-08-07T00:00"),  # either
        ("0 0 */2 * 1", "2026-08-03T00:00"),  # a star first: both
        ("0 0 13 * */2", "2026-08-13T00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00"),
        ("0 0 ? 2 MON#5", "2044-02-29T00:00"),
    ],
)
def test_expressions_fire_as_they_read(expr: str, wanted: str) -> None:
    assert Cron(expr).next_after(datetime(2026, 8, 1, 10, 0, 0, tzinfo=UTC)) == datetime.fromisoformat(
        wanted + "+00:00"
    )


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        ("60 * * * *", "minute '60' .*0-59"),
        ("1,61 * * * *", "minute '61' .*0-59"),
        ("-1 * * * *", "minute '-1'"),
        ("1-60 * * * *", "minute '1-60' .*0-59"),
        ("5/60/2 * * * *", "minute '5/60/2'"),
        ("mon * * * *", "minute 'MON' .*0-59"),
        ("60 * * * * *", "second '60' .*0-59"),
        ("0 61 * * * *", "minute '61' .*0-59"),
        ("0 0 L-3 * *", "day 'L-3' .*1-31"),
        ("0 0 L/2 * *", "day 'L/2' .*1-31"),
        ("0 0 LW/2 * *", "day 'LW/2' .*1-31"),
        ("0 0 0W * *", "day '0W' .*1-31"),
        ("0 0 1#2 * *", "day '1#2' .*1-31"),
        ("0 L * * *", "hour 'L' .*0-23"),
        ("0 0 * ? *", r"month '\?' .*1-12"),
        ("0 0 * 0 *", "month '0' .*1-12"),
        ("0 0 * nov-feb *", "month 'NOV-FEB' .*1-12"),
        ("0 0 * * L", "weekday 'L' .*0-7"),
        ("0 0 * * 8L", "weekday '8L' .*0-7"),
        ("0 0 * * 1#0", "weekday '1#0' .*n#1-n#5"),
        ("0 0 * * 3W", "weekday '3W' .*0-7"),
        ("0 0 * * fri-mon", "weekday 'FRI-MON' .*0-7"),
        ("0 0 * * 5-5/0", "weekday '5-5/0' .*0-7"),
        ("0 24 * * *", "hour '24' .*0-23"),
        ("0 0 0 * *", "day '0' .*1-31"),
        ("0 0 32W * *", "day '32W' .*1-31"),
        ("0 0 1-5W * *", "day '1-5W'"),
        ("0 0 * 13 *", "month '13' .*1-12"),
        ("0 0 * foo *", "month 'FOO' .*JAN-DEC"),
        ("0 0 * * 8", "weekday '8' .*0-7"),
        ("0 0 * * 1#6", "weekday '1#6'"),
        ("*/0 * * * *", r"minute '\*/0'"),
        ("5-3 * * * *", "minute '5-3'"),
        ("1,,2 * * * *", "minute ''"),
        ("? * * * *", r"minute '\?'"),
        ("٣ * * * *", "minute '٣'"),
        ("* * *", "3 fields"),
        ("* * * * * * *", "7 fields"),
        ("", "0 fields"),
        ("@reboot", "@reboot"),
        ("@dayly", "@daily"),
        ("0 0 30 2 *", "never fires.*day '30'.*month '2'"),
        ("0 0 31 4,6 */2", "never fires"),
        ("0 0 31W 4 *", "never fires"),
        ("9" * 5000 + " * * * *", "5008 characters"),
        (5, "is of type int"),
        (None, "NoneType"),
    ],
)
def test_malformed_expressions_are_refused(expr: str, message: str) -> None:
    with pytest.raises(BadSchedule, match=message):
        Cron(expr)


def test_the_next_firing_is_strictly_later() -> None:
    cron = Cron("0 12 * * *")
    noon = datetime(2026, 8, 1, 12, tzinfo=UTC)
    assert cron.next_after(noon - timedelta(microseconds=1)) == noon
    assert cron.next_after(noon) == noon + timedelta(days=1)
    assert cron.next_after(noon + timedelta(microseconds=1)) == noon + timedelta(days=1)


def test_cron_ends_with_the_calendar() -> None:
    assert Cron("@yearly", "Asia/Tokyo").next_after(datetime.max.replace(tzinfo=UTC)) is None
    assert Cron("@yearly").next_after(datetime(9999, 6, 1, tzinfo=UTC)) is None


def test_cron_refuses_naive_moments() -> None:
    with pytest.raises(ValueError, match="time zone"):
        Cron("@daily").next_after(datetime(2026, 1, 1))  # noqa: DTZ001


def test_zones_are_read_by_name() -> None:
    assert parse_zone("utc") is UTC
    assert zone_name(ZoneInfo("Asia/Tokyo")) == "Asia/Tokyo"
    for bad in ("Mars/Phobos", "", "../etc/passwd", "Europe", "a\0b"):
        with pytest.raises(BadSchedule, match="tz: no time zone"):
            parse_zone(bad)
    with pytest.raises(BadSchedule, match="is of type int"):
        parse_zone(5)  # type: ignore[arg-type]
    with pytest.raises(BadSchedule, match="no name"):
        zone_name(timezone(timedelta(hours=2)))
    assert repr(cached_cron("@daily", "Asia/Tokyo")) == "Cron('@daily', 'Asia/Tokyo')"


def test_times_of_day_and_weekdays_become_cron_expressions() -> None:
    assert parse_daily(time(3, 0, 5), None) == ("03:00:05", None, "5 0 3 * * *")
    assert parse_daily("23:59:00", ["Sunday", 0])[:2] == ("23:59", ("mon", "sun"))
    assert parse_daily("0:00", "fri-mon")[1] == ("mon", "fri", "sat", "sun")
    for bad in ("24:00", "3", "03:60", "3:0", "", "03:00:60", time(3, 0, 0, 1), 3):
        with pytest.raises(BadSchedule, match="out of range"):
            parse_daily(bad, None)  # type: ignore[arg-type]
    for bad_days in ([7], ["mo"], [True], "mon-x", ["1"], [1.0]):
        with pytest.raises(BadSchedule, match="weekday"):
            parse_daily("03:00", bad_days)  # type: ignore[arg-type]
    with pytest.raises(BadSchedule, match="never fires"):
        parse_daily("03:00", [])
