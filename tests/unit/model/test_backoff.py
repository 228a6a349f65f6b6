from __future__ import annotations

from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, strategies as st

from onthedot.clock.durations import to_duration_ms, to_seconds
from onthedot.errors import BadSchedule, DeclarationError
from onthedot.model.backoff import Backoff, BackoffRule

ERROR = OSError("gone")


def delays(rule: BackoffRule, attempts: int, seed: int = 0) -> list[int]:
    backoff = Backoff(rule)
    random = Random(seed)
    return [backoff.delay_ms(attempt, ERROR, random) for attempt in range(1, attempts + 1)]


def test_a_base_doubles_up_to_ten_minutes_with_ten_percent_jitter() -> None:
    for seed in range(200):
        for delay, nominal in zip(delays(5, 10, seed), (5, 10, 20, 40, 80, 160, 320, 600, 600, 600), strict=True):
            assert nominal * 900 <= delay <= min(nominal * 1100, 600_000)


def test_the_default_base_is_five_seconds() -> None:
    assert Backoff() == Backoff(5) == Backoff(timedelta(seconds=5))
    assert hash(Backoff()) == hash(Backoff(5))


def test_jitter_comes_from_the_given_random() -> None:
    assert delays(5, 5, seed=1) == delays(5, 5, seed=1)
    assert delays(5, 5, seed=1) != delays(5, 5, seed=2)
    assert len({delays(700, 1, seed)[0] for seed in range(100)}) == 100  # not all at the cap


def test_a_base_above_the_cap_does_not_grow() -> None:
    assert all(3240_000 <= delay <= 3600_000 for delay in delays(3600, 5))


def test_any_attempt_number_has_a_delay() -> None:
    assert Backoff(5).delay_ms(100_000, ERROR, Random()) <= 600_000
    assert Backoff(0).delay_ms(100_000, ERROR, Random()) == 0


def test_the_last_delay_of_a_list_repeats_without_jitter() -> None:
    assert delays([60, timedelta(minutes=5), 1800], 5) == [60_000, 300_000, 1_800_000, 1_800_000, 1_800_000]
    assert delays((0.5,), 2) == [500, 500]


def test_a_callable_gets_attempt_and_error() -> None:
    calls: list[tuple[int, BaseException]] = []

    def rule(attempt: int, error: BaseException) -> float | timedelta:
        calls.append((attempt, error))
        return timedelta(seconds=attempt)

    assert delays(rule, 3) == [1000, 2000, 3000]
    assert calls == [(1, ERROR), (2, ERROR), (3, ERROR)]


@pytest.mark.parametrize("returned", [-1, float("nan"), float("inf"), True, "5", None])
def test_the_delay_of_a_callable_is_checked(returned: float) -> None:
    def faulty(attempt: int, error: BaseException) -> float:
        return returned

    with pytest.raises(DeclarationError, match="faulty returned"):
        Backoff(faulty).delay_ms(1, ERROR, Random())


@pytest.mark.parametrize("rule", [-1, float("nan"), True, "5", None, [], [5, -1], [5, "6"], {"a": 1}, 1e300, b"5"])
def test_rules_of_a_wrong_type_or_range_are_refused(rule: BackoffRule) -> None:
    with pytest.raises(DeclarationError, match="backoff"):
        Backoff(rule)


def test_a_backoff_shows_its_rule() -> None:
    assert repr(Backoff([5, 60])) == "Backoff((5.0, 60.0))"
    assert repr(Backoff(2)) == "Backoff(2.0)"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (-0.001, "timeout: -0.001 is out of range"),
        (float("nan"), "out of range"),
        (float("inf"), "out of range"),
        (10**400, "out of range"),
        (timedelta.max, "out of range"),
        (timedelta(seconds=-1), "out of range"),
        (True, "is of type bool"),
        ("5", "is of type str; pass seconds as a number, or a timedelta"),
        (None, "NoneType"),
    ],
)
def test_durations_of_a_wrong_type_or_range_are_refused(value: float, message: str) -> None:
    for read in (to_seconds, to_duration_ms):
        with pytest.raises(DeclarationError, match=message):
            read(value, "timeout")
    with pytest.raises(BadSchedule):
        to_seconds(value, "timeout", BadSchedule)


@given(st.integers(min_value=0, max_value=10**12))
def test_durations_are_rounded_up_to_milliseconds(us: int) -> None:
    wanted = -(-us // 1000)
    assert to_duration_ms(timedelta(microseconds=us), "after") == wanted
    assert to_duration_ms(us / 1e6, "after") == wanted
