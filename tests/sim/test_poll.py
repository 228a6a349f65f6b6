"""A task whose hint is lost starts within the poll interval, whatever else the worker does meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from random import Random

from onthedot import App
from onthedot.stores.contract import Hint
from onthedot.stores.memory.store import MemoryStore
from tests.sim.clock import SimClock
from tests.sim.loop import SimLoop

POLL = 5.0


class StoreWithoutHints(MemoryStore):
    async def hints(self, session: str) -> AsyncGenerator[Hint, None]:
        yield Hint(resync=True)
        await asyncio.Event().wait()


def test_other_turns_do_not_delay_the_poll() -> None:
    loop = SimLoop(Random(1))
    clock = SimClock(loop)
    app = App("shop", store="memory://", poll_interval=POLL)
    starts: dict[str, float] = {}

    @app.task
    async def busy() -> None:
        await asyncio.sleep(0.9 * POLL)  # its outcome is a reason for a turn, just before the poll

    @app.task
    async def unnoticed() -> None:
        starts["unnoticed"] = loop.time()

    async def life() -> None:
        app.runtime.use(replace(app.runtime.config, clock=clock))
        app.runtime.use_store(StoreWithoutHints(clock))
        async with app.running():
            await busy.enqueue()
            await asyncio.sleep(0.1)
            began = loop.time()
            app.runtime.worker.recheck()  # starts `busy`
            await asyncio.sleep(0.1)
            await unnoticed.enqueue()
            await asyncio.sleep(3 * POLL)
        assert starts["unnoticed"] - began <= POLL + 0.1

    loop.run(life())
