"""Limits of code: stored under every name of a source, removed with the code, in force without it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from onthedot import App, AtMost, BadLimit, BaseTaskConsumer, Rate, Scheduler, Task, TaskConsumerRegistry
from onthedot.clock.manual import ManualClock
from onthedot.stores.contract import Limit
from tests.support.waits import every_chance, until


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/shop.db"


async def stored(app: App) -> dict[str, Limit]:
    limits = await app.runtime.portal.run(lambda client: client.store.limits())
    return {limit.name: limit for limit in limits if limit.owner == "code"}


class Crowd:
    """A task that is busy until the gate opens, and says how many were at it at once."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.now: list[str] = []
        self.most: dict[str, int] = {}

    async def work(self, key: str) -> None:
        self.now.append(key)
        self.most[key] = max(self.most.get(key, 0), self.now.count(key))
        await self.gate.wait()
        self.now.remove(key)


def app_with(store: str, crowd: Crowd, **options: Any) -> App:
    app = App("shop", store=store, stop_timeout=5)

    async def work(key: str) -> None:
        await crowd.work(key)

    app.task(**options)(work)
    return app


async def test_limits_removed_from_code_are_removed_from_the_store(store: str) -> None:
    for options, names in (
        ({"concurrency": 1, "limits": [AtMost(1, by="key")]}, {"work", "work/*"}),
        ({"rate_limit": "5/s"}, {"work"}),
        ({}, set()),
    ):
        crowd = Crowd()
        app = app_with(store, crowd, **options)
        async with app.running():
            found = await stored(app)
            binding = {n for n, limit in found.items() if limit.cap is not None or limit.rate is not None}
            assert binding == names
            if not names:
                handles = [await app.named("work").enqueue(key="x") for _ in range(3)]
                await until(lambda crowd=crowd: len(crowd.now) == 3)
                crowd.gate.set()
                await asyncio.gather(*handles)


async def test_limits_of_the_operator_survive_a_change_of_code(store: str) -> None:
    for options in ({"concurrency": 5}, {}):
        app = app_with(store, crowd := Crowd(), **options)
        async with app.running():
            await app.runtime.portal.run(lambda client: client.operations.limits.set("work", cap=1))
            handles = [await app.named("work").enqueue(key="x") for _ in range(3)]
            await until(lambda: crowd.now)
            await every_chance()
            assert crowd.now == ["x"]
            crowd.gate.set()
            await asyncio.gather(*handles)
            assert crowd.most == {"x": 1}


async def test_limits_of_another_app_are_not_touched(store: str) -> None:
    first = App("one", store=store)
    second = App("two", store=store)
    first.task(concurrency=2)(_nothing)
    second.task(_nothing)
    async with first.running(), second.running():
        assert (await stored(first))["_nothing"].cap == 2


async def _nothing() -> None: ...


async def test_an_alias_is_limited_too(store: str) -> None:
    crowd = Crowd()
    app = App("shop", store=store, stop_timeout=5)

    @app.task(name="new", aliases=("old",), concurrency=2, limits=[AtMost(1, by="key")])
    async def work(key: str) -> None:
        await crowd.work(key)

    elsewhere = App("shop", store=store)
    async with app.running(), elsewhere:
        found = await stored(app)
        assert {name: limit.cap for name, limit in found.items()} == {"new": 2, "new/*": 1, "old": 2, "old/*": 1}
        handles = [await elsewhere.named("old").enqueue(key=key) for key in ("a", "a", "b", "c")]
        await until(lambda: len(crowd.now) == 2)
        await every_chance()
        assert sorted(crowd.now) == ["a", "b"]
        crowd.gate.set()
        await asyncio.gather(*handles)
        assert crowd.most == {"a": 1, "b": 1, "c": 1}


LANES: Sequence[tuple[dict[str, Any], str]] = [
    ({"limits": [AtMost(1, by="key")]}, "work/x"),
    ({"limits": [AtMost(1, by="key", name="bank")]}, "@bank/x"),
    ({"limits": [AtMost(1, name="bank")]}, "@bank"),
]


