"""Speed, memory and lag of workers, from their records of the last ten minutes, and the tasks of dead ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from onthedot.clock.epoch import from_ms
from onthedot.model.worker_record import WORKERS, WorkerRecord, decode_worker_record
from onthedot.operations.figure_records import read_all
from onthedot.operations.workers import LostTasks, WorkerInfo
from onthedot.stores.contract import SERIES, Record, Store

_MINUTE = 60_000  # ms
_SHOWN = 10  # minutes
_FRESH = 2 * _MINUTE  # a record that is older says nothing about now

WorkerMinutes = Mapping[int, WorkerRecord]
"""The records of one session by their minute, in ms."""


async def read_worker_minutes(store: Store, now: float) -> dict[str, WorkerMinutes]:
    """Return the records of all sessions, live or not. now: ms."""
    since = int(now) - (SERIES[WORKERS].keep or 0)
    found: defaultdict[str, dict[int, WorkerRecord]] = defaultdict(dict)
    for entry in await read_all(store, WORKERS, since, int(now) + _MINUTE):  # the clock of the store may be ahead
        found[entry.writer][entry.at] = decode_worker_record(entry.data)
    return dict(found)


def with_figures(worker: WorkerInfo, minutes: WorkerMinutes, now: float) -> WorkerInfo:
    """Add what the worker has written. now: ms."""
    if not minutes:
        return worker
    last = minutes[max(minutes)]
    current = int(now) // _MINUTE * _MINUTE
    times = range(current - (_SHOWN - 1) * _MINUTE, current + 1, _MINUTE)
    return replace(
        worker,
        seen=from_ms(last.written),
        done_per_minute=_done_per_minute(minutes, now),
        done=tuple(minutes[at].done if at in minutes else 0 for at in times),
        rss=last.rss,
        loop_lag=last.loop_lag,
        clock_offset=last.clock_offset,
    )


def _done_per_minute(minutes: WorkerMinutes, now: float) -> float:
    """In the 60 s before the last record; the part in the minute before it is estimated."""
    at = max(minutes)
    last = minutes[at]
    if now - last.written > _FRESH:
        return 0.0
    before = minutes.get(at - _MINUTE, WorkerRecord())
    share = 1 - min(1.0, (last.written - at) / _MINUTE)
    return round(last.done + share * before.done, 1)


async def lost_workers(
    store: Store, by_session: Mapping[str, WorkerMinutes], live: Collection[str], now: float
) -> list[WorkerInfo]:
    """Return the workers that have died: they have written in the last ten minutes, and have not stopped."""
    found: list[WorkerInfo] = []
    for session, minutes in by_session.items():
        last = minutes[max(minutes)]
        if session in live or last.is_closed or not last.written:
            continue
        records = await store.get(last.runs) if last.runs else ()
        worker = WorkerInfo(
            session,
            last.host,
            last.pid,
            version=last.version,
            release=last.release,
            alive=False,
            lost=_lost_tasks(session, [record for record in records if record is not None]),
        )
        found.append(with_figures(worker, minutes, now))
    return sorted(found, key=lambda worker: (worker.seen is None, worker.seen, worker.id), reverse=True)


def _lost_tasks(session: str, records: Sequence[Record]) -> LostTasks:
    """Of the tasks that it ran when it wrote last. Those that it has ended itself since then are not lost."""
    requeued = 0
    failed = 0
    held = 0
    for record in records:
        is_own = record.history.session == session
        if record.history.reason == "crashed":
            failed += 1
        elif record.state == "running" and is_own:
            held += 1
        elif record.history.ended is None or not is_own:
            requeued += 1
    return LostTasks(requeued, failed, held)
