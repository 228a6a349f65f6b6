"""A schedule as it is stored: its rule and the task it makes, to be read without the code that declared it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from math import ceil
from typing import Any

import msgspec
from msgspec.structs import replace

from onthedot.clock.clock import Clock, from_ms, to_ms
from onthedot.errors import BadSchedule
from onthedot.schedules.rules import (
    IntervalSchedule,
    Overlap,
    RuleSchedule,
    ScheduleRule,
    due_windows,
    first_run,
    from_data,
    jitter_of,
    nominal_uuid,
    to_data,
)
from onthedot.stores import contract
from onthedot.stores.contract import Limit, NewTask, Policy, Store

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class StoredRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a schedule's record holds: enough to fire it without the code, unless the rule is the user's own."""

    source: str
    body: str
    rule: dict[str, Any] | None = None  # None: of the user's own; only the code that has it can compute it
    shown: str = ""  # such a rule, in words
    overlap: Overlap = "skip"
    lane: str | None = None
    unique: str | None = None
    policy: Policy = contract.DEFAULT
    reason: str = ""  # it is paused: an operator's words
    skipped: dict[str, int] = {}  # windows that did not run, by reason


@dataclass(frozen=True)
class ScheduleDefinition:
    """A schedule and the task it makes: declared by code, or put at run time."""

    name: str
    schedule: ScheduleRule
    task: NewTask

    def __post_init__(self) -> None:
        if self.schedule.overlap == "queue" and self.task.lane is not None:
            raise BadSchedule(
                f"schedule {self.name!r}: overlap='queue' lines its runs up on a lane, and the limits of its task put "
                f"it on another, {self.task.lane!r}; a task takes one lane: drop those limits, or say overlap='skip'"
            )
        if self._lines_up and self.task.lane is None:
            object.__setattr__(self, "task", replace(self.task, lane=f"@schedule:{self.name}"))

    @property
    def _lines_up(self) -> bool:
        """Also where windows that were missed all run, although one at a time is what overlap="skip" means."""
        return self.schedule.overlap == "queue" or (self.schedule.overlap == "skip" and self.schedule.catch_up == "all")

    def limits(self) -> list[Limit]:
        """One run at a time, and the windows that come meanwhile wait in their order."""
        lane = f"@schedule:{self.name}"
        return [Limit(lane, cap=1)] if self.task.lane == lane else []

    @cached_property
    def digest(self) -> str:
        """Of what makes it another schedule, with a fresh next run; the rest of its options may change meanwhile."""
        own = isinstance(self.schedule, RuleSchedule)
        rule = _ADDRESS.sub("", repr(self.schedule)) if own else to_data(self.schedule)
        said = [self.task.source, self.task.body.decode(), rule]
        return hashlib.sha256(msgspec.json.encode(said)).hexdigest()

    def merged_with(self, old: contract.Schedule | None, now: float, *, data: bool = False) -> contract.Schedule | None:
        """What is to be put over the record that is there; None: it is so already."""
        new, declared = self._stored(now), "" if data else self.digest
        if old is None:
            return contract.Schedule(self.name, write(new), declared, self._first(now))
        try:
            before = read(old)
        except BadSchedule:
            return replace(old, rule=write(new), definition_digest=declared, next_at=self._first(now))
        new = replace(new, reason=before.reason, skipped=before.skipped)
        if old.definition_digest == declared and (not data or _same(before, new)):
            rule = write(replace(new, rule=before.rule))  # its grid stays where it was
            return None if rule == old.rule else replace(old, rule=rule)
        return contract.Schedule(self.name, write(new), declared, self._first(now))

    def _first(self, now: float) -> int | None:
        first = first_run(self.schedule, from_ms(now))
        return None if first is None else to_ms(first)

    def _stored(self, now: float) -> StoredRule:
        rule, task = self.schedule, self.task
        if isinstance(rule, IntervalSchedule):
            rule = rule.with_anchor(from_ms(ceil(now)))
        own = isinstance(rule, RuleSchedule)
        return StoredRule(
            task.source,
            task.body.decode(),
            None if own else to_data(rule),
            _ADDRESS.sub("", repr(rule.rule)) if isinstance(rule, RuleSchedule) else "",
            rule.overlap,
            task.lane,
            task.unique,
            replace(task.policy, reply_to=None),  # nobody waits for the runs of a schedule
        )


