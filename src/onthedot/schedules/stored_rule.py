"""A schedule as it is stored: its rule and its task, readable without the code that declared it."""

from __future__ import annotations

from datetime import datetime
from math import ceil
from typing import Any

import msgspec
from msgspec.structs import replace

from onthedot.clock.epoch import from_ms, to_ms, to_optional_ms
from onthedot.clock.protocol import Clock
from onthedot.errors import BadSchedule
from onthedot.schedules.rules import Overlap, ScheduleRule, from_data
from onthedot.schedules.windows import due_windows, jitter_ms, nominal_uuid
from onthedot.stores import contract
from onthedot.stores.contract import NewTask, Policy, Store


class StoredRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """The rule in a schedule's record: enough to fire it without its code, unless the rule is a custom object."""

    source: str
    body: str
    rule: dict[str, Any] | None = None  # None: a custom rule, which only its code can compute
    shown: str = ""  # a custom rule, as text
    overlap: Overlap = "skip"
    lane: str | None = None
    unique: str | None = None
    policy: Policy = contract.DEFAULT
    reason: str = ""  # why an operator paused it
    skipped: dict[str, int] = {}  # windows that did not run, by reason


_decode = msgspec.json.Decoder(StoredRule).decode
_encode = msgspec.json.Encoder().encode


def encode_rule(stored: StoredRule) -> bytes:
    return _encode(stored)


def decode_rule(record: contract.Schedule) -> StoredRule:
    try:
        return _decode(record.rule)
    except msgspec.MsgspecError as error:
        raise BadSchedule(f"schedule {record.name!r}: what is stored of it cannot be read: {error}") from error


def task_for_window(
    name: str, stored: StoredRule, rule: ScheduleRule, nominal: datetime, *, missed: bool = False, ahead: float = 0
) -> NewTask:
    """The task of a window: every process creates the same.

    missed: the window is caught up. ahead: milliseconds by which the wall clock is ahead of the store's clock.
    """
    at = to_ms(nominal)
    body = msgspec.json.decode(stored.body)
    body["for"] = at
    jitter = jitter_ms(name, at, rule.jitter) if rule.jitter else 0
    return NewTask(
        nominal_uuid(name, at),
        stored.source,
        msgspec.json.encode(body),
        ceil(at + jitter + ahead),
        0,
        stored.lane,
        unique_key_for(name, stored, all_run=missed and rule.catch_up == "all"),
        stored.policy,
    )


def unique_key_for(name: str, stored: StoredRule, *, all_run: bool = False) -> str | None:
    """With overlap="skip", the key of a running window, so that the next one adds nothing. all_run: it does add."""
    if stored.unique is not None or stored.overlap != "skip" or all_run:
        return stored.unique
    return f"schedule:{name}"


def after_resume(record: contract.Schedule, rule: ScheduleRule | None, now: float) -> tuple[contract.Schedule, int]:
    """The record after a pause, and the number of windows in it, which are not caught up."""
    passed = 0
    if record.next_at is not None and rule is not None:
        windows = due_windows(rule, from_ms(record.next_at), from_ms(now), "none", grace=0)
        passed = windows.skipped + len(windows.run)
        record = replace(record, next_at=to_optional_ms(windows.next_at))
    stored = with_skipped(decode_rule(record), "paused", passed)
    return replace(record, paused=False, rule=encode_rule(replace(stored, reason=""))), passed


def with_skipped(stored: StoredRule, reason: str, windows: int) -> StoredRule:
    """The rule with so many more windows that did not run for this reason."""
    if not windows:
        return stored
    return replace(stored, skipped=stored.skipped | {reason: stored.skipped.get(reason, 0) + windows})


def store_now(store: Store, clock: Clock) -> float:
    """Now by the store's clock, as precisely as it is known without a call."""
    if not store.traits.shared:
        return clock.now()
    return clock.now() + clock.wall_clock_jump()


_UNITS = (("day", 86_400.0), ("h", 3600.0), ("min", 60.0))


def rule_text(stored: StoredRule) -> str:
    """The rule as text for people.

    >>> rule_text(StoredRule("send", "{}", {"type": "interval", "interval": 5400}))
    'every 90 min'
    """
    data = stored.rule
    if data is None:
        return stored.shown
    from_data(data)  # raises if it cannot be read
    match data["type"]:
        case "interval":
            text = f"every {_span(float(data['interval']))}"
        case "cron":
            text = f"{data['expr']} ({data.get('tz', 'UTC')})"
        case "daily":
            at = " ".join(filter(None, (data["at"], ", ".join(data.get("weekdays") or ()))))
            text = f"daily {at} ({data.get('tz', 'UTC')})"
        case "once":
            text = f"once {data['at']}"
        case kind:
            raise BadSchedule(f"{kind!r} is no kind of schedule rule")
    parts = [text]
    if "start" in data:
        parts.append(f"from {data['start']}")
    if "end" in data:
        parts.append(f"until {data['end']}")
    if "jitter" in data:
        parts.append(f"up to {_span(float(data['jitter']))} later")
    return ", ".join(parts)


def _span(seconds: float) -> str:
    for unit, size in _UNITS:
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}{'s' if unit == 'day' and seconds > size else ''}"
    return f"{seconds:g} s"
