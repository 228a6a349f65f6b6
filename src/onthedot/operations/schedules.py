"""Read and change schedules, over the store contract alone: without the code that declared them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import merge
from itertools import islice, takewhile
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from onthedot.clock.epoch import from_ms
from onthedot.clock.protocol import Clock
from onthedot.clock.system import SystemClock
from onthedot.errors import BadSchedule, StoreBusy, TaskNotFound
from onthedot.model.task import check_name
from onthedot.model.uuid7 import new_uuid
from onthedot.observability.events import Observer
from onthedot.observability.logs import LogObserver
from onthedot.operations.audit import Recorded
from onthedot.operations.schedule_forms import ScheduleForm
from onthedot.operations.schedule_info import ScheduleInfo, is_orphan, revision_of, schedule_info
from onthedot.operations.schedule_preview import HOUR, PlannedRun, coming_windows, count_by_hour, planned_run
from onthedot.operations.schedule_runs import ScheduleRun, ScheduleWindows, last_windows, read_runs
from onthedot.operations.workers import WorkerInfo, live_workers
from onthedot.schedules.definition import ScheduleDefinition, resolve_rule
from onthedot.schedules.rules import TICK, IntervalSchedule, ScheduleRule
from onthedot.schedules.stored_rule import (
    StoredRule,
    after_resume,
    decode_rule,
    encode_rule,
    store_now,
    unique_key_for,
)
from onthedot.schedules.windows import first_run
from onthedot.stores import contract
from onthedot.stores.contract import NewTask, Store

_MAX_TRIES = 10  # of a compare-and-set


class ScheduleNotFound(TaskNotFound):
    """No schedule has this name."""


class ScheduleConflict(BadSchedule):
    """The name is taken, or code declares the schedule."""


class ScheduleChanged(BadSchedule):
    """Somebody else has edited the schedule meanwhile."""


@dataclass(frozen=True, slots=True)
class ScheduleDetails:
    """A schedule with its next runs, as if it were resumed now, and with its last runs, oldest first."""

    info: ScheduleInfo
    coming: Sequence[PlannedRun]
    runs: Sequence[ScheduleRun]


class RunNowResult(NamedTuple):
    """The task that `run` has added; not fresh: the one that was alive already."""

    source: str
    uuid: str
    fresh: bool


Infos: TypeAlias = list[ScheduleInfo]
Runs: TypeAlias = list[PlannedRun]
Details: TypeAlias = list[ScheduleDetails]
_Change: TypeAlias = Callable[[contract.Schedule], contract.Schedule]


class ScheduleOperations(Recorded):
    """definitions: the schedules whose code is in this process, so that custom rules can be computed."""

    def __init__(
        self,
        store: Store,
        client: str,
        clock: Clock | None = None,
        observer: Observer | None = None,
        definitions: Mapping[str, ScheduleDefinition] | None = None,
    ) -> None:
        self._store = store
        self._client = client
        self._clock = clock or SystemClock()
        self._observer: Observer = observer or LogObserver(None)
        self._definitions: Mapping[str, ScheduleDefinition] = {} if definitions is None else definitions
        self._windows: dict[str, tuple[int, ScheduleWindows | None]] = {}  # with the revision of the record

    # -- read

    async def get(self, name: str) -> ScheduleInfo:
        records, workers = await self._read()
        return schedule_info(_find(records, name), workers)

    async def list(self, workers: Sequence[WorkerInfo] | None = None) -> Infos:
        """Return all schedules, by name. workers: those that live, if the caller has just read them."""
        records, workers = await self._read(workers)
        return [schedule_info(record, workers) for record in records]

    async def details(self, name: str | None = None, *, coming: int = 3) -> Details:
        """Return one schedule, or all by name, with the next and the last runs. coming: how many next ones."""
        records, workers = await self._read()
        self._windows = {each.name: known for each in records if (known := self._windows.get(each.name)) is not None}
        if name is not None:
            records = [_find(records, name)]
        now = self._now()
        windows = [each for record in records if (each := self._last_windows(record)) is not None]
        runs = await read_runs(self._store, windows)
        found: Details = []
        for record in records:
            planned: Runs = []
            if not (workers and is_orphan(record, workers)):
                planned = [*islice(self._coming_runs(record, now, alone=False), coming)]
            found.append(ScheduleDetails(schedule_info(record, workers), planned, runs.get(record.name, ())))
        return found

    def _last_windows(self, record: contract.Schedule) -> ScheduleWindows | None:
        """A schedule has others only after its next run, so they are computed once per revision."""
        if record.last_at is None:
            return None
        newest = from_ms(record.last_at)
        if record.next_at is not None:
            newest = max(newest, from_ms(record.next_at) - TICK)  # windows that were skipped since
        known = self._windows.get(record.name)
        if known is not None and known[0] == record.rev:
            return known[1]
        rule = self._rule(record, alone=False)
        found: ScheduleWindows | None = None
        if rule is not None:
            found = ScheduleWindows(record.name, rule, last_windows(rule, newest))
        self._windows[record.name] = (record.rev, found)
        return found

    def preview(self, form: ScheduleForm, limit: int = 5) -> Runs:
        """Return the first runs of a schedule that is not stored. BadSchedule: its rule cannot be read."""
        rule = form.as_rule()
        now = self._now()
        at = first_run(rule, from_ms(now))
        if isinstance(rule, IntervalSchedule):
            rule = rule.with_anchor(from_ms(now))
        found: Runs = []
        while at is not None and len(found) < limit:
            found.append(planned_run("", rule, at))
            at = rule.next_after(at)
        return found

    async def plan(
        self,
        name: str | None = None,
        *,
        hours: float = 24,
        until: datetime | None = None,
        limit: int = 1000,
        from_code: bool = False,
    ) -> Runs:
        """Return the next runs of one schedule, or of all that fire, in order.

        Of a custom rule only the next run is known, unless its code is in this process. from_code: as if a worker had
        started with this code.
        """
        records = await self._planned(name, from_code=from_code)
        now = self._now()
        end = until or from_ms(now) + timedelta(hours=hours)
        each = [self._coming_runs(record, now, alone=name is not None) for record in records]
        merged = merge(*each, key=lambda run: (run.at, run.name))
        return [*islice(takewhile(lambda run: run.at <= end, merged), limit)]

    async def next_runs(self, name: str | None = None, *, from_code: bool = False) -> Runs:
        """Return the next run of one schedule, or of each that fires, in order."""
        now = self._now()
        each = [
            self._coming_runs(record, now, alone=False) for record in await self._planned(name, from_code=from_code)
        ]
        return sorted((run for runs in each for run in islice(runs, 1)), key=lambda run: (run.at, run.name))

    async def load(
        self, name: str | None = None, *, hours: int = 24, from_code: bool = False
    ) -> Sequence[tuple[datetime, int]]:
        """Return the number of runs per hour of one schedule, or of all that fire, from the current hour on."""
        records = await self._planned(name, from_code=from_code)
        now = self._now()
        begin = from_ms(now).replace(minute=0, second=0, microsecond=0)
        total = [0] * hours
        for record in records:
            rule = self._rule(record, alone=name is not None)
            if rule is not None:
                counts = count_by_hour(record, rule, now, hours)
                total = [sum(pair) for pair in zip(total, counts, strict=True)]
        return [(begin + hour * HOUR, count) for hour, count in enumerate(total)]

    async def _planned(self, name: str | None, *, from_code: bool = False) -> Sequence[contract.Schedule]:
        records, workers = await self._read()
        if from_code:
            records = self._with_definitions(records)
            workers = ()
        if name is not None:
            return [_find(records, name)]
        return [each for each in records if not each.paused and not (workers and is_orphan(each, workers))]

    def _with_definitions(self, records: Sequence[contract.Schedule]) -> Sequence[contract.Schedule]:
        """The records that a worker with this code would leave: its own, and those that are data."""
        known = {each.name: each for each in records}
        found = {each.name: each for each in records if not each.definition_digest}
        for name, definition in self._definitions.items():
            merged = definition.merged_with(known.get(name), self._now())
            found[name] = merged or known[name]
        return sorted(found.values(), key=lambda each: each.name)

    def _coming_runs(self, record: contract.Schedule, now: float, *, alone: bool) -> Iterator[PlannedRun]:
        rule = self._rule(record, alone=alone)
        if rule is not None:
            yield from (planned_run(record.name, rule, at) for at in coming_windows(record, rule, now))
        elif alone:
            raise self._no_code(record.name, "plan")
        elif record.next_at is not None:
            yield planned_run(record.name, None, from_ms(record.next_at))

    # -- change

    async def put(self, definition: ScheduleDefinition) -> ScheduleInfo:
        """Create or change a schedule that is data. The same again changes nothing; a new rule starts anew."""
        async with self._recorder.change("put schedule", definition.name) as note:
            info = await self._put(definition)
            note.changed = 1
        return info

    async def create(self, name: str, form: ScheduleForm, task: NewTask) -> ScheduleInfo:
        """Create a schedule that is data. ScheduleConflict: the name is taken."""
        async with self._recorder.change("create schedule", name) as note:
            try:
                check_name(name, "name of the schedule")
            except (TypeError, ValueError) as error:
                raise BadSchedule(str(error)) from None
            info = await self._put(ScheduleDefinition(name, form.as_rule(), task), is_new=True)
            note.changed = 1
        return info

    async def edit(
        self, name: str, form: ScheduleForm, task: NewTask | None = None, *, revision: str | None = None
    ) -> ScheduleInfo:
        """Change the rule of a schedule that is data, and its task if one is given.

        revision: refuse a schedule that has another one by now
        """
        async with self._recorder.change("edit schedule", name) as note:
            record = _find(await self._store.schedules(), name)
            self._check_change(name, record, is_new=False, revision=revision)
            if task is None:
                task = task_of(name, decode_rule(record))
            definition = ScheduleDefinition(name, form.as_rule(), task)
            info = await self._put(definition, revision=revision_of(decode_rule(record)))
            note.changed = 1
        return info

    async def _put(
        self, definition: ScheduleDefinition, *, is_new: bool = False, revision: str | None = None
    ) -> ScheduleInfo:
        name = definition.name
        for _ in range(_MAX_TRIES):
            old = next((each for each in (await self._store.schedules()) if each.name == name), None)
            self._check_change(name, old, is_new=is_new, revision=revision)
            new = definition.merged_with(old, self._now(), data=True)
            if new is not None and new.next_at is None and new.rev == 0:
                raise BadSchedule(f"schedule {name!r} would never run: {definition.schedule!r} has no moment to come")
            if new is not None and old is not None and new.rev == 0:
                new = replace(old, rule=new.rule, definition_digest="", next_at=new.next_at)
            await self._store.put_limits(definition.limits())
            if new is None or (await self._store.put_schedules([new]))[0]:
                return await self.get(name)
        raise _busy(name)

    def _check_change(self, name: str, old: contract.Schedule | None, *, is_new: bool, revision: str | None) -> None:
        if name in self._definitions or (old is not None and old.definition_digest):
            raise ScheduleConflict(f"schedule {name!r} is declared by code: change it there, or take another name")
        if is_new and old is not None:
            raise ScheduleConflict(f"schedule {name!r} exists already: change it, or take another name")
        if revision is None:
            return
        if old is None:
            raise ScheduleNotFound(f"no schedule {name!r}; somebody has deleted it")
        if revision_of(decode_rule(old)) != revision:
            raise ScheduleChanged(f"schedule {name!r} was edited meanwhile: look at it again, then repeat your change")

    async def pause(self, name: str, reason: str = "") -> ScheduleInfo:
        """Stop a schedule until `resume`, also if code declares it again. Tasks that it has added run."""
        text = str(reason).encode("utf-8", "backslashreplace").decode()  # lone surrogates are not JSON

        def change(record: contract.Schedule) -> contract.Schedule:
            try:
                rule = encode_rule(replace(decode_rule(record), reason=text))
            except BadSchedule:  # an invalid schedule can be paused, too
                rule = record.rule
            return replace(record, paused=True, rule=rule)

        async with self._recorder.change("pause schedule", name, reason) as note:
            note.changed = await self._change(name, change)
        return await self.get(name)

    async def resume(self, name: str) -> ScheduleInfo:
        """Resume a schedule with its next window; windows that passed meanwhile are not caught up."""
        passed = 0

        def change(record: contract.Schedule) -> contract.Schedule:
            nonlocal passed
            if not record.paused:
                return record
            rule = self._rule(record)
            now = self._now()
            if rule is None and record.next_at is not None and record.next_at <= now:
                raise self._no_code(name, "resume")
            record, passed = after_resume(record, rule, now)
            return record

        async with self._recorder.change("resume schedule", name) as note:
            note.changed = await self._change(name, change)
        self._observer.windows_skipped(name, "paused", passed)
        return await self.get(name)

    async def run(self, name: str) -> RunNowResult:
        """Add a run now. The next run, last run and run count stay; `overlap` applies as for any window."""
        async with self._recorder.change("run schedule", name) as note:
            record = _find((await self._read())[0], name)
            stored = decode_rule(record)
            policy = replace(stored.policy, reply_to=self._client)
            key = unique_key_for(name, stored)
            new = NewTask(new_uuid(), stored.source, stored.body.encode(), None, 0, stored.lane, key, policy)
            (added,) = await self._store.add([new])
            note.changed = int(added.fresh)
        if added.fresh:
            self._observer.tasks_added((new,))
        return RunNowResult(stored.source, added.uuid, added.fresh)

    async def delete(self, name: str, *, revision: str | None = None) -> None:
        """Delete a schedule that is data, or an orphan. Tasks that it has added run. revision: as in `edit`."""
        async with self._recorder.change("delete schedule", name) as note:
            records, workers = await self._read()
            record = _find(records, name)
            if revision is not None and revision != schedule_info(record, workers).revision:
                raise ScheduleChanged(f"schedule {name!r} was edited meanwhile: look at it again")
            if record.definition_digest and (name in self._definitions or not is_orphan(record, workers)):
                raise ScheduleConflict(
                    f"schedule {name!r} is declared by code and would come back with the next start: "
                    "take it out of the code, or pause it"
                )
            await self._store.delete_schedules([name])
            note.changed = 1

    # -- helpers

    async def _read(
        self, workers: Sequence[WorkerInfo] | None = None
    ) -> tuple[Sequence[contract.Schedule], Sequence[WorkerInfo]]:
        schedules = await self._store.schedules()
        if workers is None:
            workers = await live_workers(self._store)
        return sorted(schedules, key=lambda each: each.name), workers

    async def _change(self, name: str, change: _Change) -> int:
        """Compare-and-set, repeated on the newest record after a conflict. Return 0 if nothing was to be changed."""
        for _ in range(_MAX_TRIES):
            record = _find(await self._store.schedules(), name)
            wanted = change(record)
            if wanted == record:
                return 0
            if (await self._store.put_schedules([wanted]))[0]:
                return 1
        raise _busy(name)

    def _now(self) -> float:
        return store_now(self._store, self._clock)

    def _rule(self, record: contract.Schedule, *, alone: bool = True) -> ScheduleRule | None:
        """alone: raise if it cannot be read; among others it is left out."""
        try:
            return resolve_rule(record.name, decode_rule(record), self._definitions)
        except BadSchedule:
            if alone:
                raise
            return None

    def _no_code(self, name: str, verb: str) -> BadSchedule:
        return BadSchedule(
            f"schedule {name!r} has a rule of its own, and its code is not here to compute it: "
            f"{verb} it where the app is imported, with app.schedules.{verb}({name!r})"
        )


def _find(records: Sequence[contract.Schedule], name: str) -> contract.Schedule:
    found = next((record for record in records if record.name == name), None)
    if found is None:
        known = ", ".join(sorted(record.name for record in records)) or "none"
        raise ScheduleNotFound(f"no schedule {name!r}; there are: {known}")
    return found


def task_of(name: str, stored: StoredRule) -> NewTask:
    """The task that a stored schedule creates. The lane that is its own follows from its rule."""
    lane = None if stored.lane == f"@schedule:{name}" else stored.lane
    return NewTask(new_uuid(), stored.source, stored.body.encode(), None, 0, lane, stored.unique, stored.policy)


def _busy(name: str) -> StoreBusy:
    return StoreBusy(f"schedule {name!r} was changed by others {_MAX_TRIES} times in a row; try again")
