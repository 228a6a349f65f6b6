"""A schedule as people write it, in a form or as JSON: the text of its rule, and options."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct

from onthedot.errors import BadSchedule
from onthedot.operations.schedule_words import rule_words, span_text
from onthedot.schedules.rules import (
    CatchUp,
    CronSchedule,
    DailySchedule,
    IntervalSchedule,
    OnceSchedule,
    Overlap,
    ScheduleRule,
    to_data,
)
from onthedot.schedules.stored_rule import StoredRule

_EVERY = re.compile(r"(?i)every\s+([0-9]+(?:\.[0-9]+)?)?\s*(ms|s|sec|seconds?|min|minutes?|m|h|hours?|d|days?)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_CLOCK = "([0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)"
_DAILY = re.compile(rf"(?i)(?:(?:daily|every day)\s+)?(?:at\s+)?{_CLOCK}(?:\s+([a-z, -]+))?")
_WEEKLY = re.compile(rf"(?i)([a-z]{{3}}[a-z, -]*?)\s+(?:at\s+)?{_CLOCK}")
_MOMENT = re.compile(r"(?i)[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+(?:Z|[+-][0-9]{2}:?[0-9]{2})?")


class ScheduleForm(Struct, frozen=True, kw_only=True):
    """rule: cron, "every 15 min", "07:00", "mon-fri 07:00", or a moment; tz: of cron and times of day.

    grace, jitter: seconds
    """

    rule: str
    tz: str = "UTC"
    overlap: Overlap = "skip"
    catch_up: CatchUp = "latest"
    grace: float = 60
    jitter: float = 0
    start: datetime | None = None
    end: datetime | None = None

    def as_rule(self) -> ScheduleRule:
        """The rule; BadSchedule if it cannot be read."""
        options: Mapping[str, Any] = {
            "overlap": self.overlap,
            "catch_up": self.catch_up,
            "grace": self.grace,
            "jitter": self.jitter,
            "start": self.start,
            "end": self.end,
        }
        text = self.rule.strip()
        if every := _EVERY.fullmatch(text):
            unit = "ms" if every[2].lower() == "ms" else every[2][0].lower()
            return IntervalSchedule(float(every[1] or 1) * _SECONDS[unit], **options)
        if daily := _DAILY.fullmatch(text):
            return DailySchedule(daily[1], self.tz, daily[2] and daily[2].strip(), **options)
        if weekly := _WEEKLY.fullmatch(text):
            return DailySchedule(weekly[2], self.tz, weekly[1], **options)
        if _MOMENT.fullmatch(text):
            return OnceSchedule(_moment(text), **options)
        return CronSchedule(text, self.tz, **options)

    def words(self) -> str:
        """The rule in words; BadSchedule if it cannot be read."""
        return rule_words(to_data(self.as_rule()), self.overlap)


def _moment(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise BadSchedule(f"{text!r} is no moment; write 2026-12-24T18:00:00+01:00") from None


def form_of(stored: StoredRule) -> ScheduleForm | None:
    """The form that makes this rule; None: only code can.

    >>> form_of(StoredRule("send", "{}", {"type": "interval", "interval": 900.0})).rule
    'every 15 min'
    """
    rule = stored.rule
    if rule is None:
        return None
    match rule["type"]:
        case "interval":
            text = f"every {span_text(float(rule['interval']))}"
        case "daily":
            days = ",".join(rule.get("weekdays") or ())
            text = f"{days} {rule['at']}".strip()
        case "once":
            text = str(rule["at"])
        case _:
            text = str(rule["expr"])
    moments = {name: datetime.fromisoformat(rule[name]) for name in ("start", "end") if rule.get(name)}
    return ScheduleForm(
        rule=text,
        tz=rule.get("tz", "UTC"),
        overlap=stored.overlap,
        catch_up=rule.get("catch_up", "latest"),
        grace=float(rule.get("grace", 60)),
        jitter=float(rule.get("jitter", 0)),
        **moments,
    )
