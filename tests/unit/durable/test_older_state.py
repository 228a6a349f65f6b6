"""A store that was restored to an older state has lost steps of runs that continue."""

from __future__ import annotations

import asyncio
from copy import deepcopy

from onthedot import App, current_task
from onthedot.clock.protocol import Clock
from onthedot.stores.memory import MemoryStore
from onthedot.stores.memory.tables import MemoryTables
from tests.support.waits import SOON, until


class RestoredStore(MemoryStore):
    """A memory store that can go back to an older state."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._shared = {id(clock): clock}

    def copy(self) -> MemoryTables:
        return deepcopy(self._tables, dict(self._shared))

    def restore(self, tables: MemoryTables) -> None:
        self._tables = tables


async def test_durable_run_starts_again_if_its_steps_may_be_lost() -> None:
    """Otherwise its next steps would be saved after a gap, and the run after it would not fit to what is saved."""
    app = App("shop", store="memory://", stop_timeout=0, poll_interval=0.05)
    store = RestoredStore(app.runtime.clock)
    app.runtime.use_store(store)
    began = 0
    steps: list[str] = []
    is_copied = asyncio.Event()
    saved = asyncio.Event()
    go_on = asyncio.Event()

    @app.task
    async def pay() -> None:
        nonlocal began
        began += 1
        ctx = current_task()
        await is_copied.wait()
        await ctx.step("charge", steps.append, "charge")
        saved.set()
        await go_on.wait()
        await ctx.step("send", steps.append, "send")
        await ctx.sleep(0.01)
        await ctx.step("thank", steps.append, "thank")

    @app.task
    async def other() -> None:
        pass

    async with app.running():
        handle = await pay.enqueue()
        await until(lambda: began == 1)
        older = store.copy()
        is_copied.set()
        await saved.wait()
        await asyncio.gather(*[await other.enqueue(), await other.enqueue()])  # claims that are lost
        store.restore(older)
        await until(lambda: began == 2)
        go_on.set()
        await asyncio.wait_for(handle, SOON)
    assert steps == ["charge", "charge", "send", "thank"]
