"""How long until the next try, and the one place where a duration is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from math import ceil
from random import Random
from typing import TypeAlias

from onthedot.errors import DeclarationError

Duration: TypeAlias = float | timedelta
BackoffRule: TypeAlias = Duration | Sequence[Duration] | Callable[[int, BaseException], Duration]

BASE = 5.0  # seconds before the first retry
CAP = 600.0  # seconds: doubling stops here
JITTER = 0.1  # so that what failed together does not come back together
LONGEST = 36_525 * 86_400.0  # a hundred years: more is a mistake, and would leave the calendar


def seconds(value: Duration, what: str, error: type[DeclarationError] = DeclarationError) -> float:
    """A duration in seconds; `what` names it in the error.

    >>> seconds(timedelta(minutes=1), "timeout")
    60.0
    >>> seconds(-1, "timeout")
    Traceback (most recent call last):
    onthedot.errors.DeclarationError: timeout: -1 is out of range: 0 to 3155760000 seconds
    """
    if isinstance(value, bool) or not isinstance(value, int | float | timedelta):
        raise error(f"{what}: {value!r} is of type {type(value).__name__}; pass seconds as a number, or a timedelta")
    try:
        number = value.total_seconds() if isinstance(value, timedelta) else float(value)
    except OverflowError:
        number = float("inf")
    if not 0 <= number <= LONGEST:  # also refuses nan
        raise error(f"{what}: {value} is out of range: 0 to {LONGEST:.0f} seconds")
    return number


def to_duration_ms(value: Duration, what: str, error: type[DeclarationError] = DeclarationError) -> int:
    """A duration in whole milliseconds, rounded up: nothing comes early.

    >>> to_duration_ms(1.1, "after"), to_duration_ms(0.0001, "after")
    (1100, 1)
    """
    # Microseconds first: 1.1 * 1000 is 1100.0000000000002, which is not meant to be 1101.
    return ceil(round(seconds(value, what, error) * 1000, 3))


class Backoff:
    """When a failed task is tried again.

    A number is the base: it doubles with every attempt up to ten minutes (or to the base, if that is longer), give or
    take 10 %. A list gives each delay, and its last value repeats. A callable is asked with the attempt that failed
    (from 1) and its error.

    >>> Backoff([5, 60, 600]).delay_ms(attempt=4, error=OSError(), random=Random())
    600000
    >>> Backoff(lambda attempt, error: attempt * 1.5).delay_ms(attempt=2, error=OSError(), random=Random())
    3000
    >>> 9_000 <= Backoff(5).delay_ms(attempt=2, error=OSError(), random=Random()) <= 11_000
    True
    """

    __slots__ = ("rule",)

    def __init__(self, rule: BackoffRule = BASE) -> None:
        self.rule: float | tuple[float, ...] | Callable[[int, BaseException], Duration]
        if callable(rule):
            self.rule = rule
        elif isinstance(rule, Sequence) and not isinstance(rule, str | bytes):
            self.rule = tuple(seconds(value, f"backoff[{i}]") for i, value in enumerate(rule))
            if not self.rule:
                raise DeclarationError("backoff: the list is empty; give it at least one delay, for example [5, 60]")
        elif isinstance(rule, int | float | timedelta):
            self.rule = seconds(rule, "backoff")
        else:
            raise DeclarationError(
                f"backoff: {rule!r} is of type {type(rule).__name__}; pass seconds, a list of seconds, or a callable "
                "(attempt, error) -> seconds"
            )

    def delay_ms(self, attempt: int, error: BaseException, random: Random) -> int:
        """Milliseconds from the failure of this attempt (from 1) to the next one.

        What a callable raises comes through; what it returns is checked (DeclarationError).
        """
        rule = self.rule
        if callable(rule):
            return to_duration_ms(rule(attempt, error), f"backoff: what {_name(rule)} returned")
        if isinstance(rule, tuple):
            return to_duration_ms(rule[min(attempt, len(rule)) - 1], "backoff")
        return to_duration_ms(_doubled(rule, attempt, random), "backoff")

    def __repr__(self) -> str:
        return f"Backoff({self.rule!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Backoff) and self.rule == other.rule

    def __hash__(self) -> int:
        return hash(self.rule)


def _doubled(base: float, attempt: int, random: Random) -> float:
    cap = max(CAP, base)
    delay = min(cap, base * 2.0 ** min(attempt - 1, 64)) * random.uniform(1 - JITTER, 1 + JITTER)
    # Folded back rather than cut: cutting would bring half of all retries back after exactly the cap.
    return delay if delay <= cap else 2 * cap - delay


def _name(function: object) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__
