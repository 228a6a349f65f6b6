"""Runs when an app stops, and when it has very many of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from onthedot import (
    App,
    current_task,
)
from tests.support.waits import SOON, until


@pytest.fixture
def patient() -> Iterator[App]:
    """Uses the system clock; its stop waits."""
    app = App("patient", store="memory://", stop_timeout=SOON)
    with app.override(store="memory://"):
        yield app


@pytest.mark.parametrize("suspends", [True, False])
async def test_stop_requeues_queued_tasks_and_lets_running_tasks_finish(patient: App, suspends: bool) -> None:
    app = patient
    began: list[int] = []
    ended: list[int] = []
    stopping: list[asyncio.Task[Any]] = []
    running = app.running()

    @app.task
    async def act(number: int) -> None:
        if not began:
            stopping.append(asyncio.create_task(running.__aexit__(None, None, None)))
        began.append(number)
        await until(lambda: app.status()["status"] == "stopping")
        if suspends:
            await asyncio.sleep(0)
        ended.append(number)

    await running.__aenter__()
    handles = await act.enqueue_many([{"number": n} for n in range(50)])
    await until(lambda: stopping)
    await stopping[0]
    infos = [await handle.info() for handle in handles]
    assert len(began) < 10  # one claim took all fifty
    assert sorted(began) == sorted(ended)
    assert [info.state for info in infos] == ["succeeded"] * len(began) + ["cancelled"] * (50 - len(began))
    assert {(info.reason, info.attempt, info.started_at) for info in infos[len(began) :]} == {("shutdown", 1, None)}


async def test_running_tasks_are_cancelled_and_requeued_uncounted_after_stop_timeout() -> None:
    app = App("stop", store="memory://", stop_timeout=0.02)
    began: list[str] = []
    cancelled: list[str] = []

    @app.task(max_retries=3)
    async def hang() -> None:
        began.append(current_task().uuid)
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.append(current_task().uuid)
            raise

    async with app.running():
        handle = await hang.enqueue()
        await until(lambda: began)
    info = await app.get(handle.uuid)
    assert cancelled == [handle.uuid]
    assert (info.retries, info.crashes, info.attempt, info.errors, info.error) == (0, 0, 1, (), None)


async def test_failing_task_does_not_affect_others(app: App) -> None:
    @app.task
    async def odd(number: int) -> int:
        if number % 2:
            await asyncio.sleep(0)
            raise ArithmeticError(number)
        return number

    async with app.running():
        handles = await odd.enqueue_many([{"number": n} for n in range(200)])
        ends = [await handle.exception() for handle in handles]
    assert [error is None for error in ends] == [n % 2 == 0 for n in range(200)]
