"""Schedules, as scripts send and receive them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

from onthedot.stores.contract import Schedule
from onthedot.stores.redis.record_format import UNREADABLE, decode

_log = logging.getLogger("onthedot.store")
_reported_schedules: set[bytes] = set()  # each is due in every turn


def to_schedule(name: bytes, packed: bytes, rule: bytes) -> Schedule:
    digest, next_at, rev, paused, last_at, runs, incoming = decode(packed)[:7]  # others are of a newer version
    nothing = (False, None)
    return Schedule(
        name.decode(), rule, digest, None if next_at in nothing else next_at, rev, bool(paused),
        None if last_at in nothing else last_at, runs, bool(incoming),
    )  # fmt: skip


def to_schedules(rows: Iterable[Sequence[Any]]) -> list[Schedule]:
    """One that cannot be read is left out, and the others fire."""
    found: list[Schedule] = []
    for name, packed, rule in rows:
        try:
            found.append(to_schedule(name, packed, rule))
        except UNREADABLE:
            if name not in _reported_schedules:
                _reported_schedules.add(name)
                _log.error("schedule %s cannot be read: it does not fire until it is declared again", name.decode())
    return found


def pack_schedule(schedule: Schedule) -> tuple[object, ...]:
    """Without its rule, which is opaque to the server."""
    return (
        schedule.name, schedule.definition_digest, schedule.next_at, schedule.rev, schedule.paused, schedule.last_at,
        schedule.runs, schedule.incoming,
    )  # fmt: skip
