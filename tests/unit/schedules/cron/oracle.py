"""When a cron expression fires, found by reading the wall clock at every minute: slow, and easy to check.

It shares nothing with ``onthedot.cron``: it has a reader of its own, and no arithmetic with offsets. It walks over UTC,
asks the zone what its clocks show, and applies the rules as they are written:

- an hour field that begins with ``*`` fires whenever the clocks show a time that matches: twice when an hour repeats;
- any other hour field fires each time of day once, the first time round; if its time is skipped, it fires once, at the
  first moment after the gap;
- a day or weekday field that begins with ``*`` (or is ``?``) counts as not restricted; if both are restricted, either
  is enough.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
MONTHS = {"JAN": 1, "FEB": 2, "MAR": 3, "APR": 4, "MAY": 5, "JUN": 6, "JUL": 7, "AUG": 8, "SEP": 9, "OCT": 10,
          "NOV": 11, "DEC": 12}  # fmt: skip
WEEKDAYS = {"SUN": 0, "MON": 1, "TUE": 2, "WED": 3, "THU": 4, "FRI": 5, "SAT": 6}


class Expression:
    """An expression as plain sets and a predicate for dates."""

    def __init__(self, text: str) -> None:
        fields = text.upper().split()
        second, minute, hour, self._day, month, self._weekday = ["0"] * (6 - len(fields)) + fields
        self.seconds = sorted(numbers(second, 0, 59))
        self.minutes = numbers(minute, 0, 59)
        self.hours = numbers(hour, 0, 23)
        self.months = numbers(month, 1, 12, MONTHS)
        self.starred = hour.startswith("*")
        self._days: dict[date, bool] = {}

    def on(self, day: date) -> bool:
        """Whether it fires on this date at all."""
        if day not in self._days:
            by_day = any(day_matches(term, day) for term in self._day.split(","))
            by_weekday = any(weekday_matches(term, day) for term in self._weekday.split(","))
            both = self._day[0] in "*?" or self._weekday[0] in "*?"
            wanted = (by_day and by_weekday) if both else (by_day or by_weekday)
            self._days[day] = wanted and day.month in self.months
        return self._days[day]

    def at(self, wall: datetime) -> bool:
        """Whether it fires within this minute of the wall clock."""
        return wall.minute in self.minutes and wall.hour in self.hours and self.on(wall.date())


def numbers(field: str, low: int, high: int, names: dict[str, int] | None = None) -> set[int]:
    """`*`, `5`, `5-9`, and each with `/step`; `5/2` goes on to the end; several with commas."""
    found: set[int] = set()
    for term in field.split(","):
        span, _, step = term.partition("/")
        first, dash, last = span.partition("-")
        start = low if span == "*" else number(first, names)
        end = number(last, names) if dash else start
        if span == "*" or (step and not dash):
            end = high
        found.update(range(start, end + 1, int(step or 1)))
    return found


def number(text: str, names: dict[str, int] | None) -> int:
    return names[text] if names and text in names else int(text)


def day_matches(term: str, day: date) -> bool:
    month = [day.replace(day=1) + n * DAY for n in range(31)]
    month = [each for each in month if each.month == day.month]
    working = [each for each in month if each.isoweekday() <= 5]
    if term == "?":
        return True
    if term == "L":
        return day == month[-1]
    if term == "LW":
        return day == working[-1]
    if term.endswith("W"):  # the nearest working day of the same month
        wanted = int(term[:-1])
        return wanted <= len(month) and day == min(working, key=lambda each: abs(each.day - wanted))
    return day.day in numbers(term, 1, 31)


def weekday_matches(term: str, day: date) -> bool:
    today = day.isoweekday() % 7  # 0 is Sunday
    if term == "?":
        return True
    if term.endswith("L"):
        return number(term[:-1], WEEKDAYS) % 7 == today and (day + 7 * DAY).month != day.month
    if "#" in term:
        name, _, nth = term.partition("#")
        return number(name, WEEKDAYS) % 7 == today and (day.day - 1) // 7 + 1 == int(nth)
    first, dash, last = term.partition("-")
    if dash and last.startswith("SUN") and first != "SUN":
        term = f"{first}-7{last[3:]}"  # a week ends with Sunday, too
    return today in {each % 7 for each in numbers(term, 0, 7, WEEKDAYS)}


class Minute(NamedTuple):
    moment: datetime  # in UTC
    wall: datetime  # what the wall clock shows
    again: bool  # for the second time
    skipped: list[datetime]  # wall times that were missing just before


def minutes(zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[Minute]:
    moment = start
    before = (start - MINUTE).astimezone(zone).replace(tzinfo=None)
    while moment < end:
        local = moment.astimezone(zone)
        wall = local.replace(tzinfo=None)
        skipped = [before + n * MINUTE for n in range(1, (wall - before) // MINUTE)]
        yield Minute(moment, wall, local.fold == 1, skipped)
        moment = moment + MINUTE
        before = wall


def fires(expression: Expression, minute: Minute) -> list[datetime]:
    """The moments within one minute at which it fires."""
    found: set[datetime] = set()
    if expression.at(minute.wall) and (expression.starred or not minute.again):
        found.update(minute.moment + timedelta(seconds=second) for second in expression.seconds)
    if not expression.starred and any(expression.at(each) for each in minute.skipped):
        found.add(minute.moment)
    return sorted(found)


def next_after(text: str, zone: ZoneInfo, after: datetime, most: timedelta) -> datetime | None:
    """The first firing later than a moment; None if there is none within this time."""
    expression = Expression(text)
    moment = after.astimezone(UTC).replace(second=0, microsecond=0)
    end = after + most
    while moment < end:
        last = min(moment + DAY, end)
        if not quiet(expression, zone, moment, last):
            for minute in minutes(zone, moment, last):
                found = [each for each in fires(expression, minute) if each > after]
                if found:
                    return found[0]
        moment = last
    return None


def quiet(expression: Expression, zone: ZoneInfo, start: datetime, end: datetime) -> bool:
    """Whether a span has no matching date and no change of the clocks, so that it can be skipped."""
    before = (start - MINUTE).astimezone(zone)
    after = end.astimezone(zone)
    dates = {before.date(), before.date() + DAY, after.date()}
    return before.utcoffset() == after.utcoffset() and not any(expression.on(each) for each in dates)
