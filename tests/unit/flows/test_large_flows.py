"""Flows of more than 1,000 tasks: ordered adds, and the start signal."""

from __future__ import annotations

from typing import Any

import pytest

from onthedot import App, StoreUnavailable, TaskFailure, TaskState, group
from onthedot.clock.manual import ManualClock
from onthedot.flows.links import START_TIMEOUT
from onthedot.stores.contract import Added, NewTask
from onthedot.stores.memory import MemoryStore
from tests.support.waits import SOON, until, wait_until


class Tasks:
    def __init__(self, app: App) -> None:
        @app.task
        async def same(number: int) -> int:
            return number

        @app.task
        async def total(numbers: list[int]) -> int:
            return sum(numbers)

        @app.task
        async def collect(numbers: list[int | TaskFailure]) -> int:
            return len(numbers)

        self.same = same
        self.total = total
        self.collect = collect

    def chord(self, size: int) -> Any:
        return group(self.same.s(number) for number in range(size)) | self.total


def test_flow_of_thousands_runs_like_any_other(app: App) -> None:
    tasks = Tasks(app)
    with app.background():
        handle = tasks.chord(2500).delay()
        assert handle.result(timeout=SOON * 3) == sum(range(2500))
        assert handle.progress().done == 2501


def test_unfinished_add_starts_nothing_and_is_completed_by_the_same_uuid(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = Tasks(app)
    store = app.runtime.store
    add = store.add
    adds: list[int] = []

    async def fail(new: list[NewTask], *args: Any) -> list[Added]:
        adds.append(len(new))
        if len(adds) == 3:
            raise StoreUnavailable("the store is gone")
        return list(await add(new, *args))

    with app.background():
        with monkeypatch.context() as patch:
            patch.setattr(store, "add", fail)
            with pytest.raises(StoreUnavailable):
                tasks.chord(2500).delay(uuid="large")
        assert len(app.sync.find(state="waiting", limit=3000)) == 2000
        handle = tasks.chord(2500).delay(uuid="large")
        assert handle.result(timeout=SOON * 3) == sum(range(2500))
        again = tasks.chord(2500).delay(uuid="large")
    assert adds == [1000, 1000, 500]
    assert not again.added


async def test_flow_that_is_never_completely_added_ends_after_an_hour(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    app = App("shop", store="memory://")
    tasks = Tasks(app)
    with app.override(store="memory://", clock=clock):
        store = app.runtime.store
        assert isinstance(store, MemoryStore)
        with monkeypatch.context() as patch:
            patch.setattr(store, "signal", _unavailable)
            members = group((tasks.same.s(number) for number in range(1500)), on_error="collect")
            with pytest.raises(StoreUnavailable):
                await (members | tasks.collect).enqueue(uuid="large")
        async with app.running():
            await until(lambda: app.runtime.worker is not None and app.runtime.worker.idle.is_set())
            assert len(await app.find(state="waiting", limit=2000)) == 1501
            clock.advance(START_TIMEOUT + 1)

            async def all_ended() -> bool:
                return len(await app.find(state="cancelled", limit=2000)) == 1501

            await until(all_ended)
            info = await app.get("large")
            assert (info.state, info.reason) == (TaskState.CANCELLED, "its flow was never completely added")


async def _unavailable(*_: object) -> None:
    raise StoreUnavailable("the store is gone")


def test_cancel_of_thousands_ends_all_of_them(app: App) -> None:
    tasks = Tasks(app)
    members = [tasks.same.options(after=60).s(number) for number in range(3000)]
    with app.background():
        handle = (group(members) | tasks.total).delay()
        assert handle.cancel() == 3001
        wait_until(lambda: handle.progress().done == 3001)
