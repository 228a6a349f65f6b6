"""Flows of more than 1,000 tasks: one add, or ordered adds and the start signal."""

from __future__ import annotations

from typing import Any

import pytest

from onthedot import App, StoreUnavailable, TaskFailure, TaskState, group
from onthedot.clock.manual import ManualClock
from onthedot.flows import tasks as flow_tasks
from onthedot.flows.links import START_TIMEOUT
from onthedot.model.flow_names import start_signal
from onthedot.stores.contract import Added, NewTask
from onthedot.stores.memory import MemoryStore
from tests.support.waits import SOON, until, wait_until


class Tasks:
    def __init__(self, app: App) -> None:
        @app.task
        async def same(number: int) -> int:
            return number

        @app.task
        async def length(text: str) -> int:
            return len(text)

        @app.task
        async def total(numbers: list[int]) -> int:
            return sum(numbers)

        @app.task
        async def collect(numbers: list[int | TaskFailure]) -> int:
            return len(numbers)

        self.same = same
        self.length = length
        self.total = total
        self.collect = collect

    def chord(self, size: int) -> Any:
        return group(self.same.s(number) for number in range(size)) | self.total


class Adds:
    """The number of tasks of each add of a store. fails_at: the number of the add that does not reach the store."""

    def __init__(self, app: App, monkeypatch: pytest.MonkeyPatch, fails_at: int = 0) -> None:
        self.sizes: list[int] = []
        self._fails_at = fails_at
        self._add = app.runtime.store.add
        monkeypatch.setattr(app.runtime.store, "add", self._count)

    async def _count(self, new: list[NewTask], *args: Any) -> list[Added]:
        self.sizes.append(len(new))
        if len(self.sizes) == self._fails_at:
            raise StoreUnavailable("the store is gone")
        return list(await self._add(new, *args))


async def started(app: App, flow: str) -> bool:
    """Whether the start signal of a flow was sent."""
    (counter,) = await app.runtime.store.counters([start_signal(flow)])
    return counter.value > 0


async def test_flow_of_thousands_is_stored_by_one_add_and_waits_for_no_signal(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = Tasks(app)
    async with app:
        adds = Adds(app, monkeypatch)
        handle = await tasks.chord(2500).enqueue()
        assert adds.sizes == [2501]
        assert len(await app.find(state="waiting", limit=10)) == 1, "the last task"
        assert not await started(app, handle.uuid)
        async with app.running():
            assert await handle.result(timeout=SOON * 3) == sum(range(2500))


async def test_flow_of_thousands_is_not_stored_at_all_if_its_add_fails(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = Tasks(app)
    async with app:
        with monkeypatch.context() as patch:
            Adds(app, patch, fails_at=1)
            with pytest.raises(StoreUnavailable):
                await tasks.chord(2500).enqueue(uuid="large")
        assert len(await app.find(limit=10)) == 0
        assert (await tasks.chord(2500).enqueue(uuid="large")).added


async def test_flow_of_many_bytes_is_stored_by_several_adds(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """One add of all of them would hold a store up for long."""
    tasks = Tasks(app)
    text = "x" * (flow_tasks.MAX_WHOLE_BYTES // 1200)
    async with app:
        adds = Adds(app, monkeypatch)
        handle = await (group(tasks.length.s(text) for _ in range(1200)) | tasks.total).enqueue()
        assert adds.sizes == [1000, 200, 1]
        assert await started(app, handle.uuid)
        async with app.running():
            assert await handle.result(timeout=SOON * 3) == 1200 * len(text)


async def test_flow_that_was_begun_by_several_adds_is_completed_by_one(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that another version of the program has begun."""
    tasks = Tasks(app)
    async with app:
        with monkeypatch.context() as patch:
            patch.setattr(flow_tasks, "MAX_WHOLE_BYTES", 0)
            Adds(app, patch, fails_at=2)
            with pytest.raises(StoreUnavailable):
                await tasks.chord(2500).enqueue(uuid="large")
        assert len(await app.find(state="waiting", limit=3000)) == 1000
        handle = await tasks.chord(2500).enqueue(uuid="large")
        async with app.running():
            assert await handle.result(timeout=SOON * 3) == sum(range(2500))


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
    monkeypatch.setattr(flow_tasks, "MAX_WHOLE_BYTES", 0)
    with app.background():
        with monkeypatch.context() as patch:
            adds = Adds(app, patch, fails_at=3)
            with pytest.raises(StoreUnavailable):
                tasks.chord(2500).delay(uuid="large")
        assert len(app.sync.find(state="waiting", limit=3000)) == 2000
        handle = tasks.chord(2500).delay(uuid="large")
        assert handle.result(timeout=SOON * 3) == sum(range(2500))
        again = tasks.chord(2500).delay(uuid="large")
    assert adds.sizes == [1000, 1000, 500]
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
            patch.setattr(flow_tasks, "MAX_WHOLE_BYTES", 0)
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
