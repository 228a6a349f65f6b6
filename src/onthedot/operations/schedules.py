"""Schedules, looked at and changed: over the store contract alone, without the code that declared them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import merge
from itertools import islice, takewhile
from typing import Any, Literal, NamedTuple, TypeAlias

from msgspec.structs import replace

from onthedot.clock.epoch import from_ms
from onthedot.clock.protocol import Clock
from onthedot.clock.system import SystemClock
from onthedot.codec.body import NO_HEADERS, Headers, Undecodable
from onthedot.codec.untyped import decode_untyped
from onthedot.errors import BadSchedule, StoreBusy, TaskNotFound
from onthedot.model.uuid7 import new_uuid
from onthedot.observability.logs import LogObserver
from onthedot.operations.schedule_preview import HOUR, PlannedRun, coming, count_by_hour, run_at
from onthedot.operations.workers import WorkerInfo, worker_info
from onthedot.schedules.definition import ScheduleDefinition, resolve_rule
from onthedot.schedules.rules import ScheduleRule
from onthedot.schedules.stored_rule import (
    StoredRule,
    after_resume,
    decode_rule,
    encode_rule,
    rule_text,
    store_now,
    unique_key_for,
)
from onthedot.stores import contract
from onthedot.stores.contract import NewTask, Store

_TRIES = 10  # at a compare-and-set that others were faster at


class ScheduleNotFound(TaskNotFound):
    """No schedule has this name."""


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """All that is known of a schedule."""

    name: str
    source: str
    rule: str  # in words
    enabled: bool  # not paused
    next_run: datetime | None  # None: it is over
    last_run: datetime | None
    run_count: int
    owner: Literal["code", "data"]
    orphan: bool = False  # code has declared it, but that of no worker that runs: it does not fire
    reason: str = ""  # why it is paused, an orphan or broken, or that nobody would run its tasks
    args: Mapping[str, object] = field(default_factory=dict[str, object])
    options: Mapping[str, object] = field(default_factory=dict[str, object])
    skipped: Mapping[str, int] = field(default_factory=dict[str, int])  # windows that did not run, by reason


class RunNowResult(NamedTuple):
    """What `run` has added; not fresh: the run that was alive already."""

    source: str
    uuid: str
    fresh: bool


Infos: TypeAlias = list[ScheduleInfo]
Runs: TypeAlias = list[PlannedRun]
_Change: TypeAlias = Callable[[contract.Schedule], contract.Schedule]


class ScheduleOperations:
    """plans: those whose code is in this process, so that rules of the user's own can be computed."""

    def __init__(
        self,
        store: Store,
        client: str,
        clock: Clock | None = None,
        logs: LogObserver | None = None,
        plans: Mapping[str, ScheduleDefinition] | None = None,
    ) -> None:
        self._store = store
        self._client = client
        self._clock = clock or SystemClock()
        self._logs = logs or LogObserver(None)
        self._plans: Mapping[str, ScheduleDefinition] = {} if plans is None else plans

    # -- looking

    async def get(self, name: str) -> ScheduleInfo:
        records, workers = await self._look()
        return _info(_named(records, name), workers)

    async def list(self) -> Infos:
        """By name."""
        records, workers = await self._look()
        return [_info(record, workers) for record in records]

    async def plan(
        self, name: str | None = None, *, hours: float = 24, until: datetime | None = None, limit: int = 1000
    ) -> Runs:
        """The next runs, in order: of one schedule, or of all that fire.

        A rule of the user's own tells more than its next run only where its code is.
        """
        records, now = await self._planned(name), self._now()
        end = from_ms(now) + timedelta(hours=hours) if until is None else until
        each = [self._coming(record, now, alone=name is not None) for record in records]
        merged = merge(*each, key=lambda run: (run.at, run.name))
        return [*islice(takewhile(lambda run: run.at <= end, merged), limit)]

    async def load(self, name: str | None = None, *, hours: int = 24) -> Sequence[tuple[datetime, int]]:
        """How many runs there are in each hour, from the one that has begun: of one schedule, or of all that fire."""
        records, now = await self._planned(name), self._now()
        begin = from_ms(now).replace(minute=0, second=0, microsecond=0)
        total = [0] * hours
        for record in records:
            rule = self._rule(record, alone=name is not None)
            if rule is not None:
                counts = count_by_hour(record, rule, now, hours)
                total = [sum(pair) for pair in zip(total, counts, strict=True)]
        return [(begin + hour * HOUR, count) for hour, count in enumerate(total)]

    async def _planned(self, name: str | None) -> Sequence[contract.Schedule]:
        records, workers = await self._look()
        if name is not None:
            return [_named(records, name)]
        return [each for each in records if not each.paused and not (workers and _is_orphan(each, workers))]

    def _coming(self, record: contract.Schedule, now: float, *, alone: bool) -> Iterator[PlannedRun]:
        rule = self._rule(record, alone=alone)
        if rule is not None:
            yield from (run_at(record.name, rule, at) for at in coming(record, rule, now))
        elif alone:
            raise self._not_here(record.name, "plan")
        elif record.next_at is not None:
            yield run_at(record.name, None, from_ms(record.next_at))

    # -- changing

    async def put(self, plan: ScheduleDefinition) -> ScheduleInfo:
        """Makes or changes one that is data. The same again changes nothing; another rule begins afresh."""
        name = plan.name
        for _ in range(_TRIES):
            old = next((each for each in (await self._store.schedules()) if each.name == name), None)
            if name in self._plans or (old is not None and old.definition_digest):
                raise BadSchedule(f"schedule {name!r} is declared by code: change it there, or take another name")
            new = plan.merged_with(old, self._now(), data=True)
            if new is not None and new.next_at is None and new.rev == 0:
                raise BadSchedule(f"schedule {name!r} would never run: {plan.schedule!r} has no moment to come")
            await self._store.put_limits(plan.limits())
            if new is None or (await self._store.put_schedules([new]))[0]:
                return await self.get(name)
        raise _busy(name)

    async def pause(self, name: str, reason: str = "") -> ScheduleInfo:
        """It does not fire until `resume`, whatever code says; what it has added runs."""
        why = str(reason).encode("utf-8", "backslashreplace").decode()  # lone surrogates are not JSON

        def change(record: contract.Schedule) -> contract.Schedule:
            try:
                rule = encode_rule(replace(decode_rule(record), reason=why))
            except BadSchedule:  # it may be paused because of that
                rule = record.rule
            return replace(record, paused=True, rule=rule)

        await self._change(name, change)
        return await self.get(name)

    async def resume(self, name: str) -> ScheduleInfo:
        """It goes on with its next window: those that passed meanwhile are not caught up."""
        passed = 0

        def change(record: contract.Schedule) -> contract.Schedule:
            nonlocal passed
            if not record.paused:
                return record
            rule, now = self._rule(record), self._now()
            if rule is None and record.next_at is not None and record.next_at <= now:
                raise self._not_here(name, "resume")
            record, passed = after_resume(record, rule, now)
            return record

        await self._change(name, change)
        self._logs.windows_skipped(name, "paused", passed)
        return await self.get(name)

    async def run(self, name: str) -> RunNowResult:
        """Adds a run now. Its next run, last run and run count stay; `overlap` holds as for any window."""
        record = _named((await self._look())[0], name)
        stored = decode_rule(record)
        policy = replace(stored.policy, reply_to=self._client)
        key = unique_key_for(name, stored)
        new = NewTask(new_uuid(), stored.source, stored.body.encode(), None, 0, stored.lane, key, policy)
        (added,) = await self._store.add([new])
        if added.fresh:
            self._logs.tasks_added((new,))
        return RunNowResult(stored.source, added.uuid, added.fresh)

    async def delete(self, name: str) -> None:
        """One that is data, or an orphan. What it has added runs."""
        records, workers = await self._look()
        record = _named(records, name)
        if record.definition_digest and (name in self._plans or not _is_orphan(record, workers)):
            raise BadSchedule(
                f"schedule {name!r} is declared by code and would come back with the next start: "
                "take it out of the code, or pause it"
            )
        await self._store.delete_schedules([name])

    # -- below

    async def _look(self) -> tuple[Sequence[contract.Schedule], Sequence[WorkerInfo]]:
        schedules = await self._store.schedules()
        sessions = await self._store.sessions()
        workers = [worker_info(name, info, 0) for name, info in sessions.items()]
        return sorted(schedules, key=lambda each: each.name), workers

    async def _change(self, name: str, change: _Change) -> None:
        """Compare-and-set: whoever was faster is looked at again."""
        for _ in range(_TRIES):
            record = _named((await self._store.schedules()), name)
            wanted = change(record)
            if wanted == record or (await self._store.put_schedules([wanted]))[0]:
                return
        raise _busy(name)

    def _now(self) -> float:
        return store_now(self._store, self._clock)

    def _rule(self, record: contract.Schedule, *, alone: bool = True) -> ScheduleRule | None:
        """Among others, one that cannot be read is left out."""
        try:
            return resolve_rule(record.name, decode_rule(record), self._plans)
        except BadSchedule:
            if alone:
                raise
            return None

    def _not_here(self, name: str, verb: str) -> BadSchedule:
        return BadSchedule(
            f"schedule {name!r} has a rule of its own, and its code is not here to compute it: "
            f"{verb} it where the app is imported, with app.schedules.{verb}({name!r})"
        )


