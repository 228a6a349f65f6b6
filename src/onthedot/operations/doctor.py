"""What is not as it should be in a store: each with what to do about it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING

from onthedot.operations.health import LATE, MEND_CLOCKS, MOST_CROWDED, MOST_FAILED, MOST_OFF, Check, clock, memory
from onthedot.operations.humanize import ago
from onthedot.operations.schedules import ScheduleInfo
from onthedot.operations.sources import Pause, SourceInfo
from onthedot.operations.workers import WorkerInfo

if TYPE_CHECKING:
    from onthedot.operations import Operations

_LATE = LATE / 1000  # seconds: also of a window of a schedule
FORGOTTEN = timedelta(hours=1)  # of a pause
_WEEK = timedelta(days=7)  # for which succeeded ones are kept: older failures have nothing to be compared with
_LOOK = 10_000  # ready tasks that are looked at
_SOME = 5  # of a kind


async def diagnose(operations: Operations) -> list[Check]:
    """All that can be said of the inside of a store."""
    sources, workers = await operations.sources(), await operations.present()
    hosts = ", ".join(sorted({each.host for each in workers if each.host}))
    found = await _server(operations)
    found.append(Check(True, "workers", f"{len(workers)}" + (f" on {hosts}" if hosts else "")))
    found += _late(await _oldest(operations, sources), {each.name: each for each in sources}, workers)
    found += _paused(sources)
    found += _running(Counter([each.history.session async for each in operations.counted("running")]), workers)
    found.append(await _failed(operations, sources))
    found += _schedules(await operations.schedules.list(), workers)
    found += await _clocks(operations, workers)
    return found


async def _server(operations: Operations) -> list[Check]:
    """Its clock and memory, if the store is one."""
    asked = time.time() * 1000
    server = await operations.server()
    if server is None:
        return []
    now = min(max(server.now, asked), time.time() * 1000)  # it looked at its clock between question and answer
    return [Check(True, "server", server.program), clock(server, now), *memory(server)]


# -- what waits


async def _oldest(operations: Operations, sources: Iterable[SourceInfo]) -> dict[str, int]:
    """The due time of the oldest ready task of every source, as far as that many tell.

    First the newest, then the newest of those that were added long enough ago: in a long queue others have come since.
    """
    oldest: dict[str, int] = {}
    most = min(_LOOK, sum(each.ready for each in sources))
    before = {"until": str(int((time.time() - _LATE) * 1000))}
    for where in ({"state": "ready"}, {"state": "ready"} | before) if most else ():
        async for record in operations.records(where, most):
            oldest[record.source] = min(record.due, oldest.get(record.source, record.due))
    return oldest


def _late(
    oldest: Mapping[str, int], sources: Mapping[str, SourceInfo], workers: Sequence[WorkerInfo]
) -> Iterator[Check]:
    """A source that is paused is told of apart."""
    known = {source for worker in workers for source in worker.sources}
    waits = {name: time.time() - due / 1000 for name, due in oldest.items() if sources[name].paused is None}
    late = sorted((name for name, seconds in waits.items() if seconds > _LATE), key=lambda name: -waits[name])
    for name in late[:_SOME]:
        text = f"due {ago(-waits[name])}: {sources[name].ready} of {name}"
        if name not in known:
            close = get_close_matches(name, known, n=1)
            misspelt = f"; or is {close[0]!r} meant, which workers know?" if close else ""
            remedy = f"start a worker whose app declares it: onthedot worker APP{misspelt}"
            yield Check(False, "oldest ready", f"{text}, and no live worker knows it", remedy)
            continue
        limited = "raise its limits (`onthedot source list`), or " if sources[name].limits else ""
        remedy = f"{limited}give it more room: more workers, --processes or -c; `onthedot top` shows how fast it goes"
        yield Check(False, "oldest ready", f"{text}, although {sources[name].workers} live workers know it", remedy)
    if len(late) > _SOME:
        yield Check(False, "oldest ready", f"and {len(late) - _SOME} sources more", "see `onthedot source list`")
    if not late and waits:
        yield Check(True, "oldest ready", f"due {ago(-max(waits.values()))}")


def _paused(sources: Iterable[SourceInfo]) -> Iterator[Check]:
    for each in sources:
        for pause in filter(None, (each.paused, *each.paused_keys)):
            yield _pause(each, pause)


def _pause(source: SourceInfo, pause: Pause) -> Check:
    whose = source.name if pause.key is None else f"{source.name} for {pause.key}"
    waits = f"; {source.ready + source.parked} ready ones wait" if pause.key is None else ""
    reason = f": {pause.reason}" if pause.reason else ""
    since = "nobody knows since when" if pause.since is None else ago((pause.since - datetime.now(UTC)).total_seconds())
    ok = pause.since is not None and datetime.now(UTC) - pause.since < FORGOTTEN
    key = "" if pause.key is None else f" --key '{pause.key}'"
    return Check(ok, "paused", f"{whose}, {since}{reason}{waits}", f"onthedot source resume {source.name}{key}")


# -- what runs, and how it ended


def _running(leased: Mapping[str | None, int], workers: Sequence[WorkerInfo]) -> Iterator[Check]:
    alive = {worker.id for worker in workers}
    dead = sum(number for session, number in leased.items() if session not in alive)
    running, slots = sum(leased.values()), sum(sum(worker.concurrency.values()) for worker in workers)
    if dead:
        yield Check(
            False, "running", f"{dead} are held by workers that are dead",
            "they are taken over as soon as a worker lives: onthedot worker APP",
        )  # fmt: skip
    elif slots and running > MOST_CROWDED * slots:
        yield Check(
            False, "running", f"{running}, and all workers together have {slots} slots",
            "workers hold what they do not run: restart them (SIGHUP), and look at their logs",
        )  # fmt: skip
    elif running:
        yield Check(True, "running", f"{running} on {slots} slots")


async def _failed(operations: Operations, sources: Iterable[SourceInfo]) -> Check:
    groups = await operations.failures(datetime.now(UTC) - _WEEK)
    failed, succeeded = sum(group.count for group in groups), sum(source.succeeded for source in sources)
    if not failed:
        return Check(True, "failed", "0 within a week")
    share = failed / (failed + succeeded)
    text = f"{failed} of {failed + succeeded} runs within a week ({share:.1%})"
    text += f", most of them {groups[0].type} in {groups[0].source}"
    remedy = f"see `onthedot failed`; mended? onthedot task retry --group {groups[0].group}"
    return Check(share <= MOST_FAILED, "failed", text, remedy)


# -- time


def _schedules(schedules: Iterable[ScheduleInfo], workers: Sequence[WorkerInfo]) -> list[Check]:
    """Where nobody works, only what is overdue is told: the rest fires as soon as somebody does."""
    bad: list[Check] = []
    for each in (each for each in schedules if each.enabled):
        name, reason = each.name, f": {each.reason}" if each.reason else ""
        late = 0.0 if each.next_run is None else (datetime.now(UTC) - each.next_run).total_seconds()
        if late > _LATE:
            remedy = f"start a worker whose app declares it; if none does any more: onthedot schedule delete {name}"
            bad.append(Check(False, "schedule", f"{name} was due {ago(-late)}, and nobody fires it{reason}", remedy))
        elif workers and each.orphan:
            remedy = f"run its app again, or: onthedot schedule delete {name}"
            bad.append(Check(False, "schedule", f"{name} does not fire{reason}", remedy))
        elif each.next_run is None and not each.run_count:
            remedy = "its rule has no moment in the future; give it another"
            bad.append(Check(False, "schedule", f"{name} has never fired, and never will{reason}", remedy))
    return bad[:_SOME]


async def _clocks(operations: Operations, workers: Sequence[WorkerInfo]) -> list[Check]:
    """What happened in the future was written by somebody whose clock is wrong; or ours is."""
    seen = {f"the newest task of {task.source} was added": task.added_at for task in await operations.find(limit=1)}
    seen |= {f"worker {each.id} on {each.host} began": each.started for each in workers if each.started is not None}
    ahead = {what: (at - datetime.now(UTC)).total_seconds() for what, at in seen.items()}
    return [
        Check(False, "clock", f"{what} {seconds:.0f} s in the future", MEND_CLOCKS)
        for what, seconds in ahead.items()
        if seconds * 1000 > MOST_OFF
    ][:_SOME]
