"""Problems of a store, its tasks and its workers; each with a remedy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING

from onthedot.clock.epoch import from_ms
from onthedot.model.batch_names import batch_task
from onthedot.model.failures import UNDECODABLE_RECORD
from onthedot.model.limits import unreadable_lane_rules
from onthedot.operations.agent_health import check_agent_keep
from onthedot.operations.batches import ModeInfo
from onthedot.operations.failures import FailureGroup
from onthedot.operations.health import (
    FIX_CLOCKS,
    MAX_CLOCK_OFFSET,
    MAX_CROWDED,
    MAX_FAILED,
    MAX_UNSERVED,
    Check,
    check_clock,
    check_memory,
)
from onthedot.operations.humanize import ago, from_now, plural, suffix
from onthedot.operations.outbox_health import check_outbox
from onthedot.operations.schedule_info import ScheduleInfo
from onthedot.operations.sources import Pause, SourceInfo
from onthedot.operations.workers import WorkerInfo
from onthedot.stores.contract import Limit

if TYPE_CHECKING:
    from onthedot.operations import Operations

_MAX_LATE = MAX_UNSERVED / 1000  # seconds; also of a window of a schedule
MAX_PAUSE = timedelta(hours=1)
_WEEK = timedelta(days=7)  # succeeded tasks are kept so long; older failures could not be compared with them
MAX_READY = 1_000  # ready tasks of a source that are read, the next to run first
_MAX_FINDINGS = 5  # of a kind


async def diagnose(operations: Operations, *, repair: bool = False) -> list[Check]:
    """Return the results of all checks. repair: Requeue tasks that no worker can find."""
    now = operations.clock.now()
    sources = await operations.sources()
    workers = await operations.live_workers()
    hosts = ", ".join(sorted({each.host for each in workers if each.host}))
    found = await _server(operations)
    found.append(Check(True, "workers", f"{len(workers)}{suffix(' on ', hosts)}"))
    found += _data_loss(workers)
    found += _unplaced(await operations.unplaced(requeue=repair), repaired=repair)
    found += _late(await _oldest(operations, sources), {each.name: each for each in sources}, workers, now)
    found += _paused(sources, now)
    found += _modes(await operations.batches.modes())
    found += _frozen(sources)
    found += _running(Counter([each.history.session async for each in operations.tasks.in_state("running")]), workers)
    groups = await operations.failures(from_ms(now) - _WEEK)
    found += _undecodable(groups, await operations.set_aside())
    found += _unreadable_limits(await operations.limits.stored())
    found += _unreadable_sessions(await operations.unreadable_sessions())
    found.append(_failed(groups, sources))
    found += _schedules(await operations.schedules.list(), workers, now)
    found += check_outbox(await operations.outbox.find_status())
    found += check_agent_keep(workers, await _ended_in_an_hour(operations))
    found += await _clocks(operations, workers)
    return found


async def _ended_in_an_hour(operations: Operations) -> float:
    series = (await operations.series(("succeeded", "failed", "cancelled"))).series
    return sum(value or 0 for values in series.values() for value in values)


async def _server(operations: Operations) -> list[Check]:
    """Check the clock and memory of the store's server, if it has one."""
    sent = operations.clock.now()
    server = await operations.server()
    if server is None:
        return []
    now = min(max(server.now, sent), operations.clock.now())  # it read its clock between request and answer
    return [Check(True, "server", server.program), check_clock(server, now), *check_memory(server)]


# -- lost and damaged data


def _data_loss(workers: Sequence[WorkerInfo]) -> Iterator[Check]:
    """Workers record it in their sessions, so it is shown until they are restarted."""
    noticed = sorted(each.data_lost for each in workers if each.data_lost is not None)
    if noticed:
        remedy = (
            "tasks added before that may be gone: compare with your own records, and add them again; find out why the "
            "server had no data (persistence, failover, a restored copy); a restart of the workers ends this message"
        )
        text = f"{plural(len(noticed), 'worker')} found {from_now(noticed[0])} that the store had lost data"
        yield Check(False, "data loss", text, remedy)


def _unplaced(uuids: Sequence[str], *, repaired: bool) -> Iterator[Check]:
    if not uuids:
        return
    shown = ", ".join([*uuids[:_MAX_FINDINGS], "…"][: len(uuids)])
    if repaired:
        yield Check(True, "no place", f"requeued {plural(len(uuids), 'task')}: {shown}")
        return
    text = f"{plural(len(uuids), 'task')} in no queue, lease or end, after an aborted script: {shown}"
    yield Check(False, "no place", text, "onthedot doctor --repair requeues them")


