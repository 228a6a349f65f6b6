"""Errors of a store in the loop of a worker: only a refusal ends it. The test drives the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from onthedot import App
from onthedot.clock.manual import ManualClock
from onthedot.errors import ArgumentError, StoreBusy, StoreFull, StoreRefused, StoreUnavailable
from onthedot.stores.contract import ClaimRequest, Outcome, TurnResult
from onthedot.stores.memory import MemoryStore
from tests.support.waits import every_chance, until


class FailingStore(MemoryStore):
    """Raises `error` in every turn while it is set."""

    error: BaseException | None = None
    failed = 0

    async def turn(self, session: str, outcomes: Sequence[Outcome], request: ClaimRequest | None) -> TurnResult:
        if self.error is not None:
            self.failed += 1
            raise self.error
        return await super().turn(session, outcomes, request)


@pytest.mark.parametrize(
    "error",
    [
        StoreUnavailable("down"),
        StoreBusy("locked"),
        StoreFull("full"),
        ArgumentError("a value that cannot be stored"),
        RuntimeError("a bug of the driver"),
        KeyError("a field of a newer version"),
        RecursionError(),
        asyncio.CancelledError(),  # nobody has cancelled the worker: a driver has cancelled its own task
    ],
    ids=lambda error: type(error).__name__,
)
async def test_worker_continues_after_any_other_error(
    app: App, clock: ManualClock, send: Any, error: BaseException
) -> None:
    store = FailingStore(clock)
    app.runtime.use_store(store)
    async with app.running():
        store.error = error
        handle = await send.enqueue("ann")
        await until(lambda: store.failed)
        for _ in range(5):
            clock.advance(5_000)
            await every_chance()
        assert store.failed > 3
        store.error = None
        clock.advance(5_000)
        assert await handle == "hello, ann"


async def test_refusal_ends_the_worker(app: App, clock: ManualClock, send: Any) -> None:
    store = FailingStore(clock)
    app.runtime.use_store(store)
    async with app.running():
        worker = app.runtime.worker
        assert worker is not None
        store.error = StoreRefused("the schema is older than this version: run `onthedot schema install`")
        await send.enqueue("ann")
        await until(lambda: worker.last_error is not None)
        assert worker.last_error is store.error
        store.error = None
        await until(lambda: app.runtime.host.status == "stopped")
