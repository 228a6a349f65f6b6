"""The store's clock is compared with ours, turn by turn; only what cannot be the network is a step."""

from __future__ import annotations

import logging

import pytest

from onthedot.engine.store_clock import StoreClock
from onthedot.observability.logs import LogObserver


@pytest.mark.parametrize(
    ("turns", "told"),
    [
        ([(0, 5, 10), (100, 105, 110)], []),
        ([(0, 5, 10), (100, 900, 9_000), (9_000, 9_005, 9_010)], []),  # one answer was slow
        ([(0, 500_005, 10), (100, 500_105, 110)], []),  # another clock, and it stays so
        ([(0, 5, 10), (100, 3_600_105, 110)], ["ahead by 3600.0 s"]),
        ([(0, 5, 10), (100, 3_600_105, 110), (200, 3_600_205, 210)], ["ahead by 3600.0 s"]),  # once
        ([(0, 100_000, 10), (100, 40_100, 110)], ["back by 60.0 s"]),
        ([(0, 5, 10), (100, 5_000, 4_500)], []),  # less than a second that the answer's time cannot explain
    ],
)
def test_steps(turns: list[tuple[float, float, float]], told: list[str], caplog: pytest.LogCaptureFixture) -> None:
    clock = StoreClock(LogObserver(None))
    with caplog.at_level(logging.WARNING):
        for turn in turns:
            clock.observe(*turn)
    assert len(caplog.messages) == len(told)
    for message, says in zip(caplog.messages, told, strict=True):
        assert f"[clock] the store's clock was set {says}" in message


@pytest.mark.parametrize(
    ("turns", "moments"),
    [
        ([(0, 5, 10)], [0]),  # nothing is known: it may have been asked at once
        ([(0, 1, 6), (100, 104, 120)], [0, 103]),  # the quick question tells what the slow one would have been
        ([(0, 1, 6), (100, 150, 120)], [0, 100]),  # the store's clock was set: anew
        ([(0, 1, 6), (100, 90, 120)], [0, 100]),
        ([(0, 901, 6), (100, 1_004, 120)], [0, 103]),
    ],
)
def test_when_to_ask(turns: list[tuple[float, float, float]], moments: list[float]) -> None:
    clock = StoreClock(LogObserver(None))
    assert [clock.observe(*turn) for turn in turns] == pytest.approx(moments, abs=0.01)


def test_what_was_learnt_long_ago_counts_less() -> None:
    clock = StoreClock(LogObserver(None))
    assert clock.observe(0, 0, 0) == 0
    assert clock.observe(100_000, 100_020, 100_020) == pytest.approx(100_019, abs=0.01)