@pytest.mark.parametrize(("options", "lane"), LANES)
async def test_remote_task_takes_the_lane_of_its_code(store: str, options: dict[str, Any], lane: str) -> None:
    crowd = Crowd()
    app = app_with(store, crowd, **options)
    elsewhere = App("shop", store=store)
    async with app.running(), elsewhere:
        one = [await elsewhere.named("work").enqueue(key="x") for _ in range(2)]
        one += await elsewhere.named("work").enqueue_many([{"key": "x"}] * 2)
        one += await elsewhere.enqueue_many([elsewhere.named("work").s(key="x")])
        assert {(await handle.info()).lane for handle in one} == {lane}
        await until(lambda: crowd.now)
        await every_chance()
        crowd.gate.set()
        await asyncio.gather(*one)
        assert crowd.most == {"x": 1}


async def test_remote_task_has_the_cost_and_defaults_of_its_code(store: str) -> None:
    app = App("shop", store=store)
    elsewhere = App("shop", store=store)

    @app.task(limits=[Rate("10/s", name="api", by="customer", burst=20, cost="tokens")])
    async def ask(question: str, customer: str = "no/body", tokens: int = 7) -> None: ...

    async with app.running():
        pass
    async with elsewhere:
        named = elsewhere.named("ask")
        handle = await named.enqueue(question="?")
        assert (await handle.info()).lane == "@api/no%2Fbody" == (await (await ask.enqueue("?")).info()).lane
        records = await elsewhere.runtime.portal.run(lambda client: client.store.get([handle.uuid]))
        assert records[0].policy.cost == 7
        with pytest.raises(BadLimit, match="cost 21 is more than burst 20"):
            await named.enqueue(question="?", tokens=21)
    app.shutdown()


async def test_task_of_a_remote_consumer_takes_its_lane(store: str) -> None:
    class Email(BaseTaskConsumer):
        name = "email"
        limits = (AtMost(1, by="to"),)

        async def consume(self, task: Task) -> None: ...

    there = Scheduler(store=store, registry=registry_of(Email()))
    here = Scheduler(store=store, registry=registry_of())
    await there.start()
    handle = await here.add(Task("email", {"to": "ann"}))
    await there.stop()
    assert handle.info().lane == "email/ann"
    for scheduler in (there, here):
        scheduler.runtime.portal.close()


def registry_of(*consumers: BaseTaskConsumer) -> TaskConsumerRegistry:
    registry = TaskConsumerRegistry()
    for consumer in consumers:
        registry.register(consumer)
    return registry


# -- a lane that several tasks share


async def test_limits_of_a_shared_lane_are_merged(app: App, clock: ManualClock) -> None:
    app.task(name="one", limits=[AtMost(3, name="gpu")])(_nothing)
    app.task(name="two", limits=[Rate("10/s", name="gpu", burst=4)])(_nothing)
    app.task(name="three", limits=[AtMost(3, name="gpu"), Rate("10/s", name="gpu", burst=4)])(_nothing)
    async with app.running():
        assert (await stored(app))["@gpu"] == Limit("@gpu", 3, 10.0, 4.0)


def test_contradicting_limits_of_a_shared_lane_are_refused(app: App) -> None:
    app.task(name="one", limits=[AtMost(3, name="gpu")])(_nothing)
    with pytest.raises(BadLimit, match="two: the shared lane @gpu has at most 3 elsewhere and at most 4 here"):
        app.task(name="two", limits=[AtMost(4, name="gpu")])(_nothing)
    app.task(name="two", limits=[Rate("10/s", name="gpu")])(_nothing)
    with pytest.raises(BadLimit, match="10/s with burst 10 elsewhere and 10/s with burst 5 here"):
        app.task(name="three", limits=[Rate("10/s", name="gpu", burst=5)])(_nothing)


def test_contradicting_limits_of_consumers_are_refused() -> None:
    class One(BaseTaskConsumer):
        name = "one"
        limits = (AtMost(3, name="gpu"),)

        async def consume(self, task: Task) -> None: ...

    class Two(One):
        name = "two"
        limits = (AtMost(4, name="gpu"),)

    with pytest.raises(BadLimit, match="two: the shared lane @gpu"):
        registry_of(One(), Two())