def _same(one: StoredRule, two: StoredRule) -> bool:
    def said(stored: StoredRule) -> tuple[object, ...]:
        rule = {name: value for name, value in (stored.rule or {}).items() if name != "anchor"}
        return stored.source, stored.body, rule

    return said(one) == said(two)


_decode = msgspec.json.Decoder(StoredRule).decode
_encode = msgspec.json.Encoder().encode


def write(stored: StoredRule) -> bytes:
    return _encode(stored)


def read(record: contract.Schedule) -> StoredRule:
    try:
        return _decode(record.rule)
    except msgspec.MsgspecError as error:
        raise BadSchedule(f"schedule {record.name!r}: what is stored of it cannot be read: {error}") from error


def rule_of(name: str, stored: StoredRule, plans: Mapping[str, ScheduleDefinition]) -> ScheduleRule | None:
    """As it is stored; None: it is a rule of the user's own, and these plans do not have it."""
    if stored.rule is not None:
        return from_data(stored.rule)
    plan = plans.get(name)
    return plan.schedule if plan is not None and isinstance(plan.schedule, RuleSchedule) else None


def task_for_window(
    name: str, stored: StoredRule, rule: ScheduleRule, nominal: datetime, *, missed: bool = False, ahead: float = 0
) -> NewTask:
    """The task of a window: the same, whoever makes it. missed: it is caught up.

    ahead: of the store's clock, if moments are told to it by another, which has jumped.
    """
    at = to_ms(nominal)
    body = msgspec.json.decode(stored.body)
    body["for"] = at
    jitter = jitter_of(name, at, rule.jitter) if rule.jitter else 0
    unique = unique_key_for(name, stored, all_run=missed and rule.catch_up == "all")
    uuid, body = nominal_uuid(name, at), msgspec.json.encode(body)
    return NewTask(uuid, stored.source, body, ceil(at + jitter + ahead), 0, stored.lane, unique, stored.policy)


def unique_key_for(name: str, stored: StoredRule, *, all_run: bool = False) -> str | None:
    """One at a time: while a task with this key lives, the next window adds nothing. all_run: it does."""
    if stored.unique is not None or stored.overlap != "skip" or all_run:
        return stored.unique
    return f"schedule:{name}"


def after_resume(record: contract.Schedule, rule: ScheduleRule | None, now: float) -> tuple[contract.Schedule, int]:
    """As it goes on after a pause, and how many windows passed meanwhile: they are not caught up."""
    passed = 0
    if record.next_at is not None and rule is not None:
        windows = due_windows(rule, from_ms(record.next_at), from_ms(now), "none", grace=0)
        passed = windows.skipped + len(windows.run)
        record = replace(record, next_at=None if windows.next_at is None else to_ms(windows.next_at))
    stored = with_skipped(read(record), "paused", passed)
    return replace(record, paused=False, rule=write(replace(stored, reason=""))), passed


def with_skipped(stored: StoredRule, reason: str, windows: int) -> StoredRule:
    """With so many windows more that did not run."""
    if not windows:
        return stored
    return replace(stored, skipped=stored.skipped | {reason: stored.skipped.get(reason, 0) + windows})


def store_now(store: Store, clock: Clock) -> float:
    """Now, as near to the store's own clock as one can say from outside."""
    return clock.now() + (0.0 if not store.traits.shared else clock.wall_clock_jump())


_UNITS = (("day", 86_400.0), ("h", 3600.0), ("min", 60.0))


def rule_text(stored: StoredRule) -> str:
    """The rule, as people read it.

    >>> rule_text(Stored("send", "{}", {"type": "interval", "interval": 5400}))
    'every 90 min'
    """
    said = stored.rule
    if said is None:
        return stored.shown
    from_data(said)  # refuses what cannot be read
    match said["type"]:
        case "interval":
            text = f"every {_span(float(said['interval']))}"
        case "cron":
            text = f"{said['expr']} ({said.get('tz', 'UTC')})"
        case "daily":
            days = f" {', '.join(said['weekdays'])}" if said.get("weekdays") else ""
            text = f"daily {said['at']}{days} ({said.get('tz', 'UTC')})"
        case _:
            text = f"once {said['at']}"
    bounds = [f"{word} {said[name]}" for name, word in (("start", "from"), ("end", "until")) if name in said]
    jitter = [f"up to {_span(float(said['jitter']))} later"] if "jitter" in said else []
    return ", ".join([text, *bounds, *jitter])


def _span(seconds: float) -> str:
    for unit, size in _UNITS:
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}{'s' if unit == 'day' and seconds > size else ''}"
    return f"{seconds:g} s"
