"""The store's clock is compared with the worker's; a step is what network latency cannot explain."""

from __future__ import annotations

import logging

import pytest

from onthedot.engine.store_clock import StoreClock
from onthedot.observability.logs import LogObserver


@pytest.mark.parametrize(
    ("turns", "steps"),
    [
        ([(0, 5, 10), (100, 105, 110)], []),
        ([(0, 5, 10), (100, 900, 9_000), (9_000, 9_005, 9_010)], []),  # one answer was slow
        ([(0, 500_005, 10), (100, 500_105, 110)], []),  # a constant offset
        ([(0, 5, 10), (100, 3_600_105, 110)], ["ahead by 3600.0 s"]),
        ([(0, 5, 10), (100, 3_600_105, 110), (200, 3_600_205, 210)], ["ahead by 3600.0 s"]),  # once
        ([(0, 100_000, 10), (100, 40_100, 110)], ["back by 60.0 s"]),
        ([(0, 5, 10), (100, 5_000, 4_500)], []),  # less than a second remains unexplained
    ],
)
def test_steps_of_the_store_clock_are_logged(
    turns: list[tuple[float, float, float]], steps: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    clock = StoreClock(LogObserver(None))
    with caplog.at_level(logging.WARNING):
        for turn in turns:
            clock.observe(*turn)
    assert len(caplog.messages) == len(steps)
    for message, step in zip(caplog.messages, steps, strict=True):
        assert f"[clock] the store's clock was set {step}" in message


@pytest.mark.parametrize(
    ("turns", "moments"),
    [
        ([(0, 5, 10)], [0]),  # the latency is unknown: assume none
        ([(0, 1, 6), (100, 104, 120)], [0, 103]),  # the fast request bounds the offset of the slow one
        ([(0, 1, 6), (100, 150, 120)], [0, 100]),  # the store's clock was set
        ([(0, 1, 6), (100, 90, 120)], [0, 100]),
        ([(0, 901, 6), (100, 1_004, 120)], [0, 103]),
    ],
)
def test_request_time_for_a_moment_of_the_store(turns: list[tuple[float, float, float]], moments: list[float]) -> None:
    clock = StoreClock(LogObserver(None))
    assert [clock.observe(*turn) for turn in turns] == pytest.approx(moments, abs=0.01)


def test_old_offsets_count_less() -> None:
    clock = StoreClock(LogObserver(None))
    assert clock.observe(0, 0, 0) == 0
    assert clock.observe(100_000, 100_020, 100_020) == pytest.approx(100_019, abs=0.01)
