"""A schedule as code defines it: its name, its rule and its task."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil

import msgspec
from msgspec.structs import replace

from onthedot.clock.epoch import from_ms, to_optional_ms
from onthedot.errors import BadSchedule
from onthedot.schedules.rules import IntervalSchedule, RuleSchedule, ScheduleRule, from_data, to_data
from onthedot.schedules.stored_rule import StoredRule, decode_rule, encode_rule
from onthedot.schedules.windows import first_run
from onthedot.stores import contract
from onthedot.stores.contract import Limit, NewTask

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # in the repr of an object: another one in every process


@dataclass(frozen=True)
class ScheduleDefinition:
    """A schedule and the task that it creates: declared by code, or put at run time."""

    name: str
    schedule: ScheduleRule
    task: NewTask

    def __post_init__(self) -> None:
        if self.schedule.overlap == "queue" and self.task.lane is not None:
            raise BadSchedule(
                f"schedule {self.name!r}: overlap='queue' lines its runs up on a lane, and the limits of its task put "
                f"it on another, {self.task.lane!r}; a task takes one lane: drop those limits, or use overlap='skip'"
            )
        if self._needs_lane and self.task.lane is None:
            object.__setattr__(self, "task", replace(self.task, lane=self._lane))

    @property
    def _lane(self) -> str:
        return f"@schedule:{self.name}"

    @property
    def _needs_lane(self) -> bool:
        """Whether several windows may be pending and must run one at a time."""
        return self.schedule.overlap == "queue" or (self.schedule.overlap == "skip" and self.schedule.catch_up == "all")

    def limits(self) -> list[Limit]:
        """One run at a time; windows that come meanwhile wait in their order."""
        if self.task.lane != self._lane:
            return []
        return [Limit(self._lane, cap=1)]

    @cached_property
    def digest(self) -> str:
        """Changes with the task or the rule, which then starts with a fresh next run; not with the other options."""
        rule = _custom_text(self.schedule) if isinstance(self.schedule, RuleSchedule) else to_data(self.schedule)
        identity = [self.task.source, self.task.body.decode(), rule]
        return hashlib.sha256(msgspec.json.encode(identity)).hexdigest()

    def merged_with(self, old: contract.Schedule | None, now: float, *, data: bool = False) -> contract.Schedule | None:
        """The record to store over the old one; None if nothing changes. data: put at run time, not declared."""
        now = ceil(now)  # once for anchor and first run: a difference of a millisecond would be a window more
        new = self._stored(now)
        digest = "" if data else self.digest
        if old is None:
            return contract.Schedule(self.name, encode_rule(new), digest, self._first(now))
        try:
            before = decode_rule(old)
        except BadSchedule:
            return replace(old, rule=encode_rule(new), definition_digest=digest, next_at=self._first(now))
        new = replace(new, reason=before.reason, skipped=before.skipped)
        if old.definition_digest == digest and (not data or _identity(before) == _identity(new)):
            rule = encode_rule(replace(new, rule=before.rule))  # keeps the anchor of an interval
            if rule == old.rule:
                return None
            return replace(old, rule=rule)
        return contract.Schedule(self.name, encode_rule(new), digest, self._first(now))

    def _first(self, now: float) -> int | None:
        return to_optional_ms(first_run(self.schedule, from_ms(now)))

    def _stored(self, now: float) -> StoredRule:
        task = self.task
        rule = self.schedule
        data: dict[str, object] | None = None
        shown = ""
        if isinstance(rule, IntervalSchedule):
            rule = rule.with_anchor(from_ms(now))
        if isinstance(rule, RuleSchedule):
            shown = _custom_text(rule.rule)
        else:
            data = to_data(rule)
        return StoredRule(
            task.source,
            task.body.decode(),
            data,
            shown,
            rule.overlap,
            task.lane,
            task.unique,
            replace(task.policy, reply_to=None),  # no caller waits for the runs of a schedule
        )


def _custom_text(rule: object) -> str:
    return _ADDRESS.sub("", repr(rule))


def _identity(stored: StoredRule) -> tuple[object, ...]:
    rule = {name: value for name, value in (stored.rule or {}).items() if name != "anchor"}
    return stored.source, stored.body, rule


def resolve_rule(name: str, stored: StoredRule, definitions: Mapping[str, ScheduleDefinition]) -> ScheduleRule | None:
    """The rule as it is stored, a custom one from its definition; None if that is not among these."""
    if stored.rule is not None:
        return from_data(stored.rule)
    definition = definitions.get(name)
    if definition is None or not isinstance(definition.schedule, RuleSchedule):
        return None
    return definition.schedule
