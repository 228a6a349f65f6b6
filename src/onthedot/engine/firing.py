"""Firing schedules: which windows run, as which tasks, and what is next. Compare-and-set, so nobody leads."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from onthedot.clock import Clock, from_ms, to_ms
from onthedot.engine.source import Sources
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
from onthedot.stores.contract import Fire, NewTask, Policy, Store


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
        limits = [limit for source in self._sources for limit in source.limits()]
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

    async def fire(self, due: Sequence[contract.Schedule]) -> bool:
        """True: something moved, so look again."""
        fires = [fire for record in due if (fire := self._fire(record)) is not None]
        if not fires:
            return False
        for fire, stood in zip(fires, await self._store.fire(fires), strict=True):
            if stood and fire.last_at is not None:
                self._logs.scheduler.info("[due] schedule %s at %s", fire.name, from_ms(fire.last_at).isoformat())
        return True

    def _fire(self, record: contract.Schedule) -> Fire | None:
        stored = msgspec.json.decode(record.rule, type=_Stored)
        plan = self._plans.get(record.name)
        if plan is not None:
            rule: Schedule = plan.schedule
        elif record.declared or stored.rule is None:
            return None  # another process's code declares it: a worker that has the code fires it
        else:
            rule = from_data(stored.rule)
        assert record.next_at is not None
        windows = due_windows(rule, from_ms(record.next_at), from_ms(self._clock.now()), rule.catch_up, rule.grace)
        tasks = tuple(_task(record.name, stored, rule, nominal) for nominal in windows.run)
        next_at = None if windows.next_at is None else to_ms(windows.next_at)
        last_at = to_ms(windows.run[-1]) if windows.run else None
        return Fire(record.name, record.rev, tasks, next_at, last_at)


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
