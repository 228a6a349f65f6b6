"""The last progress of a task is stored, also if the task ends at once and the store is slow."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from onthedot import App, current_task
from onthedot.clock.manual import ManualClock
from onthedot.errors import ArgumentError, StoreUnavailable
from onthedot.stores.contract import Lease, Note
from onthedot.stores.memory import MemoryStore
from tests.support.waits import SOON, every_chance


async def test_last_progress_before_the_end_is_stored(tmp_path: Path) -> None:
    app = App("shop", store=f"sqlite:///{tmp_path}/shop.db")

    @app.task
    async def copy(files: int) -> None:
        for number in range(1, files + 1):
            await asyncio.sleep(0.002)
            current_task().progress(number, files)

    async with app.running():
        handles = await copy.enqueue_many([{"files": number} for number in range(1, 30)])
        await asyncio.gather(*handles)
        infos = [await handle.info() for handle in handles]
    assert [info.progress for info in infos] == [(number, number) for number in range(1, 30)]


class NotelessStore(MemoryStore):
    """Raises `error` for the next notes."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.errors: list[Exception] = []

    async def note(self, notes: Sequence[Note]) -> Sequence[Lease]:
        if self.errors:
            raise self.errors.pop(0)
        return await super().note(notes)


async def test_progress_that_could_not_be_written_is_written_later(app: App, clock: ManualClock) -> None:
    store = NotelessStore(clock)
    app.runtime.use_store(store)
    began = asyncio.Event()
    go_on = asyncio.Event()

    @app.task
    async def copy() -> None:
        current_task().progress(1, 2)
        began.set()
        await go_on.wait()

    async with app.running():
        store.errors = [StoreUnavailable("down"), StoreUnavailable("down")]
        handle = await copy.enqueue()
        await began.wait()
        for _ in range(10):  # seconds; the poll interval
            clock.advance(1_000)
            await every_chance()
        assert not store.errors
        assert (await handle.info()).progress == (1, 2)
        go_on.set()


async def test_progress_that_cannot_be_stored_does_not_stop_the_worker(app: App, clock: ManualClock) -> None:
    store = NotelessStore(clock)
    app.runtime.use_store(store)

    @app.task
    async def copy() -> str:
        current_task().progress(1, 2)
        await asyncio.sleep(0)
        return "done"

    async with app.running():
        store.errors = [ArgumentError("no such number")] * 1000
        assert await (await copy.enqueue()).result(timeout=SOON) == "done"