def _undecodable(groups: Sequence[FailureGroup], set_aside: Sequence[bytes]) -> Iterator[Check]:
    if set_aside:
        text = (
            f"{plural(len(set_aside), 'record')} without a readable uuid, the first begins with {set_aside[0][:40]!r}"
        )
        remedy = "their bytes are kept in the hash `undecodable` of the app; delete it there when you have seen them"
        yield Check(False, "undecodable", text, remedy)
    for group in [each for each in groups if each.type == UNDECODABLE_RECORD][:_MAX_FINDINGS]:
        text = f"{plural(group.count, 'record')} of {group.source} could not be read, and ended as failed"
        remedy = (
            f"see `onthedot task show {group.example}`; a newer version wrote it? Then update the workers and retry: "
            f"onthedot task retry --group {group.group}"
        )
        yield Check(False, "undecodable", text, remedy)


def _unreadable_limits(limits: Iterable[Limit]) -> Iterator[Check]:
    for name in unreadable_lane_rules(limits)[:_MAX_FINDINGS]:
        text = f"the limits of {name} by key cannot be read: tasks that a process without its code adds are not limited"
        remedy = "a newer version wrote them? Then update this one; else restart a worker whose app declares it"
        yield Check(False, "limit", text, remedy)


def _unreadable_sessions(sessions: Sequence[str]) -> Iterator[Check]:
    for name in sessions[:_MAX_FINDINGS]:
        text = f"the description of session {name} cannot be read: its host and sources are not known"
        remedy = (
            "a newer version wrote it? Then update this one; else restart the worker with this id: onthedot worker list"
        )
        yield Check(False, "session", text, remedy)


# -- pending tasks


async def _oldest(operations: Operations, sources: Iterable[SourceInfo]) -> dict[str, int]:
    """Return the oldest due time among the first ready tasks of every source."""
    oldest: dict[str, int] = {}
    for source in sources:
        where = {"state": "ready", "source": source.name}
        async for record in operations.tasks.records(where, min(source.ready, MAX_READY)):
            oldest[record.source] = min(record.due, oldest.get(record.source, record.due))
    return oldest


def _late(
    oldest: Mapping[str, int], sources: Mapping[str, SourceInfo], workers: Sequence[WorkerInfo], now: float
) -> Iterator[Check]:
    """Paused sources have a check of their own."""
    known = {source for worker in workers for source in worker.sources}
    waits = {name: (now - due) / 1000 for name, due in oldest.items() if sources[name].paused is None}
    late = sorted((name for name, seconds in waits.items() if seconds > _MAX_LATE), key=lambda name: -waits[name])
    for name in late[:_MAX_FINDINGS]:
        text = f"due {ago(-waits[name])}: {sources[name].ready} of {name}"
        if name not in known:
            remedy = "start a worker whose app declares it: onthedot worker APP"
            for close in get_close_matches(name, known, n=1):
                remedy += f"; or is it {close!r}, which workers know?"
            yield Check(False, "oldest ready", f"{text}, and no live worker knows it", remedy)
            continue
        remedy = "add capacity: more workers, --processes or -c; `onthedot top` shows how fast it goes"
        if sources[name].limits:
            remedy = f"raise its limits (`onthedot source list`), or {remedy}"
        yield Check(False, "oldest ready", f"{text}, although {sources[name].workers} live workers know it", remedy)
    if len(late) > _MAX_FINDINGS:
        yield Check(
            False, "oldest ready", f"and {len(late) - _MAX_FINDINGS} sources more", "see `onthedot source list`"
        )
    if not late and waits:
        yield Check(True, "oldest ready", f"due {ago(-max(waits.values()))}")


def _paused(sources: Iterable[SourceInfo], now: float) -> Iterator[Check]:
    for each in sources:
        for pause in filter(None, (each.paused, *each.paused_keys)):
            yield _pause(each, pause, now)


def _pause(source: SourceInfo, pause: Pause, now: float) -> Check:
    ok = False
    since = "since an unknown time"
    if pause.since is not None:
        ok = from_ms(now) - pause.since < MAX_PAUSE
        since = from_now(pause.since)
    reason = suffix(": ", pause.reason)
    remedy = f"onthedot source resume {source.name}"
    if pause.key is not None:
        return Check(ok, "paused", f"{source.name} for {pause.key}, {since}{reason}", f"{remedy} --key '{pause.key}'")
    waits = f"{source.ready + source.parked} ready ones wait"
    return Check(ok, "paused", f"{source.name}, {since}{reason}; {waits}", remedy)