def _named(records: Sequence[contract.Schedule], name: str) -> contract.Schedule:
    found = next((record for record in records if record.name == name), None)
    if found is None:
        known = ", ".join(sorted(record.name for record in records)) or "none"
        raise ScheduleNotFound(f"no schedule {name!r}; there are: {known}")
    return found


def _busy(name: str) -> StoreBusy:
    return StoreBusy(f"schedule {name!r} was changed by others {_TRIES} times in a row; try again")


def _is_orphan(record: contract.Schedule, workers: Sequence[WorkerInfo]) -> bool:
    return bool(record.definition_digest) and not any(record.name in worker.schedules for worker in workers)


def _nobody(record: contract.Schedule, source: str, workers: Sequence[WorkerInfo]) -> str:
    """Who is missing, in words."""
    if not workers:
        return "no worker is running"
    if _is_orphan(record, workers):
        return "no worker that runs declares it any more"
    known = any(source in worker.sources for worker in workers)
    return "" if known else f"no worker that runs knows its source {source!r}"


def _info(record: contract.Schedule, workers: Sequence[WorkerInfo]) -> ScheduleInfo:
    stored, rule, broken = StoredRule("", ""), "?", ""
    try:
        stored = decode_rule(record)
        rule = rule_text(stored)
    except BadSchedule as error:
        broken = str(error)
    args, headers = _body(stored)
    return ScheduleInfo(
        name=record.name,
        source=stored.source,
        rule=rule,
        enabled=not record.paused,
        next_run=None if record.next_at is None else from_ms(record.next_at),
        last_run=None if record.last_at is None else from_ms(record.last_at),
        run_count=record.runs,
        owner="code" if record.definition_digest else "data",
        orphan=_is_orphan(record, workers),
        reason="; ".join(filter(None, (broken, stored.reason, _nobody(record, stored.source, workers)))),
        args=args,
        options=_options(stored, headers),
        skipped=stored.skipped,
    )


def _body(stored: StoredRule) -> tuple[dict[str, object], Headers]:
    try:
        return decode_untyped(stored.body.encode())
    except Undecodable:
        return {}, NO_HEADERS


def _options(stored: StoredRule, headers: Headers) -> dict[str, object]:
    """What differs from the defaults, and the four that say what becomes of a window."""
    said: dict[str, Any] = {"catch_up": "latest", "grace": 60.0} | dict(stored.rule or {})
    policy = stored.policy
    options: dict[str, object] = {"overlap": stored.overlap, "catch_up": said["catch_up"], "grace": said["grace"]}
    options |= {name: said[name] for name in ("jitter", "start", "end", "tz") if name in said}
    options |= {"priority": policy.priority}
    more = {
        "expires": None if policy.expires is None else policy.expires / 1000,
        "tags": list(policy.tags),
        "unique": stored.unique,
        "label": headers.label,
        "metadata": dict(headers.metadata or {}),
    }
    return options | {name: value for name, value in more.items() if value}
