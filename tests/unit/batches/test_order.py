"""Parts start by priority, aging and limits, as other tasks do."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from onthedot import App, BatchPolicy, Rate, current_task
from onthedot.definitions.new_task import AGING
from onthedot.testing import TestApp
from tests.support.app_stores import AppStore
from tests.support.waits import SOON, until

ONE_EACH = BatchPolicy(split=lambda kind, count: [1] * count, top_up=0)


async def _has_ready(app: App, number: int) -> bool:
    return (await app.runtime.store.tally()).get(("names", "ready"), 0) == number


async def test_part_of_priority_10_is_next_before_500_of_priority_1(flow_store: AppStore) -> None:
    app = App(flow_store.name, store=flow_store.url, concurrency=1, stop_timeout=0)
    order: list[int] = []
    gate = asyncio.Event()

    @app.task(batch=ONE_EACH)
    async def names(count: int, level: int) -> list[int]:
        order.append(level)
        if len(order) == 1:
            await gate.wait()
        return [len(order)]

    async with app.running():
        low = await app.batch(names, count=500, priority=1, args={"level": 1})
        await until(lambda: order)
        high = await app.batch(names, count=1, priority=10, args={"level": 10})
        await until(lambda: _has_ready(app, 500))  # the parts that wait for the slot
        gate.set()
        await high.all(SOON)
        assert order[:2] == [1, 10]
        await low.cancel()
    app.shutdown()


def test_part_of_priority_1_starts_within_nine_times_aging() -> None:
    """By the driven clock: every ten seconds one part may start, and a new one of priority 10 is there."""
    app = App("shop", store="memory://", concurrency=1)
    started: list[int] = []

    @app.task(batch=ONE_EACH)
    async def names(count: int, level: int) -> list[int]:
        started.append(level)
        return [1]

    with TestApp(app) as test:
        app.sync.pause("names")
        low = app.sync.batch(names, count=1, priority=1, args={"level": 1})
        app.sync.batch(names, count=1, priority=10, args={"level": 10})  # so that there is always one
        test.sync.run_until_idle()
        added = test.now()
        app.sync.operations.set_limit("names", rate="1/10s")
        app.sync.resume("names")
        while 1 not in started:
            app.sync.batch(names, count=1, priority=10, args={"level": 10})
            test.sync.advance(10)
            waited = test.now() - added
            assert waited <= timedelta(milliseconds=9 * AGING + 20_000), "a part of priority 1 starves"
        assert waited >= timedelta(milliseconds=9 * AGING - 20_000), "it went before those of priority 10"
        assert low.all(SOON).items == [1]


async def test_bucket_with_a_cost_bounds_the_starts_of_parts(flow_store: AppStore) -> None:
    """A bucket of 2,000 tokens and parts of 800: two start at once, the others wait for tokens."""
    app = App(flow_store.name, store=flow_store.url, stop_timeout=0)
    started: list[int] = []

    @app.task(batch=ONE_EACH, limits=[Rate("1/h", name="llm", burst=2000, cost="tokens")])
    async def names(count: int, tokens: int = 800) -> list[int]:
        started.append(tokens)
        return [len(started)]

    async with app.running():
        batch = await app.batch(names, count=5, deadline=2)
        result = await batch.all(SOON)
    app.shutdown()
    assert started == [800, 800]
    assert (len(result.items), result.short_by, result.failed_parts) == (2, 3, 3)


@pytest.mark.parametrize("count", [1, 3])
def test_batch_runs_to_its_end_in_a_test_that_turns_the_clock(count: int) -> None:
    app = App("shop", store="memory://")

    @app.task(batch=ONE_EACH)
    async def names(count: int) -> list[int]:
        return list(range(count))

    with TestApp(app) as test:
        batch = app.sync.batch(names, count=count)
        test.sync.run_until_idle()
        assert batch.all(SOON).items == [0] * count
        test.assert_added(names, times=count)


def test_deadline_ends_a_batch_in_the_very_millisecond() -> None:
    app = App("shop", store="memory://")
    never = asyncio.Event()

    @app.task(batch=ONE_EACH)
    async def names(count: int) -> list[int]:
        if current_task().metadata["subtask_id"].endswith(":1"):
            await never.wait()
        return [1]

    with TestApp(app, patience=0.1) as test:
        batch = app.sync.batch(names, count=3, deadline=5)
        added = test.now()
        test.sync.advance(10)
        (coordinator,) = test.tasks("names:batch")
        assert batch.all(SOON).items == [1, 1]
    assert coordinator.ended_at is not None
    assert coordinator.ended_at - added == timedelta(seconds=5)
