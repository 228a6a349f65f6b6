"""aiokafka logs every attempt while no server answers; one line per minute is enough."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from onthedot.events.kafka.log_filter import RepeatedWarnings


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[logging.Logger]:
    logger = logging.getLogger("onthedot-test-of-a-filter")
    repeated = RepeatedWarnings()
    logger.addFilter(repeated)
    with caplog.at_level(logging.DEBUG):
        yield logger
    logger.removeFilter(repeated)


def log_at(logger: logging.Logger, second: float, level: int, text: str, *args: object) -> None:
    record = logger.makeRecord(logger.name, level, __file__, 1, text, args, None)
    record.created = 1_000_000 + second
    logger.handle(record)


def test_warning_passes_once_per_minute_with_the_number_of_those_left_out(
    log: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    for second in (0, 0.5, 30, 59.9, 60, 61, 125):
        log_at(log, second, logging.ERROR, "no connection to %s", f"node {second:g}")
    assert caplog.messages == [
        "no connection to node 0",
        "no connection to node 60 (3 more like it were left out)",
        "no connection to node 125 (1 more like it were left out)",
    ]


def test_other_warnings_pass(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    for text in ("first", "second", "first"):
        log_at(log, 0, logging.WARNING, text)
    assert caplog.messages == ["first", "second"]


def test_lines_below_warnings_pass(log: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        log_at(log, 0, logging.INFO, "joined")
    assert caplog.messages == ["joined"] * 3
