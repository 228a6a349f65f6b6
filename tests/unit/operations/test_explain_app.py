"""Explanations through an app, while a worker runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from onthedot import App
from onthedot.operations.explain import Explanation
from tests.support.waits import until


def others(explanation: Explanation) -> list[str]:
    return [reason.reason for reason in explanation.also]


@pytest.fixture(params=["memory", "sqlite"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    app = App("shop", store="memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/shop.db")
    yield app
    app.shutdown()


async def test_app_explains_a_task(shop: App) -> None:
    go = asyncio.Event()

    @shop.task(concurrency=1)
    async def nap() -> None:
        await go.wait()

    async with shop.running():
        first = await nap.enqueue()
        second = await nap.enqueue()
        await until(lambda: reason_of(shop, first.uuid, "running"))
        found = await shop.explain(second.uuid)
        assert (found.reason, [holder.uuid for holder in found.by]) == ("source_limit", [first.uuid])
        assert found.by[0].where.partition(":")[0]
        go.set()
        await second
        assert (await shop.explain(second.uuid)).reason == "ended"


async def reason_of(app: App, uuid: str, reason: str) -> bool:
    return (await app.explain(uuid)).reason == reason


async def test_source_declared_after_the_start_becomes_known(shop: App) -> None:
    async with shop.running():

        @shop.task(max_retries=2, backoff=3600.0)
        async def late() -> None:
            raise ValueError("not today")

        await shop.pause("late")
        task = await late.enqueue()
        await until(lambda: reason_of(shop, task.uuid, "source_paused"))
        await until(lambda: knows(shop, task.uuid))
        await shop.resume("late")
        await until(lambda: reason_of(shop, task.uuid, "retry"))
        found = await shop.explain(task.uuid)
        assert found.text.startswith("it waits for retry 1 of 2 at ")
        assert found.text.endswith(", after ValueError: not today")


async def knows(app: App, uuid: str) -> bool:
    return "unknown" not in others(await app.explain(uuid))


def test_sync_code_explains_a_task(shop: App) -> None:
    @shop.task
    def greet() -> None: ...

    handle = greet.options(after=60).delay()
    found = shop.sync.explain(handle.uuid)
    assert (found.uuid, found.reason, others(found)) == (handle.uuid, "not_due", ["no_worker"])
