"""Compares `onthedot.schedules.cron` with the oracle: all minutes around clock changes, and random samples."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from onthedot.errors import BadSchedule
from onthedot.schedules.cron import Cron
from tests.unit.schedules.cron import drawing, oracle
from tests.unit.schedules.cron.oracle import DAY, MINUTE

AROUND = timedelta(hours=48)
BEYOND = timedelta(hours=26)  # so that a daily firing is found after the last minute, too
FAR = timedelta(days=70)  # how far the oracle searches from a sample


Change = tuple[str, datetime, list[str]]
"""A zone, a change of its clocks, and the expressions to compare there."""


def around(change: Change) -> int:
    return every_minute(*change)


def every_minute(zone: str, change: datetime, expressions: Sequence[str]) -> int:
    """Compares at every minute within 48 h of a change; returns the number of comparisons."""
    info = ZoneInfo(zone)
    start = change - AROUND
    end = change + AROUND
    minutes = list(oracle.minutes(info, start, end + BEYOND))
    for text in expressions:
        expression = oracle.Expression(text)
        cron = Cron(text, zone)
        fired = [moment for minute in minutes for moment in oracle.fires(expression, minute)]
        place = 0
        moment = start
        while moment <= end:
            while place < len(fired) and fired[place] <= moment:
                place += 1
            wanted = fired[place] if place < len(fired) else None
            _compare(text, zone, moment, cron.next_after(moment), wanted, end + BEYOND)
            moment += MINUTE
    return len(expressions) * (2 * AROUND // MINUTE + 1)


def samples(portion: tuple[str, int, int]) -> Counter[str]:
    """Compares so many random samples of a seed around a year; returns their kinds."""
    seed, year, count = portion
    dice = random.Random(seed)
    return Counter(sample(dice, year) for _ in range(count))


def sample(dice: random.Random, year: int) -> str:
    """Compares one sample; returns its kind: fired, later (than the oracle searched) or never."""
    zone = dice.choice(drawing.zones())
    text = drawing.expression(dice)
    after = drawing.moment(dice, zone, year)
    try:
        cron = Cron(text, zone)
    except BadSchedule as error:
        return _never(text, year, error)
    wanted = oracle.next_after(text, ZoneInfo(zone), after, FAR)
    _compare(text, zone, after, cron.next_after(after), wanted, after + FAR)
    return "fired" if wanted else "later"


def _never(text: str, year: int, error: BadSchedule) -> str:
    """A refused expression must match no day, whatever the weekday of a leap day."""
    assert "never fires" in str(error), f"{text!r}: {error}"
    days = oracle.Expression(text)
    first = date(year, 1, 1)
    assert not any(days.on(first + n * DAY) for n in range(41 * 366)), f"{text!r} fires: {error}"
    return "never"


def _compare(
    text: str, zone: str, after: datetime, found: datetime | None, wanted: datetime | None, end: datetime
) -> None:
    """wanted=None: the oracle found nothing up to its end."""
    agree = found == wanted if wanted else found is None or found >= end
    assert agree, f"{text!r} in {zone} after {after.isoformat()}: {found}, but the oracle says {wanted}"


def distinct(year: int) -> dict[tuple[object, ...], tuple[str, datetime]]:
    """One zone per change that differs in its moment, its effect, or the changes near it."""
    found: dict[tuple[object, ...], tuple[str, datetime]] = {}
    for zone in drawing.zones():
        info = ZoneInfo(zone)
        all_of_it = drawing.changes(zone, year)
        for change in all_of_it:
            low = bisect_right(all_of_it, change - 4 * DAY)
            near = [each for each in all_of_it[low:] if each <= change + 4 * DAY]
            offsets = [moment.astimezone(info).utcoffset() for each in near for moment in (each - MINUTE, each)]
            found.setdefault((change, *near, *offsets), (zone, change))
    return found
