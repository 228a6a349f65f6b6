"""The line that says that a worker is ready, and for what."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from onthedot import App
from onthedot.cli.output import ago
from onthedot.clock.epoch import from_ms


async def banner_line(app: App[Any]) -> str:
    """2 tasks · 1 schedule (weekly_report: Mon 09:00, in 3 days)"""
    runtime = app._runtime
    tasks = len(list(runtime.sources))
    parts = [count(tasks, "task")]
    if runtime.schedules:
        schedules = await runtime.store.schedules()
        coming = sorted(
            (each.next_at, each.name) for each in schedules if each.name in runtime.schedules and each.next_at
        )
        shown = ""
        if coming:
            at, name = coming[0]
            zone = getattr(runtime.schedules[name].schedule, "tz", None) or "UTC"
            first = "" if len(runtime.schedules) == 1 else "first "
            shown = f" ({first}{name}: {_moment(from_ms(at), str(zone))})"
        parts.append(count(len(runtime.schedules), "schedule") + shown)
    if not runtime.store.traits.shared:
        parts.append("memory://, so only for what this process itself adds")
    return " · ".join(parts)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _moment(at: datetime, zone: str) -> str:
    now, local = datetime.now(UTC), at.astimezone(ZoneInfo(zone))
    far = at - now > timedelta(days=6)
    day = local.strftime("%Y-%m-%d %H:%M" if far else "%a %H:%M")
    if at - now < timedelta(minutes=1):
        day = local.strftime("%H:%M:%S")
    return f"{day}, {ago((at - now).total_seconds())}"
