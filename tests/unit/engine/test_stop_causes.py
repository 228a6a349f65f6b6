"""A run that is cancelled can still time out, lose its lease or be shut down. The test drives the clock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from onthedot import App
from onthedot.clock.manual import ManualClock
from tests.support.waits import SOON, every_chance, until

TIMEOUT = 30  # seconds, by the clock of the test


class Stubborn:
    """Tasks that a cancel does not end: one hangs in its clean-up, one ignores the request."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.began: list[str] = []
        self.cleaning: list[str] = []
        self.ended: list[str] = []
        self.may_return = threading.Event()

        @app.task(timeout=TIMEOUT)
        async def on_loop() -> None:
            self.began.append("on_loop")
            try:
                await asyncio.sleep(1000)
            finally:
                self.cleaning.append("on_loop")
                try:
                    await asyncio.sleep(1000)
                finally:
                    self.ended.append("on_loop")

        @app.task(timeout=TIMEOUT, executor="thread")
        def in_thread() -> None:
            self.began.append("in_thread")
            self.may_return.wait(SOON)
            self.ended.append("in_thread")

        self.tasks: dict[str, Any] = {"async": on_loop, "thread": in_thread}


@pytest.fixture
def stubborn(app: App) -> Iterator[Stubborn]:
    stubborn = Stubborn(app)
    yield stubborn
    stubborn.may_return.set()


async def start_and_cancel(stubborn: Stubborn, executor: str) -> Any:
    handle = await stubborn.tasks[executor].enqueue()
    await until(lambda: stubborn.began)
    await handle.cancel()
    if executor == "async":
        await until(lambda: stubborn.cleaning)
    await every_chance()
    assert await handle.state() == "running"
    return handle


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_cancelled_run_ends_at_its_timeout_and_stays_cancelled(
    stubborn: Stubborn, clock: ManualClock, executor: str
) -> None:
    async with stubborn.app.running():
        handle = await start_and_cancel(stubborn, executor)
        clock.advance(TIMEOUT * 1000)

        async def is_cancelled() -> bool:
            return await handle.state() == "cancelled"

        await until(is_cancelled)
        assert (await handle.info()).reason == "cancelled"
        stubborn.may_return.set()
        await until(lambda: stubborn.ended)


@pytest.mark.parametrize("executor", ["async", "thread"])
async def test_cancelled_run_ends_when_its_lease_is_lost(stubborn: Stubborn, executor: str) -> None:
    async with stubborn.app.running():
        worker = stubborn.app.runtime.worker
        assert worker is not None
        await start_and_cancel(stubborn, executor)
        await stubborn.app.runtime.store.close_session(worker.session_id)
        worker.recheck()
        await until(worker.is_drained)
        assert stubborn.ended == (["on_loop"] if executor == "async" else [])
        stubborn.may_return.set()


async def test_run_that_has_timed_out_stays_failed_when_the_app_stops(stubborn: Stubborn, clock: ManualClock) -> None:
    async with stubborn.app.running():
        handle = await stubborn.tasks["async"].enqueue()
        await until(lambda: stubborn.began)
        clock.advance(TIMEOUT * 1000)
        await until(lambda: stubborn.cleaning)
    info = await stubborn.app.get(handle.uuid)
    assert info.state == "failed"
    assert info.error is not None
    assert info.error.type == "onthedot.TaskTimeout"
