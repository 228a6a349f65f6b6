"""`explain` names what a task of a flow waits for, and the reason goes away with its cause."""

from __future__ import annotations

import asyncio

import pytest

from onthedot import App, StoreUnavailable, TaskFailed, group
from tests.support.waits import LONG, SOON, until


async def test_explanation_of_a_waiting_task_names_the_tasks_that_run(app: App) -> None:
    may_end = asyncio.Event()

    @app.task
    async def hold(number: int) -> int:
        await asyncio.wait_for(may_end.wait(), LONG)
        return number

    @app.task
    async def total(numbers: list[int]) -> int:
        return sum(numbers)

    handle = await (group([hold.s(1), hold.s(2)]) | total).enqueue()
    async with app.running():

        async def both_run() -> bool:
            return len(await app.find(source="hold", state="running")) == 2

        await until(both_run)
        found = await app.explain(handle.uuid)
        assert found.reason == "waiting_tasks"
        assert found.text.startswith(f"it waits for 2 of 2 tasks of flow {handle.uuid[-10:]}: 2 run (hold ")
        assert found.by_count == 2
        may_end.set()
        assert await handle.result(timeout=SOON) == 3
        assert (await app.explain(handle.uuid)).reason == "ended"


async def test_explanation_of_other_waits(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    async def same(number: int) -> int:
        return number

    @app.task
    async def fail(number: int) -> int:
        raise ValueError(number)

    @app.task
    async def clean() -> None: ...

    async def unavailable(*_: object) -> None:
        raise StoreUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(app.runtime.store, "signal", unavailable)
        with pytest.raises(StoreUnavailable):
            await group(same.s(number) for number in range(1001)).enqueue(uuid="large")
    first = next(iter((await app.find(state="waiting", source="same", limit=1)).tasks))
    assert (await app.explain(first.uuid)).reason == "incomplete_flow"
    flow = await (fail.s(1) | same).always(clean.s()).enqueue()
    handler = next(iter((await app.find(source="clean")).tasks))
    assert (await app.explain(handler.uuid)).text == f"it waits for the end of flow {flow.uuid[-10:]}"
    async with app.running():
        with pytest.raises(TaskFailed):
            await flow.result(timeout=SOON)
        assert "cancelled" in (text := (await app.explain(flow.uuid)).text)
        assert "upstream: fail" in text
