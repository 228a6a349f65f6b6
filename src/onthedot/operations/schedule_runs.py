"""The last runs of schedules: their tasks are found by the nominal times of the windows."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from onthedot.clock.epoch import from_ms, to_ms
from onthedot.model.task_info import public_state
from onthedot.schedules.rules import ScheduleRule
from onthedot.schedules.windows import jitter_ms, nominal_uuid
from onthedot.stores.contract import Record, Store

MAX_RUNS = 20
_DAY = timedelta(days=1)
_FARTHEST = timedelta(days=366 * 25)  # to look back
_PROBES = 24
_BATCH = 1000


@dataclass(frozen=True, slots=True)
class ScheduleRun:
    """A past window. state: of its task; "": it has none, because it was skipped or its task is no longer kept.

    lateness: seconds from the nominal time, with its jitter, to the start; None: not started, or started again
    """

    at: datetime
    uuid: str
    state: str
    lateness: float | None = None


class ScheduleWindows(NamedTuple):
    """The windows of a schedule up to its last run, the oldest first."""

    name: str
    rule: ScheduleRule
    windows: Sequence[datetime]


def last_windows(rule: ScheduleRule, last: datetime, count: int = MAX_RUNS) -> list[datetime]:
    """Return the last windows up to `last`, at most `count`, oldest first. Rules can only be asked for the next one.

    The time to look back is estimated by the distance of two windows, then halved or doubled until it fits.
    """
    first = rule.next_after(last)
    second = None if first is None else rule.next_after(first)
    step = _DAY if first is None or second is None else second - first
    span = min(_FARTHEST, step * count)
    too_short = timedelta()
    too_long: timedelta | None = None
    found: list[datetime] = []
    for _ in range(_PROBES):
        windows = _windows_between(rule, last - span, last, 4 * count)
        if windows is None:
            too_long = span
        else:
            found = windows
            if len(found) >= count:
                break
            too_short = span
        span = too_short * 4 if too_long is None else (too_short + too_long) / 2
        if span > _FARTHEST:
            break
    return found[-count:]


def _windows_between(rule: ScheduleRule, after: datetime, last: datetime, most: int) -> list[datetime] | None:
    """None: there are more."""
    found: deque[datetime] = deque()
    at = rule.next_after(after)
    while at is not None and at <= last:
        if len(found) == most:
            return None
        found.append(at)
        at = rule.next_after(at)
    return list(found)


async def read_runs(store: Store, schedules: Sequence[ScheduleWindows]) -> Mapping[str, Sequence[ScheduleRun]]:
    """Return the runs by the name of the schedule, oldest first, beginning with the oldest one whose task is kept."""
    uuids = [nominal_uuid(each.name, to_ms(at)) for each in schedules for at in each.windows]
    records: dict[str, Record] = {}
    for start in range(0, len(uuids), _BATCH):
        for record in await store.get(uuids[start : start + _BATCH]):
            if record is not None:
                records[record.uuid] = record
    runs: dict[str, Sequence[ScheduleRun]] = {}
    for each in schedules:
        found = [_run(each, at, records.get(nominal_uuid(each.name, to_ms(at)))) for at in each.windows]
        while found and not found[0].state:  # before its first run, or no longer kept
            del found[0]
        runs[each.name] = found
    return runs


def _run(schedule: ScheduleWindows, at: datetime, record: Record | None) -> ScheduleRun:
    nominal = to_ms(at)
    uuid = nominal_uuid(schedule.name, nominal)
    if record is None:
        return ScheduleRun(at, uuid, "")
    lateness = None
    if record.history.started is not None and record.attempt == 1:
        due = nominal + (jitter_ms(schedule.name, nominal, schedule.rule.jitter) if schedule.rule.jitter else 0)
        lateness = max(0.0, (record.history.started - due) / 1000)
    return ScheduleRun(from_ms(nominal), uuid, public_state(record.state).value, lateness)
