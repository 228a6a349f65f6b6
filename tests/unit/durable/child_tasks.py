"""Tasks that run as children, for these tests."""

from __future__ import annotations

import asyncio
from typing import Any

from onthedot import App
from tests.support.waits import LONG


class Tasks:
    """The tasks of these tests, declared on one app."""

    def __init__(self, app: App) -> None:
        self.runs: list[Any] = []
        self.broken: set[int] = set()
        self.begun = asyncio.Event()

        @app.task
        async def double(number: int) -> int:
            self.runs.append(number)
            if number in self.broken:
                raise ValueError(f"no {number}")
            return number * 2

        @app.task
        async def total(numbers: list[int]) -> int:
            return sum(numbers)

        @app.task
        async def hang(number: int) -> int:
            self.begun.set()
            await asyncio.sleep(LONG)
            return number

        self.double = double
        self.total = total
        self.hang = hang


async def has(app: App, source: str, state: str, count: int) -> bool:
    """Whether so many tasks of a source are in this state."""
    return len(await app.find(source=source, state=state)) == count
