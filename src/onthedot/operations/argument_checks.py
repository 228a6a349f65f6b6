"""Times and limits that a caller of an operation gives, checked before the store is asked."""

from __future__ import annotations

from datetime import datetime

from onthedot.clock.epoch import to_ms
from onthedot.errors import ArgumentError


def check_time(call: str, name: str, value: object) -> int:
    """Return an aware datetime in milliseconds."""
    if not isinstance(value, datetime):
        example = f"{name}=datetime.now(UTC) - timedelta(hours=1)"
        raise ArgumentError(f"{call}({name}={value!r}): a time is an aware datetime, as in {example}")
    return to_ms(value)


def check_limit(call: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ArgumentError(f"{call}(limit={value!r}): a limit is a whole number from 0")
    return value
