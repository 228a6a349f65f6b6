"""Conditions that an operator should act on: cause, size, since when, and one action."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain
from math import inf
from typing import Literal, TypeAlias, assert_never

from onthedot.clock.epoch import from_ms, from_optional_ms, to_ms
from onthedot.operations.failure_counts import FailureCounts
from onthedot.operations.failures import FailureGroup
from onthedot.operations.health import MAX_UNSERVED, Check, check_clock, check_memory, check_running, read_vitals
from onthedot.operations.humanize import plural, suffix
from onthedot.operations.outbox import OutboxStatus
from onthedot.operations.recent_figures import RecentFigures
from onthedot.operations.releases import ReleaseInfo, read_releases
from onthedot.operations.schedule_info import ScheduleInfo
from onthedot.operations.sources import SourceInfo, source_infos
from onthedot.operations.store_state import StoreState
from onthedot.stores.contract import Record, Store

_RECENT = timedelta(hours=1)
_NEW_RELEASE = timedelta(days=1)  # an older one explains no new failures
_LATE = timedelta(seconds=60)
_MIN_AT_LIMIT = 60_000  # ms
_MIN_HELD_BACK = 10  # pending tasks at a limit
_MAX_AT_LIMIT = 20  # sources at a limit that are looked at, those with most pending tasks
_MAX_RUNNING = 200  # running tasks of each that are read
_MAX_HOLDERS = 3
_SEVERITIES = ("error", "warning", "info")
Severity = Literal["error", "warning", "info"]
AttentionKind: TypeAlias = Literal[
    "store", "clock", "memory", "dead_workers", "no_worker", "failures", "failure_share", "paused", "limit",
    "schedule_invalid", "schedule_orphan", "schedule_late", "outbox_failed", "outbox_late",
]  # fmt: skip
ScheduleStatus: TypeAlias = Literal["active", "paused", "late", "orphan", "invalid"]


@dataclass(frozen=True, slots=True)
class LimitHolder:
    """A running task that holds a slot of a limit. worker: its session; started: None: it has just been claimed."""

    uuid: str
    worker: str | None
    started: datetime | None


@dataclass(frozen=True, slots=True)
class AttentionItem:
    """One condition. action: label, HTTP method and path of what deals with it; body: of a change.

    holders: of a limit: the tasks that have been running longest
    last, trend: of failures: the newest one, and how many per 24th part of the last hour
    release: of failures: the code release after whose first start all of them failed
    """

    kind: AttentionKind
    severity: Severity
    text: str
    size: int = 1
    since: datetime | None = None
    source: str | None = None
    group: str | None = None
    action: tuple[str, str, str] | None = None
    body: Mapping[str, object] = field(default_factory=dict[str, object])
    holders: tuple[LimitHolder, ...] = ()
    last: datetime | None = None
    trend: tuple[int, ...] = ()
    release: str | None = None


class Attention:
    """Finds the conditions of one store. Nothing in it reads many tasks: failures are counted in the background."""

    def __init__(self, store: Store, failure_counts: FailureCounts) -> None:
        self._store = store
        self._failure_counts = failure_counts
        self._figures = RecentFigures(store)

    async def items(
        self,
        now: float,
        state: StoreState,
        schedules: Awaitable[Sequence[ScheduleInfo]],
        outbox: Awaitable[OutboxStatus | None],
    ) -> list[AttentionItem]:
        """Return all items, by severity, then by size. All that they need is read at once. now: ms."""
        moment = from_ms(now)
        sources = source_infos(state.tally, state.limits, state.workers)
        read = asyncio.gather(
            self._vital_items(now, state, sources),
            self._failure_items(moment, state),
            self._share_items(now),
            self._limit_items(sources, now),
        )
        found, known_schedules, known_outbox = await asyncio.gather(read, schedules, outbox)
        items = [
            *chain.from_iterable(found),
            *_pause_items(sources, moment),
            *_schedule_items(known_schedules, moment),
            *_outbox_items(known_outbox, moment),
        ]
        return sorted(items, key=lambda item: (_SEVERITIES.index(item.severity), -item.size, item.text))

    async def _vital_items(self, now: float, state: StoreState, sources: Sequence[SourceInfo]) -> list[AttentionItem]:
        """The server, tasks of dead workers, and tasks that no live worker knows."""
        vitals = await read_vitals(self._store, now, state)
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

    async def _failure_items(self, now: datetime, state: StoreState) -> list[AttentionItem]:
        """The counts are those of the page "Failed"; the first one goes on for a while if there are many."""
        counted = await self._failure_counts.look(now - _RECENT, tally=state.tally)
        releases: Sequence[ReleaseInfo] = ()
        if counted.groups:
            releases = await read_releases(self._store, to_ms(now - _NEW_RELEASE), to_ms(now))
        least = "" if counted.counted_to is None else "at least "
        return [
            AttentionItem(
                "failures",
                "error",
                f"{least}{each.count:,}× {each.type}{suffix(': ', each.message)}",
                each.count,
                each.first,
                each.source,
                each.group,
                ("show", "GET", f"/tasks?q=state:failed%20group:{each.group}"),
                last=each.last,
                trend=each.trend,
                release=None if counted.counted_to else _release_before(each, releases),
            )
            for each in counted.groups
        ]

    async def _share_items(self, now: float) -> list[AttentionItem]:
        return [
            AttentionItem(
                "failure_share",
                "warning",
                f"{each.share * 100:.1f} % of {each.source} failed in the last hour, and "
                f"{each.share_before * 100:.1f} % in the hour before",
                each.failed,
                from_ms(each.since),
                each.source,
                action=("show", "GET", f"/tasks?q=source:{each.source}%20state:failed"),
            )
            for each in await self._figures.grown_failure_shares(now)
        ]

    async def _limit_items(self, sources: Sequence[SourceInfo], now: float) -> list[AttentionItem]:
        """Sources that have been at their limit for more than a minute."""
        full = [(source, cap) for source in sources if (cap := _full_cap(source)) is not None]
        full.sort(key=lambda each: -each[0].ready - each[0].parked)
        found: list[AttentionItem] = []
        for source, cap in full[:_MAX_AT_LIMIT]:
            page = await self._store.find({"source": source.name, "state": "running"}, None, _MAX_RUNNING)
            starts = [
                await self._figures.at_limit_since(source.name, cap, _MIN_HELD_BACK, now),
                _full_since(page.rows, cap),
            ]
            since = min((start for start in starts if start is not None), default=now)
            if now - since <= _MIN_AT_LIMIT:
                continue
            pending = source.ready + source.parked
            found.append(
                AttentionItem(
                    "limit",
                    "warning",
                    f"{source.name} is at its limit, {source.running} of {cap}, with {pending:,} ready",
                    pending,
                    from_ms(since),
                    source.name,
                    action=("show", "GET", f"/tasks?q=source:{source.name}%20state:running"),
                    holders=_holders(page.rows),
                )
            )
        return found


def _release_before(group: FailureGroup, releases: Sequence[ReleaseInfo]) -> str | None:
    """The newest release that a worker ran before the first of all failures that are kept."""
    began = group.began
    return next((each.name for each in reversed(releases) if began is not None and each.at <= began), None)


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


def _full_cap(source: SourceInfo) -> int | None:
    """Its limit, if as many tasks run and others are held back."""
    cap = next((each.cap for each in source.limits if each.name == source.name and each.cap is not None), None)
    is_held_back = source.ready + source.parked >= _MIN_HELD_BACK and source.paused is None
    if cap is None or not is_held_back or source.running < cap:
        return None
    return cap


def _full_since(running: Sequence[Record], cap: int) -> int | None:
    """When the last of these tasks started, in ms: all have been running since then. None: these are not all."""
    starts = [record.history.started for record in running if record.history.started is not None]
    return max(starts) if len(starts) >= max(1, cap) else None


def _holders(running: Sequence[Record]) -> tuple[LimitHolder, ...]:
    """Those that have been running longest."""
    oldest = sorted(running, key=lambda record: record.history.started or inf)[:_MAX_HOLDERS]
    return tuple(
        LimitHolder(record.uuid, record.history.session, from_optional_ms(record.history.started)) for record in oldest
    )


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
