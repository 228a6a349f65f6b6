from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from onthedot import App
from onthedot.clock.manual import ManualClock
from onthedot.engine.worker import Worker
from onthedot.stores.contract import StoreTraits
from tests.support.waits import until


class Shop:
    """Apps with one name on one store, like processes with different code; they share one clock."""

    def __init__(self, url: str, clock: ManualClock) -> None:
        self._url = url
        self.clock = clock
        self.apps: list[App] = []
        self.stack = ExitStack()

    def app(self, **options: float) -> App:
        """An app that polls once a day, so that only alarms and hints can wake its worker."""
        app = App("shop", store=self._url, stop_timeout=0, poll_interval=86_400, **options)
        self.stack.enter_context(app.override(clock=self.clock))
        self.stack.callback(app.shutdown)
        self.apps.append(app)
        if self._url == "memory://":  # share one store, as processes share a file
            store = self.apps[0].runtime.store
            app.runtime.use_store(store)
            store.traits = StoreTraits(shared=True, synchronous=True)
        return app

    def _workers(self) -> list[Worker]:
        return [app.runtime.worker for app in self.apps if app.runtime.host.status == "running" and app.runtime.worker]

    async def turn(self, **span: float) -> None:
        """Advances the clock while all workers sleep: a worker within a turn would set its timer too late."""
        await until(lambda: all(_asleep(worker) for worker in self._workers()))
        self.clock.advance(timedelta(**span) / timedelta(milliseconds=1))

    async def turn_to(self, moment: datetime) -> None:
        await self.turn(seconds=(moment - self.clock.moment()).total_seconds())

    async def looked(self) -> None:
        """Waits until every worker has made another turn and has nothing left to do."""
        for worker in self._workers():
            before = worker.turns
            worker.recheck()
            await until(lambda worker=worker, before=before: worker.turns > before + 1 or _idle(worker, before))


def _asleep(worker: Worker) -> bool:
    return worker.wakeup.is_waiting


def _idle(worker: Worker, before: int) -> bool:
    return worker.turns > before and _asleep(worker)


@pytest.fixture(params=["memory", "sqlite"])
def shop(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/shop.db", clock)
    with shop.stack:
        yield shop


@pytest.fixture
def app(shop: Shop) -> App:
    return shop.app()
