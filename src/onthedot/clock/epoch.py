"""Milliseconds since the epoch ↔ aware datetimes."""

from __future__ import annotations

from datetime import UTC, datetime
from math import ceil

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_ms(moment: datetime) -> int:
    """Milliseconds since the epoch, rounded up: a task never starts before its time.

    >>> to_ms(datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC))
    1001
    """
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise ValueError(
            f"{moment!r} has no time zone; pass an aware datetime, for example datetime.now(UTC) or .replace(tzinfo=…)"
        )
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1000 + ceil(since.microseconds / 1000)


def from_ms(ms: float) -> datetime:
    """The moment so many milliseconds after the epoch, in UTC.

    >>> from_ms(1001).isoformat()
    '1970-01-01T00:00:01.001000+00:00'
    """
    return datetime.fromtimestamp(ms / 1000, UTC)


def to_optional_ms(moment: datetime | None) -> int | None:
    return None if moment is None else to_ms(moment)


def from_optional_ms(ms: float | None) -> datetime | None:
    return None if ms is None else from_ms(ms)
