"""A burst of adds holds so few objects that it does not run the garbage collector, which would cost a tenth of it."""

from __future__ import annotations

import asyncio
import gc

from onthedot import App
from tests.support.services.postgres import Service

BURSTS = 20


async def test_a_burst_of_100_adds_does_not_run_the_collector(postgres: Service, named: str) -> None:
    app: App[None] = App(named, store=postgres.url)
    collections = 0

    @app.task
    async def noop() -> None: ...

    def count(phase: str, _info: dict[str, int]) -> None:
        nonlocal collections
        collections += phase == "start"

    async def burst() -> None:
        await asyncio.gather(*(noop.enqueue() for _ in range(100)))

    async with app:
        for _ in range(BURSTS):  # the first ones fill the free lists
            await burst()
        gc.callbacks.append(count)
        try:
            for _ in range(BURSTS):
                await burst()
        finally:
            gc.callbacks.remove(count)
    assert collections < BURSTS / 2
