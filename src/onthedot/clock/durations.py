"""Durations as users write them, a number of seconds or a timedelta, checked and converted."""

from __future__ import annotations

from datetime import timedelta
from math import ceil
from typing import TypeAlias

from onthedot.errors import DeclarationError

Duration: TypeAlias = float | timedelta

MINUTE = 60_000  # ms, as the following
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY

MAX_SECONDS = 36_525 * 86_400.0  # a hundred years: more is a mistake, and would leave the calendar


def to_seconds(value: Duration, what: str, error: type[DeclarationError] = DeclarationError) -> float:
    """A duration in seconds; `what` names it in the error.

    >>> to_seconds(timedelta(minutes=1), "timeout")
    60.0
    >>> to_seconds(-1, "timeout")
    Traceback (most recent call last):
    onthedot.errors.DeclarationError: timeout: -1 is out of range: 0 to 3155760000 seconds
    """
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise error(f"{what}: {value!r} is of type {type(value).__name__}; pass seconds as a number, or a timedelta")
    try:
        number = value.total_seconds() if isinstance(value, timedelta) else float(value)
    except OverflowError:
        number = float("inf")
    if not 0 <= number <= MAX_SECONDS:  # also refuses nan
        raise error(f"{what}: {value} is out of range: 0 to {MAX_SECONDS:.0f} seconds")
    return number


def to_duration_ms(value: Duration, what: str, error: type[DeclarationError] = DeclarationError) -> int:
    """A duration in whole milliseconds, rounded up: nothing comes early.

    >>> to_duration_ms(1.1, "after"), to_duration_ms(0.0001, "after")
    (1100, 1)
    """
    # Microseconds first: 1.1 * 1000 is 1100.0000000000002, which is not meant to be 1101.
    return ceil(round(to_seconds(value, what, error) * 1000, 3))
