"""Conditions that an operator should act on: cause, size, since when, and one action."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeAlias, assert_never

from onthedot.clock.epoch import from_ms, to_ms
from onthedot.errors import StoreError
from onthedot.operations.failures import group_failures
from onthedot.operations.health import MAX_UNSERVED, Check, check_clock, check_memory, check_running, read_vitals
from onthedot.operations.humanize import plural, suffix
from onthedot.operations.outbox import OutboxStatus
from onthedot.operations.schedule_info import ScheduleInfo
from onthedot.operations.sources import SourceInfo
from onthedot.stores.contract import Store

MAX_FAILURES = 2_000  # failed tasks that are read
_RECENT = timedelta(hours=1)
_LATE = timedelta(seconds=60)
_MIN_HELD_BACK = 10  # pending tasks at a limit
_SEVERITIES = ("error", "warning", "info")
Severity = Literal["error", "warning", "info"]
AttentionKind: TypeAlias = Literal[
    "store", "clock", "memory", "dead_workers", "no_worker", "failures", "paused", "limit",
    "schedule_invalid", "schedule_orphan", "schedule_late", "outbox_failed", "outbox_late",
]  # fmt: skip
ScheduleStatus: TypeAlias = Literal["active", "paused", "late", "orphan", "invalid"]


@dataclass(frozen=True, slots=True)
class AttentionItem:
    """One condition. action: label, HTTP method and path of what deals with it; body: of a change."""

    kind: AttentionKind
    severity: Severity
    text: str
    size: int = 1
    since: datetime | None = None
    source: str | None = None
    group: str | None = None
    action: tuple[str, str, str] | None = None
    body: Mapping[str, object] = field(default_factory=dict[str, object])


async def attention_items(
    store: Store,
    now: float,
    sources: Sequence[SourceInfo],
    schedules: Sequence[ScheduleInfo],
    outbox: OutboxStatus | None,
) -> list[AttentionItem]:
    """Return all items, by severity, then by size. now: ms."""
    moment = from_ms(now)
    found = [
        *await _vital_items(store, now, sources),
        *await _failure_items(store, moment),
        *_pause_items(sources, moment),
        *_limit_items(sources),
        *_schedule_items(schedules, moment),
        *_outbox_items(outbox, moment),
    ]
    return sorted(found, key=lambda item: (_SEVERITIES.index(item.severity), -item.size, item.text))


async def _vital_items(store: Store, now: float, sources: Sequence[SourceInfo]) -> list[AttentionItem]:
    """The server, tasks of dead workers, and tasks that no live worker knows."""
    try:
        vitals = await read_vitals(store, now)
    except StoreError as error:
        return [AttentionItem("store", "error", str(error))]
    found: list[AttentionItem] = []
    if vitals.server is not None:
        checks: dict[AttentionKind, list[Check]] = {
            "clock": [check_clock(vitals.server, now)],
            "memory": check_memory(vitals.server),
        }
        for kind, results in checks.items():
            found += [AttentionItem(kind, "error", check.text) for check in results if not check.ok]
    running = check_running(vitals.tally, vitals.workers)
    if not running.ok:
        found.append(AttentionItem("dead_workers", "error", running.text))
    ready = {source.name: source.ready + source.parked for source in sources}
    for source, due in vitals.unserved.items():
        if now - due > MAX_UNSERVED:
            count = ready.get(source, 1)
            text = f"{plural(count, 'task is', 'tasks are')} ready for {source}, and no live worker knows it"
            show = ("show", "GET", f"/tasks?q=source:{source}%20state:ready")
            found.append(AttentionItem("no_worker", "error", text, count, from_ms(due), source, action=show))
    return found


async def _failure_items(store: Store, now: datetime) -> list[AttentionItem]:
    groups = await group_failures(store, to_ms(now), to_ms(now - _RECENT), most=MAX_FAILURES)
    return [
        AttentionItem(
            "failures",
            "error",
            f"{each.count}× {each.type}{suffix(': ', each.message)}",
            each.count,
            each.last,
            each.source,
            each.group,
            ("show", "GET", f"/tasks?q=state:failed%20group:{each.group}"),
        )
        for each in groups
    ]


def _pause_items(sources: Sequence[SourceInfo], now: datetime) -> Iterator[AttentionItem]:
    for source in sources:
        pause = source.paused
        pending = source.ready + source.parked
        if pause is not None and pending and (pause.since is None or now - pause.since > _RECENT):
            text = f"{source.name} is paused, and {plural(pending, 'task is', 'tasks are')} ready"
            resume = ("resume", "POST", f"/sources/{source.name}/resume")
            yield AttentionItem(
                "paused", "warning", text + suffix(": ", pause.reason), pending, pause.since, source.name, action=resume
            )


def _limit_items(sources: Sequence[SourceInfo]) -> Iterator[AttentionItem]:
    for source in sources:
        cap = next((each.cap for each in source.limits if each.name == source.name and each.cap is not None), None)
        pending = source.ready + source.parked
        if cap is not None and source.paused is None and source.running >= cap and pending >= _MIN_HELD_BACK:
            text = f"{source.name} is at its limit, {source.running} of {cap}, with {pending:,} ready"
            show = ("show", "GET", f"/tasks?q=source:{source.name}%20state:running")
            yield AttentionItem("limit", "warning", text, pending, None, source.name, action=show)


def schedule_status(schedule: ScheduleInfo, now: datetime) -> ScheduleStatus:
    """late: more than a minute; orphan: code has declared it that no live worker has; invalid: it cannot be read."""
    if schedule.rule == "?":
        return "invalid"
    if not schedule.enabled:
        return "paused"
    if schedule.orphan:
        return "orphan"
    is_late = schedule.next_run is not None and now - schedule.next_run > _LATE
    return "late" if is_late else "active"


def _schedule_items(schedules: Sequence[ScheduleInfo], now: datetime) -> Iterator[AttentionItem]:
    for schedule in schedules:
        show = ("show", "GET", f"/schedules/{schedule.name}")
        match schedule_status(schedule, now):
            case "invalid":
                text = f"schedule {schedule.name} cannot be read: {schedule.reason}"
                yield AttentionItem("schedule_invalid", "error", text, source=schedule.source, action=show)
            case "orphan":
                text = f"schedule {schedule.name} does not fire: {schedule.reason}"
                yield AttentionItem("schedule_orphan", "warning", text, source=schedule.source, action=show)
            case "late":
                text = f"schedule {schedule.name} is late"
                yield AttentionItem("schedule_late", "error", text, 1, schedule.next_run, schedule.source, action=show)
            case "active" | "paused":
                pass
            case unreachable:
                assert_never(unreachable)


def _outbox_items(outbox: OutboxStatus | None, now: datetime) -> Iterator[AttentionItem]:
    if outbox is None:
        return
    show = ("show", "GET", "/outbox")
    for topic in outbox.topics:
        if topic.failed:
            text = f"{plural(topic.failed, 'event')} of {topic.topic} failed"
            if topic.blocked_keys:
                text += f", {plural(topic.blocked_keys, 'key is', 'keys are')} blocked"
            yield AttentionItem("outbox_failed", "error", text + suffix(": ", topic.error), topic.failed, action=show)
        is_paused = topic.paused is not None or outbox.paused is not None
        if topic.oldest is not None and now - topic.oldest > _LATE and not is_paused:
            text = f"events of {topic.topic} are late"
            if not outbox.relays:
                text = f"no relay is alive to send the events of {topic.topic}"
            yield AttentionItem("outbox_late", "error", text, topic.pending, topic.oldest, action=show)
