"""Waiting for a condition instead of sleeping for a fixed time."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

SOON = 40.0  # seconds; enough for every condition, also on a busy machine; below the poll interval of tests about hints
LONG = 30.0  # seconds; longer than any test, no test waits for its end
_WITHOUT_PAUSE = 50  # checks without a pause: enough for what needs only the event loop


async def until(condition: Callable[[], Any], timeout: float = SOON) -> float:
    """Waits for the condition, which may be async, and returns the seconds; fails after the timeout."""
    began = time.monotonic()
    checks = 0
    while True:
        answer = condition()
        if await answer if inspect.isawaitable(answer) else answer:
            return time.monotonic() - began
        assert time.monotonic() - began < timeout, f"not within {timeout} s"
        checks += 1
        await asyncio.sleep(0 if checks < _WITHOUT_PAUSE else 0.001)


def wait_until(condition: Callable[[], Any], timeout: float = SOON) -> float:
    """The same for sync tests."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout, f"not within {timeout} s"
        time.sleep(0.001)
    return time.monotonic() - began


async def every_chance() -> None:
    """Lets other coroutines run for a while, so that an unwanted effect would show."""
    for _ in range(200):
        await asyncio.sleep(0)
