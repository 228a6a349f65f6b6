"""Comparing ``onthedot.cron`` with the oracle: all minutes around changes of the clocks, and random samples."""

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
BEYOND = timedelta(hours=26)  # so that what fires daily is also found after the last minute that is asked about
FAR = timedelta(days=70)  # how far the oracle looks ahead of a sample


Change = tuple[str, datetime, list[str]]
"""A zone, the moment at which its clocks change, and the expressions to ask with."""


def around(change: Change) -> int:
    return every_minute(*change)


def every_minute(zone: str, change: datetime, expressions: Sequence[str]) -> int:
    """Asks at every minute within 48 h of a change; answers how many times."""
    info, start, end = ZoneInfo(zone), change - AROUND, change + AROUND
    minutes = list(oracle.minutes(info, start, end + BEYOND))
    for text in expressions:
        expression, cron = oracle.Expression(text), Cron(text, zone)
        fired = [moment for minute in minutes for moment in oracle.fires(expression, minute)]
        place, asked = 0, start
        while asked <= end:
            while place < len(fired) and fired[place] <= asked:
                place += 1
            wanted = fired[place] if place < len(fired) else None
            _compare(text, zone, asked, cron.next_after(asked), wanted, end + BEYOND)
            asked += MINUTE
    return len(expressions) * (2 * AROUND // MINUTE + 1)


def samples(portion: tuple[str, int, int]) -> Counter[str]:
    """So many as drawn by a seed around a year, and what they were."""
    seed, year, count = portion
    dice = random.Random(seed)
    return Counter(sample(dice, year) for _ in range(count))


def sample(dice: random.Random, year: int) -> str:
    """Compares one; answers with what it was: fired, later (than the oracle looked) or never."""
    zone, text = dice.choice(drawing.zones()), drawing.expression(dice)
    after = drawing.moment(dice, zone, year)
    try:
        cron = Cron(text, zone)
    except BadSchedule as error:
        return _never(text, year, error)
    wanted = oracle.next_after(text, ZoneInfo(zone), after, FAR)
    _compare(text, zone, after, cron.next_after(after), wanted, after + FAR)
    return "fired" if wanted else "later"


def _never(text: str, year: int, error: BadSchedule) -> str:
    """Refused: then there must be no day for it, whatever the weekdays of a leap day."""
    assert "never fires" in str(error), f"{text!r}: {error}"
    days, first = oracle.Expression(text), date(year, 1, 1)
    assert not any(days.on(first + n * DAY) for n in range(41 * 366)), f"{text!r} fires: {error}"
    return "never"


def _compare(
    text: str, zone: str, after: datetime, found: datetime | None, wanted: datetime | None, end: datetime
) -> None:
    """wanted=None: the oracle has seen nothing up to its end."""
    agree = found == wanted if wanted else found is None or found >= end
    assert agree, f"{text!r} in {zone} after {after.isoformat()}: {found}, but the oracle says {wanted}"


def distinct(year: int) -> dict[tuple[object, ...], tuple[str, datetime]]:
    """One zone for each change that differs in its moment, in what it does, or in the changes that are near."""
    found: dict[tuple[object, ...], tuple[str, datetime]] = {}
    for zone in drawing.zones():
        info, all_of_it = ZoneInfo(zone), drawing.changes(zone, year)
        for change in all_of_it:
            low = bisect_right(all_of_it, change - 4 * DAY)
            near = [each for each in all_of_it[low:] if each <= change + 4 * DAY]
            offsets = [moment.astimezone(info).utcoffset() for each in near for moment in (each - MINUTE, each)]
            found.setdefault((change, *near, *offsets), (zone, change))
    return found
