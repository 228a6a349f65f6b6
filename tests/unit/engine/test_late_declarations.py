"""A declaration that keeps failing while the worker runs: its tasks settle, and nothing is claimed before it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onthedot import App
from onthedot.clock.manual import ManualClock
from onthedot.definitions.sources import Sources
from onthedot.engine.config import WorkerConfig
from onthedot.engine.maintenance import Maintenance
from onthedot.engine.slots import Slots
from onthedot.errors import StoreRefused, StoreUnavailable
from onthedot.observability.events import Observer
from onthedot.stores.contract import Limit
from onthedot.stores.memory import MemoryStore
from tests.support.waits import every_chance, until


class LimitlessStore(MemoryStore):
    """Raises `error` for limits while it is set."""

    error: Exception | None = None
    calls = 0

    async def put_limits(self, limits: Sequence[Limit], replaces: Sequence[Limit] = ()) -> bool:
        self.calls += 1
        if self.error is not None:
            raise self.error
        return await super().put_limits(limits, replaces)


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


async def test_turn_does_not_claim_if_code_has_declared_more_meanwhile(clock: ManualClock) -> None:
    calls: list[str] = []

    async def declare() -> None:
        calls.append("once more")
        if len(calls) == 1:
            maintenance.mark_definitions_changed()

    async def update_info() -> None: ...

    session = cast("Any", SimpleNamespace(update_info=update_info))
    slots = Slots(Sources(), {"async": 1})
    store = MemoryStore(clock)
    maintenance = Maintenance(WorkerConfig({}), store, session, slots, clock, Random(1), Observer(), declare, None)
    assert await maintenance.update_definitions()
    maintenance.mark_definitions_changed()
    assert not await maintenance.update_definitions()
    assert await maintenance.update_definitions()
    assert len(calls) == 2
