"""Firing schedules: which windows run, as which tasks, and what is next. Compare-and-set, so nobody leads."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from onthedot.clock import Clock, from_ms, to_ms
from onthedot.engine.source import Sources
from onthedot.errors import BadSchedule
from onthedot.limits import joined
from onthedot.observe.logs import Logs
from onthedot.schedule import (
    RuleSchedule,
    Schedule,
    due_windows,
    first_run,
    from_data,
    jitter_of,
    nominal_uuid,
    to_data,
)
from onthedot.stores import contract
from onthedot.stores.contract import Fire, Limit, NewTask, Policy, Store


class _Stored(msgspec.Struct, omit_defaults=True):
    """What a schedule's record holds: enough to fire it without the code, unless the rule is the user's own."""

    source: str
    body: str
    rule: dict[str, Any] | None = None
    lane: str | None = None
    unique: str | None = None
    policy: Policy = contract.DEFAULT


@dataclass(frozen=True)
class Plan:
    """A schedule that this process's code declares."""

    name: str
    schedule: Schedule
    task: NewTask

    def __post_init__(self) -> None:
        if self.schedule.overlap != "queue":
            return
        if self.task.lane is not None:
            raise BadSchedule(
                f"schedule {self.name!r}: overlap='queue' lines its runs up on a lane, and the limits of its task put "
                f"it on another, {self.task.lane!r}; a task takes one lane: drop those limits, or say overlap='skip'"
            )
        object.__setattr__(self, "task", replace(self.task, lane=f"@schedule:{self.name}"))

    def limits(self) -> list[Limit]:
        """For overlap="queue": one run at a time, and the windows that come meanwhile wait in their order."""
        return [Limit(f"@schedule:{self.name}", cap=1)] if self.schedule.overlap == "queue" else []

    def record(self, now: float) -> contract.Schedule:
        own = isinstance(self.schedule, RuleSchedule)
        first = first_run(self.schedule, from_ms(now))
        task = self.task
        rule = None if own else to_data(self.schedule)
        stored = msgspec.json.encode(
            _Stored(task.source, task.body.decode(), rule, task.lane, task.unique, task.policy)
        )
        said = [task.source, task.body.decode(), repr(self.schedule) if own else rule]
        digest = hashlib.sha256(msgspec.json.encode(said)).hexdigest()
        return contract.Schedule(self.name, stored, digest, None if first is None else to_ms(first))


class Firing:
    """Declares what code says at start, and fires what is due."""

    def __init__(self, store: Store, sources: Sources, plans: Mapping[str, Plan], clock: Clock, logs: Logs) -> None:
        self._store = store
        self._sources = sources
        self._told: set[str] = set()
        self._plans = plans
        self._clock = clock
        self._logs = logs

    async def declare(self) -> None:
        """Limits and schedules, as code says them now; repeated when a source comes later."""
        now = self._clock.now()
        plans = dict(self._plans)
        said = [limit for name, source in self._sources.items() for limit in source.limits(name)]
        limits = joined([*said, *(limit for plan in plans.values() for limit in plan.limits())])
        limits += await self._said_no_more({limit.name for limit in limits})
        await self._store.put([plan.record(now) for plan in plans.values()], limits)
        new = plans.keys() - self._told
        if not new:
            return
        self._told |= new
        stored = {record.name: record for record in (await self._store.state())[0]}
        for name in new:
            next_at = stored[name].next_at
            shown = "never" if next_at is None else from_ms(next_at).isoformat()
            self._logs.scheduler.info("Schedule registered: %s next %s", name, shown)

    async def _said_no_more(self, names: set[str]) -> list[Limit]:
        """What earlier code said of these sources and today's does not: else the old limit would hold for ever."""
        known, (_, limits, _) = self._sources.known, await self._store.state()
        ours = [limit for limit in limits if limit.by == "code" and limit.name.partition("/")[0] in known]
        return [Limit(limit.name) for limit in ours if limit.name not in names and limit != Limit(limit.name)]

    async def fire(self, due: Sequence[contract.Schedule]) -> bool:
        """True: something moved, so look again."""
        decided = [each for record in due if (each := self._decide(record)) is not None]
        if not decided:
            return False
        answers = await self._store.fire([fire for fire, _ in decided])
        fired = [each for each, stood in zip(decided, answers, strict=True) if stood]
        for fire, missed in fired:
            if fire.last_at is not None:
                self._logs.scheduler.info("[due] schedule %s at %s", fire.name, from_ms(fire.last_at).isoformat())
            self._logs.skipped(fire.name, "grace", missed)
        await self._tell_tasks([fire for fire, _ in fired])
        return True

    async def _tell_tasks(self, fires: Sequence[Fire]) -> None:
        """A window whose key an earlier run still holds has added nothing."""
        keyed = [(fire.name, task.uuid) for fire in fires for task in fire.tasks if task.unique is not None]
        found = await self._store.get([uuid for _, uuid in keyed])
        missing = {uuid: name for (name, uuid), record in zip(keyed, found, strict=True) if record is None}
        self._logs.queued([task for fire in fires for task in fire.tasks if task.uuid not in missing])
        for name, count in Counter(missing.values()).items():
            self._logs.skipped(name, "overlap", count)

    def resumed(self, record: contract.Schedule) -> contract.Schedule:
        """As it goes on after a pause: the windows that passed meanwhile are not caught up."""
        if record.next_at is not None and (rule := self._rule(record)) is not None:
            windows = due_windows(rule, from_ms(record.next_at), from_ms(self._clock.now()), "none", grace=0)
            record = replace(record, next_at=None if windows.next_at is None else to_ms(windows.next_at))
            self._logs.skipped(record.name, "paused", windows.skipped + len(windows.run))
        return replace(record, paused=False)

    def _rule(self, record: contract.Schedule) -> Schedule | None:
        plan = self._plans.get(record.name)
        if plan is not None:
            return plan.schedule
        stored = _stored(record)
        if record.declared or stored.rule is None:
            return None  # another process's code declares it: a worker that has the code fires it
        return from_data(stored.rule)

    def _decide(self, record: contract.Schedule) -> tuple[Fire, int] | None:
        """What to fire, and how many windows were missed for good."""
        rule = self._rule(record)
        if rule is None:
            return None
        assert record.next_at is not None
        windows = due_windows(rule, from_ms(record.next_at), from_ms(self._clock.now()), rule.catch_up, rule.grace)
        stored = _stored(record)
        tasks = tuple(_task(record.name, stored, rule, nominal) for nominal in windows.run)
        next_at = None if windows.next_at is None else to_ms(windows.next_at)
        last_at = to_ms(windows.run[-1]) if windows.run else None
        return Fire(record.name, record.rev, tasks, next_at, last_at), windows.skipped


def _stored(record: contract.Schedule) -> _Stored:
    return msgspec.json.decode(record.rule, type=_Stored)


def _task(name: str, stored: _Stored, rule: Schedule, nominal: datetime) -> NewTask:
    at = to_ms(nominal)
    body = msgspec.json.decode(stored.body)
    body["for"] = at
    unique = stored.unique
    if unique is None and rule.overlap == "skip":
        unique = f"schedule:{name}"  # one at a time: while it lives, the next window adds nothing
    jitter = jitter_of(name, at, rule.jitter) if rule.jitter else 0
    return NewTask(
        nominal_uuid(name, at),
        stored.source,
        msgspec.json.encode(body),
        at + jitter,
        0,
        stored.lane,
        unique,
        stored.policy,
    )
