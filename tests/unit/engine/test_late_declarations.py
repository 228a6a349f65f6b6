"""A declaration that keeps failing while the worker runs: its tasks settle, and nothing is claimed before it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest

from onthedot import App
from onthedot.clock.manual import ManualClock
from onthedot.errors import StoreRefused, StoreUnavailable
from onthedot.stores.contract import Limit
from onthedot.stores.memory import MemoryStore
from tests.support.waits import every_chance, until


class LimitlessStore(MemoryStore):
    """Raises `error` for limits while it is set."""

    error: Exception | None = None
    calls = 0

    async def put_limits(self, limits: Sequence[Limit]) -> None:
        self.calls += 1
        if self.error is not None:
            raise self.error
        await super().put_limits(limits)


async def test_tasks_settle_while_a_late_declaration_fails(
    app: App, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    store = LimitlessStore(clock)
    app.runtime.use_store(store)
    go_on = asyncio.Event()
    running: list[str] = []

    @app.task
    async def early() -> str:
        await go_on.wait()
        return "early"

    async with app.running():
        worker = app.runtime.worker
        assert worker is not None
        first = await early.enqueue()
        await until(lambda: worker.runs)
        store.error = StoreUnavailable("no limits today")

        @app.task(concurrency=1)
        async def late() -> str:
            running.append("late")
            await asyncio.sleep(0)
            assert len(running) == 1
            running.pop()
            return "late"

        await until(lambda: store.calls > 1)
        handles = [await late.enqueue() for _ in range(3)]
        go_on.set()
        await until(first.done)
        assert await first == "early"
        calls = store.calls
        for _ in range(20):
            clock.advance(1_000)
            await every_chance()
        assert 4 <= store.calls - calls <= 20, "it is repeated, with a delay"
        assert not any([await handle.done() for handle in handles])
        store.error = None
        clock.advance(5_000)
        assert await asyncio.gather(*handles) == ["late"] * 3
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert lines == ["declaring limits and schedules failed, trying again: no limits today"]


async def test_refused_declaration_ends_the_worker(app: App, clock: ManualClock) -> None:
    store = LimitlessStore(clock)
    app.runtime.use_store(store)

    @app.task
    async def early() -> None: ...

    async with app.running():
        worker = app.runtime.worker
        assert worker is not None
        store.error = StoreRefused("no permission")
        app.task(name="late")(lambda: None)
        await until(lambda: worker.last_error is store.error)
        await until(lambda: app.runtime.host.status == "stopped")