def _modes(modes: Iterable[ModeInfo]) -> Iterator[Check]:
    """A person has set these, and may have forgotten them: nothing else ends them."""
    for each in modes:
        live = f"{plural(each.live, 'batch', 'batches')} not ended"
        if each.mode == "frozen":
            remedy = f"onthedot batch thaw {each.task}"
            yield Check(False, "frozen", f"{each.task} accepts no new batches; {live}", remedy)
        else:
            remedy = f"onthedot batch restore {each.task}"
            yield Check(False, "degraded", f"{each.task} makes new batches in one part; {live}", remedy)


def _frozen(sources: Iterable[SourceInfo]) -> Iterator[Check]:
    """Batches have a check of their own."""
    for each in sources:
        if each.frozen and batch_task(each.name) is None:
            live = each.ready + each.parked + each.scheduled + each.running + each.waiting
            remedy = f"onthedot source thaw {each.name}"
            text = f"{each.name} accepts no new tasks; {plural(live, 'task')} not ended"
            yield Check(False, "frozen", text, remedy)


# -- running and failed tasks


def _running(leased: Mapping[str | None, int], workers: Sequence[WorkerInfo]) -> Iterator[Check]:
    alive = {worker.id for worker in workers}
    dead = sum(number for session, number in leased.items() if session not in alive)
    running = sum(leased.values())
    slots = sum(sum(worker.concurrency.values()) for worker in workers)
    if dead:
        yield Check(
            False, "running", f"{dead} are leased to dead workers",
            "a worker requeues them when it starts: onthedot worker APP",
        )  # fmt: skip
    elif slots and running > MAX_CROWDED * slots:
        yield Check(
            False, "running", f"{running}, and all workers together have {slots} slots",
            "workers hold tasks that they do not run: restart them (SIGHUP), and read their logs",
        )  # fmt: skip
    elif running:
        yield Check(True, "running", f"{running} on {slots} slots")


def _failed(groups: Sequence[FailureGroup], sources: Iterable[SourceInfo]) -> Check:
    failed = sum(group.count for group in groups)
    succeeded = sum(source.succeeded for source in sources)
    if not failed:
        return Check(True, "failed", "0 within a week")
    share = failed / (failed + succeeded)
    text = f"{failed} of {failed + succeeded} runs within a week ({share:.1%})"
    text += f", most of them {groups[0].type} in {groups[0].source}"
    remedy = f"see `onthedot failed`; fixed? onthedot task retry --group {groups[0].group}"
    return Check(share <= MAX_FAILED, "failed", text, remedy)


# -- schedules and clocks


def _schedules(schedules: Iterable[ScheduleInfo], workers: Sequence[WorkerInfo], now: float) -> list[Check]:
    """Without workers only overdue schedules are problems: the others fire when a worker starts."""
    problems: list[Check] = []
    for each in (each for each in schedules if each.enabled):
        name = each.name
        reason = suffix(": ", each.reason)
        if each.next_run is not None and from_ms(now) - each.next_run > timedelta(seconds=_MAX_LATE):
            due = from_now(each.next_run)
            remedy = f"start a worker whose app declares it; if none does any more: onthedot schedule delete {name}"
            problems.append(Check(False, "schedule", f"{name} was due {due}, and no worker fires it{reason}", remedy))
        elif workers and each.orphan:
            remedy = f"run its app again, or: onthedot schedule delete {name}"
            problems.append(Check(False, "schedule", f"{name} does not fire{reason}", remedy))
        elif each.next_run is None and not each.run_count:
            remedy = "its rule has no moment in the future; change it"
            problems.append(Check(False, "schedule", f"{name} has never fired, and never will{reason}", remedy))
    return problems[:_MAX_FINDINGS]


async def _clocks(operations: Operations, workers: Sequence[WorkerInfo]) -> list[Check]:
    """A time in the future was written by a machine with a wrong clock, or the clock here is wrong."""
    times = {f"the newest task of {task.source} was added": task.added_at for task in await operations.find(limit=1)}
    times |= {f"worker {each.id} on {each.host} began": each.started for each in workers if each.started is not None}
    now = from_ms(operations.clock.now())
    ahead = {what: (at - now).total_seconds() for what, at in times.items()}
    return [
        Check(False, "clock", f"{what} {seconds:.0f} s in the future", FIX_CLOCKS)
        for what, seconds in ahead.items()
        if seconds * 1000 > MAX_CLOCK_OFFSET
    ][:_MAX_FINDINGS]
