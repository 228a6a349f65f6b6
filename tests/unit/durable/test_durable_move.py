"""A move leaves durable tasks: their saved steps and signals are in the store that they are in."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from onthedot import App, current_task
from onthedot.clock.manual import ManualClock
from onthedot.operations.move import Move
from onthedot.stores.memory import MemoryStore
from onthedot.testing import TestApp
from tests.support.waits import until


async def test_move_leaves_sleeping_and_waiting_tasks(tmp_path: Path) -> None:
    app = App("shop", store=f"sqlite:///{tmp_path}/shop.db")

    @app.task
    async def sleeper() -> None:
        await current_task().sleep(3600)

    @app.task
    async def waiter() -> Any:
        return await current_task().wait_for("approved")

    @app.task(max_retries=1, backoff=3600)
    async def stream() -> AsyncIterator[int]:
        yield 1
        raise ValueError("later")

    @app.task
    async def plain() -> None: ...

    async with app:
        async with app.running():
            durable = [await sleeper.enqueue(), await waiter.enqueue(), await stream.enqueue()]
            await until(lambda: _are(durable, ["scheduled", "waiting", "scheduled"]))
        pending = [await plain.options(after=3600).enqueue() for _ in range(5)]
        target = MemoryStore(ManualClock())
        result = await Move(app.runtime.store, target, "memory").run()
        assert result.tasks == len(pending)
        assert sorted(result.durable) == sorted(handle.uuid for handle in durable)
        assert await _are(durable, ["scheduled", "waiting", "scheduled"])
        async with app.running():
            await durable[1].signal("approved", "yes")
            assert await durable[1].result(10) == "yes"


async def _are(handles: Any, states: list[str]) -> bool:
    return [await handle.state() for handle in handles] == states


def test_task_that_ran_without_steps_is_moved() -> None:
    app = App("shop")

    @app.task(max_retries=1, backoff=3600.0)
    async def plain() -> None:
        raise ValueError("later")

    with TestApp(app) as test:
        plain.delay()
        test.sync.run_until_idle()
        target = MemoryStore(test.clock)
        move = Move(app.runtime.store, target, "memory")
        result = app.runtime.portal.run_sync(lambda _: move.run(), waits=True)
        assert (result.tasks, result.durable) == (1, [])
