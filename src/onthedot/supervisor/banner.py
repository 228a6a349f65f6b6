"""The line that a worker logs when it is ready."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from onthedot import App
from onthedot.clock.epoch import from_ms
from onthedot.model.agent_names import agent_of
from onthedot.model.batch_names import batch_task
from onthedot.operations.humanize import ago, plural
from onthedot.stores.masked_url import masked
from onthedot.stores.schemes import absolute


async def banner_line(app: App[Any]) -> str:
    """shop · sqlite:////srv/shop.db · 2 tasks · 1 agent · 1 schedule (weekly_report: Mon 09:00, in 3 days)"""
    runtime = app.runtime
    names = [source.name for source in runtime.sources if batch_task(source.name) is None]
    agents = sum(agent_of(name) is not None for name in names)
    parts = [app.name, masked(absolute(runtime.url)), plural(len(names) - agents, "task")]
    if agents:
        parts.append(plural(agents, "agent"))
    if runtime.schedules:
        parts.append(plural(len(runtime.schedules), "schedule") + await _next_run(app))
    if not runtime.store.traits.shared:
        parts.append("only for what this process itself adds")
    return " · ".join(parts)


async def _next_run(app: App[Any]) -> str:
    known = app.runtime.schedules
    schedules = await app.runtime.store.schedules()
    coming = [(each.next_at, each.name) for each in schedules if each.name in known and each.next_at]
    if not coming:
        return ""
    at, name = min(coming)
    zone = getattr(known[name].schedule, "tz", None) or "UTC"
    first = "" if len(known) == 1 else "first "
    return f" ({first}{name}: {_moment(from_ms(at), str(zone))})"


def _moment(at: datetime, zone: str) -> str:
    local = at.astimezone(ZoneInfo(zone))
    distance = at - datetime.now(UTC)
    if distance < timedelta(minutes=1):
        text = local.strftime("%H:%M:%S")
    elif distance > timedelta(days=6):
        text = local.strftime("%Y-%m-%d %H:%M")
    else:
        text = local.strftime("%a %H:%M")
    return f"{text}, {ago(distance.total_seconds())}"
