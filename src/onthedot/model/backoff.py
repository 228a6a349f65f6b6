"""How long a failed task waits for its next attempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from random import Random
from typing import TypeAlias

from onthedot.clock.durations import Duration, to_duration_ms, to_seconds
from onthedot.errors import DeclarationError

BackoffRule: TypeAlias = Duration | Sequence[Duration] | Callable[[int, BaseException], Duration]

DEFAULT_BASE = 5.0  # seconds before the first retry
_CAP = 600.0  # seconds: doubling stops here
_JITTER = 0.1  # so that tasks that failed together are not retried together


class Backoff:
    """When a failed task is tried again.

    A number is the base: it doubles with every attempt up to ten minutes (or to the base, if that is longer), give or
    take 10 %. A list gives each delay, and its last value repeats. A callable gets the attempt that failed (from 1)
    and its error, and returns the delay.

    >>> Backoff([5, 60, 600]).delay_ms(attempt=4, error=OSError(), random=Random())
    600000
    >>> Backoff(lambda attempt, error: attempt * 1.5).delay_ms(attempt=2, error=OSError(), random=Random())
    3000
    >>> 9_000 <= Backoff(5).delay_ms(attempt=2, error=OSError(), random=Random()) <= 11_000
    True
    """

    __slots__ = ("rule",)

    def __init__(self, rule: BackoffRule = DEFAULT_BASE) -> None:
        self.rule: float | tuple[float, ...] | Callable[[int, BaseException], Duration]
        if callable(rule):
            self.rule = rule
        elif isinstance(rule, Sequence) and not isinstance(rule, str | bytes):
            self.rule = tuple(to_seconds(value, f"backoff[{i}]") for i, value in enumerate(rule))
            if not self.rule:
                raise DeclarationError("backoff: the list is empty; give it at least one delay, for example [5, 60]")
        elif isinstance(rule, int | float | timedelta):
            self.rule = to_seconds(rule, "backoff")
        else:
            raise DeclarationError(
                f"backoff: {rule!r} is of type {type(rule).__name__}; pass seconds, a list of seconds, or a callable "
                "(attempt, error) -> seconds"
            )

    def delay_ms(self, attempt: int, error: BaseException, random: Random) -> int:
        """Milliseconds from the failure of this attempt (from 1) to the next one.

        An exception of a callable rule passes through; its return value is checked (DeclarationError).
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
    cap = max(_CAP, base)
    delay = min(cap, base * 2.0 ** min(attempt - 1, 64)) * random.uniform(1 - _JITTER, 1 + _JITTER)
    # Mirrored at the cap, not clipped: clipping would bring half of all retries back after exactly the cap.
    return delay if delay <= cap else 2 * cap - delay


def _name(function: object) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__
