"""Steps shared by the tests of ``onthedot.testing``."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

from onthedot.testing import TestApp

START = datetime(2026, 1, 1, tzinfo=UTC)


class Log(list[tuple[str, timedelta]]):
    """The runs, with their time since the start."""

    def __init__(self, test: TestApp) -> None:
        self._test = test

    def __call__(self, what: str) -> None:
        self.append((what, self._test.now() - START))


def nothing_is_alive() -> None:
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert [each.name for each in threading.enumerate() if each.name.startswith("onthedot")] == []


def hours(number: float) -> timedelta:
    return timedelta(hours=number)


def minutes(number: float) -> timedelta:
    return timedelta(minutes=number)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


async def none() -> None:
    """A task that does nothing."""
