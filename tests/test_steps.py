"""The store's clock is compared with ours, turn by turn; only what cannot be the network is a step."""

from __future__ import annotations

import logging

import pytest

from onthedot.engine.steps import Steps
from onthedot.observe.logs import Logs


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
    steps = Steps(Logs(None))
    with caplog.at_level(logging.WARNING):
        for turn in turns:
            steps.look(*turn)
    assert len(caplog.messages) == len(told)
    for message, says in zip(caplog.messages, told, strict=True):
        assert f"[clock] the store's clock was set {says}" in message
