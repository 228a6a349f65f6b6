"""Fewer log lines of aiokafka while no server answers: it logs every attempt of every client."""

from __future__ import annotations

import logging

_INTERVAL = 60.0  # seconds
_LOGGERS = (
    "aiokafka",
    "aiokafka.cluster",
    "aiokafka.conn",
    "aiokafka.consumer.fetcher",
    "aiokafka.consumer.group_coordinator",
    "aiokafka.producer.sender",
)


class RepeatedWarnings(logging.Filter):
    """Lets a warning or an error pass once per minute, with the number of those that it left out since."""

    def __init__(self) -> None:
        super().__init__()
        self._passed_at: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        text = f"{record.name} {record.msg}"  # without its arguments
        if record.created - self._passed_at.get(text, 0.0) < _INTERVAL:
            self._left_out[text] = self._left_out.get(text, 0) + 1
            return False
        self._passed_at[text] = record.created
        if left_out := self._left_out.pop(text, 0):
            record.msg = f"{record.msg} ({left_out} more like it were left out)"
        return True


_filter = RepeatedWarnings()


def limit_log_lines() -> None:
    """For this process; calling it again changes nothing."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_filter)
