"""Random expressions, zones and moments: every form of syntax, and mostly moments near a change of the clocks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
YEARS = 5  # before and after the day of the test
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
TELLING = (  # they behave differently where an hour repeats or is missing
    "*/15 * * * *",
    "30 * * * *",
    "*/20 0-23 * * *",
    "0 0 * * *",
    "30 1 * * *",
    "15,45 2 * * *",
    "59 0,1,2,3 * * *",
    "0 3 * * 0,6",
    "30 */2 * * *",
    "0 */3 * * 1-5",
    "30 2 L * *",
    "5 0-4 15W * 7L",
    "20,40 30 2 * * *",
    "*/30 * */2 * * *",
)


@cache
def zones() -> list[str]:
    return sorted(available_timezones())


@cache
def changes(zone: str, year: int) -> tuple[datetime, ...]:
    """The moments at which its clocks change, from five years before to five years after the beginning of a year."""
    return tuple(
        _changes(ZoneInfo(zone), datetime(year - YEARS, 1, 1, tzinfo=UTC), datetime(year + YEARS + 1, 1, 1, tzinfo=UTC))
    )


def _changes(zone: ZoneInfo, moment: datetime, end: datetime) -> Iterator[datetime]:
    """By bisection: no zone changes its clocks twice on a day."""
    before = moment.astimezone(zone).utcoffset()
    while moment < end:
        low = moment
        high = moment + DAY
        after = high.astimezone(zone).utcoffset()
        if before != after:
            while high - low > SECOND:
                middle = low + (high - low) // 2
                same = middle.astimezone(zone).utcoffset() == before
                low, high = (middle, high) if same else (low, middle)
            yield high.replace(microsecond=0)
        moment = moment + DAY
        before = after


def expression(dice: random.Random) -> str:
    fields = [
        numbers(dice, 0, 59, often=0.3),
        numbers(dice, 0, 23, often=0.4),
        dice.choices(("*", "?", day(dice)), (6, 1, 4))[0],
        numbers(dice, 1, 12, often=0.9, names=MONTHS),
        dice.choices(("*", "?", weekday(dice)), (6, 1, 4))[0],
    ]
    if dice.random() < 0.15:
        fields.insert(0, numbers(dice, 0, 59, often=0.2))
    return " ".join(field.lower() if dice.random() < 0.2 else field for field in fields)


def numbers(dice: random.Random, low: int, high: int, often: float, names: tuple[str, ...] | None = None) -> str:
    if dice.random() < often:
        return dice.choice(("*", "*", f"*/{dice.choice((2, 3, 5, 7, 15, 40))}"))
    return ",".join(term(dice, low, high, names) for _ in range(dice.choice((1, 1, 1, 2, 3))))


def term(dice: random.Random, low: int, high: int, names: tuple[str, ...] | None = None) -> str:
    first = dice.randint(low, high)
    last = dice.randint(first, high)
    step = f"/{dice.randint(1, 10)}"

    def written(number: int) -> str:
        return names[number - low] if names and dice.random() < 0.4 else str(number)

    spans = (
        written(first),
        f"{written(first)}-{written(last)}",
        written(first) + step,
        f"{written(first)}-{written(last)}" + step,
    )
    return dice.choices(spans, (5, 3, 1, 2))[0]


def day(dice: random.Random) -> str:
    n = dice.randint(1, 31)
    special = ("L", "LW", f"{n}W", f"{n}W,{dice.randint(1, 31)}", f"*/{dice.randint(2, 9)}")
    return dice.choice((*special, numbers(dice, 1, 31, often=0), numbers(dice, 1, 31, often=0)))


def weekday(dice: random.Random) -> str:
    n = dice.randint(0, 7)
    name = dice.choice((str(n), WEEKDAYS[n % 7]))
    first = dice.randint(0, 6)
    last = dice.randint(first, 7)
    names = f"{WEEKDAYS[first]}-{WEEKDAYS[last % 7]}"
    special = (
        f"{name}L",
        f"{name}#{dice.randint(1, 5)}",
        f"{name}#1,{dice.randint(0, 7)}L",
        names,
        f"*/{dice.randint(2, 5)}",
    )
    return dice.choice((*special, name, numbers(dice, 0, 7, often=0)))


def moment(dice: random.Random, zone: str, year: int) -> datetime:
    """Half of them within three days of a change of the clocks, some to the very second."""
    found = changes(zone, year)
    if found and dice.random() < 0.5:
        change = dice.choice(found)
        return change + dice.choice((-SECOND, 0 * SECOND, SECOND, timedelta(seconds=dice.uniform(-3, 3) * 86_400)))
    start = datetime(year - YEARS, 1, 1, tzinfo=UTC)
    return start + timedelta(seconds=dice.uniform(0, (2 * YEARS + 1) * 365.2 * 86_400))
