"""An app whose store loses data while its worker runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta

import pytest

from onthedot import App

TICK = 0.2  # seconds


class Shop:
    """An app, and how its store loses all data."""

    def __init__(self, url: str) -> None:
        self.app = App("shop", store=url, stop_timeout=0, poll_interval=0.2)
        self.lose: Callable[[], object] = lambda: None
        self.ticks = 0
        self.running = 0
        self.most = 0

        @self.app.task(schedule=timedelta(seconds=TICK))
        async def tick() -> None:
            self.ticks += 1

        @self.app.task(concurrency=1)
        async def single() -> None:
            self.running += 1
            self.most = max(self.most, self.running)
            await asyncio.sleep(0.02)
            self.running -= 1

        self.single = single


def add_long_task(app: App) -> tuple[list[str], asyncio.Event]:
    runs: list[str] = []
    go_on = asyncio.Event()

    @app.task
    async def long() -> None:
        runs.append("began")
        await go_on.wait()

    return runs, go_on


def assert_one_error(caplog: pytest.LogCaptureFixture, words: str) -> None:
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    (error,) = [line for line in errors if "tasks added since may be gone" in line]
    assert words in error
