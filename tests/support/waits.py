"""Waiting for what is to happen: until it is so, and never for a time in the hope that it will do."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

SOON = 20.0  # seconds within which everything happens, also on a busy machine
LONG = 30.0  # seconds: longer than any test; nothing waits it out
_AT_ONCE = 50  # looks without a pause: enough for what needs only the event loop


async def until(condition: Callable[[], Any], timeout: float = SOON) -> float:
    """Waits until it is so and says how long that took; fails if it is too long. `condition` may be async."""
    began, looks = time.monotonic(), 0
    while True:
        answer = condition()
        if await answer if inspect.isawaitable(answer) else answer:
            return time.monotonic() - began
        assert time.monotonic() - began < timeout, f"not within {timeout} s"
        looks += 1
        await asyncio.sleep(0 if looks < _AT_ONCE else 0.001)


def wait_until(condition: Callable[[], Any], timeout: float = SOON) -> float:
    """The same, for tests that are not async."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout, f"not within {timeout} s"
        time.sleep(0.001)
    return time.monotonic() - began


async def every_chance() -> None:
    """To do one thing too many."""
    for _ in range(200):
        await asyncio.sleep(0)
