"""The rule of a schedule in words, for people who do not read cron."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from onthedot.operations.humanize import plural
from onthedot.schedules.cron import NICKNAMES

_WEEK = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_SHORT = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_UNITS = (("day", 86_400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))
_NUMBER = re.compile(r"[0-9]{1,2}")
_STEP = re.compile(r"\*/([1-9][0-9]?)")
_SUNDAY_FIRST = ("sun", *_WEEK[:-1])


def rule_words(rule: Mapping[str, Any], overlap: str = "skip") -> str:
    """The rule in words. rule: as it is stored; an expression without simple words is shown as it is.

    >>> rule_words({"type": "daily", "at": "03:00", "tz": "Europe/Berlin"})
    'every day at 03:00 Berlin'
    >>> rule_words({"type": "cron", "expr": "*/15 * * * *", "jitter": 60.0}, "allow")
    'every 15 min, up to 1 min later, also while one is running'
    >>> rule_words({"type": "cron", "expr": "0 7 * * mon-fri", "tz": "America/New_York"})
    'Mon–Fri at 07:00 New York'
    >>> rule_words({"type": "cron", "expr": "5 4 1-7 * 1"})
    'cron 5 4 1-7 * 1 UTC'
    """
    zone = str(rule.get("tz", "UTC")).rpartition("/")[2].replace("_", " ")
    match rule["type"]:
        case "interval":
            text = f"every {span_text(float(rule['interval']))}"
        case "daily":
            days = _days_text(rule.get("weekdays") or ())
            text = f"{days} at {rule['at']} {zone}"
        case "once":
            text = f"once at {rule['at']}"
        case _:
            text = _cron_words(str(rule["expr"]), zone)
    parts = [text]
    if "jitter" in rule:
        parts.append(f"up to {span_text(float(rule['jitter']))} later")
    if overlap == "allow":
        parts.append("also while one is running")
    elif overlap == "queue":
        parts.append("one after the other")
    parts += [f"{word} {rule[name]}" for word, name in (("from", "start"), ("until", "end")) if name in rule]
    return ", ".join(parts)


def span_text(seconds: float) -> str:
    """
    >>> span_text(5400), span_text(86_400), span_text(0.5)
    ('90 min', '1 day', '0.5 s')
    """
    for unit, size in _UNITS:
        if seconds >= size and seconds % size == 0:
            if unit == "day":
                return plural(int(seconds / size), unit)
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


def _days_text(days: Sequence[str]) -> str:
    """
    >>> _days_text(["mon", "tue", "wed"]), _days_text(["mon", "fri"]), _days_text([])
    ('Mon–Wed', 'Mon, Fri', 'every day')
    """
    numbers = sorted({_WEEK.index(day) for day in days})
    if not numbers or len(numbers) == len(_WEEK):
        return "every day"
    names = [_SHORT[number] for number in numbers]
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{names[0]}–{names[-1]}"
    return ", ".join(names)


def _cron_words(expr: str, zone: str) -> str:
    fields = NICKNAMES.get(expr.lower(), expr).lower().split()
    if len(fields) == 6 and fields[0] == "0":
        fields = fields[1:]
    if len(fields) == 5 and fields[2:4] == ["*", "*"]:
        minute, hour, _, _, weekday = fields
        days = _cron_days(weekday)
        is_daily = weekday in ("*", "?")
        if days and _NUMBER.fullmatch(minute) and _NUMBER.fullmatch(hour):
            return f"{days} at {int(hour):02}:{int(minute):02} {zone}"
        if is_daily and hour == "*" and _NUMBER.fullmatch(minute):
            return "every hour" if int(minute) == 0 else f"every hour at :{int(minute):02}"
        if is_daily and hour == "*" and minute == "*":
            return "every minute"
        step = _STEP.fullmatch(minute)
        if is_daily and hour == "*" and step and 60 % int(step[1]) == 0:
            return f"every {step[1]} min"
    return f"cron {expr} {zone}"


def _cron_days(field: str) -> str:
    """
    >>> _cron_days("mon-fri"), _cron_days("0,6"), _cron_days("5#2")
    ('Mon–Fri', 'Sat, Sun', '')
    """
    if field in ("*", "?"):
        return "every day"
    found: list[str] = []
    for part in field.split(","):
        ends = [_cron_day(end) for end in part.split("-")]
        if None in ends or len(ends) > 2:
            return ""
        first = ends[0] or 0
        last = ends[-1] or 0
        if last < first:
            return ""
        found += [_SUNDAY_FIRST[number % 7] for number in range(first, last + 1)]
    return _days_text(found)


def _cron_day(text: str) -> int | None:
    if text in _SUNDAY_FIRST:
        return _SUNDAY_FIRST.index(text)
    if text.isdecimal() and int(text) <= 7:
        return int(text)
    return None
