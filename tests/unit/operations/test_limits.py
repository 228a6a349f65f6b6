"""Limits of an operator: changed at run time, in force at once, overriding the code field by field."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from onthedot import App, ArgumentError, AtMost, BadLimit, Rate
from onthedot.operations import Operations
from onthedot.operations.limits import LimitInfo
from tests.support.waits import every_chance, until

T = TypeVar("T")
NEVER = 3600.0  # seconds: no poll wakes a worker


class Shop:
    """An app whose tasks run until the gate opens, and operations without its code."""

    def __init__(self, store: str) -> None:
        self.app = App("shop", store=store, stop_timeout=5, poll_interval=NEVER)
        self.gate = asyncio.Event()
        self.running: list[str] = []

    def task(self, **options: Any) -> Any:
        async def work(key: str = "x") -> None:
            self.running.append(key)
            await self.gate.wait()
            self.running.remove(key)

        return self.app.task(**options)(work)

    async def operate(self, work: Callable[[Operations], Awaitable[T]]) -> T:
        return await self.app.runtime.portal.run(lambda client: work(Operations(client.store, "operator")))  # type: ignore[arg-type]

    async def set(self, name: str, key: str | None = None, **fields: Any) -> LimitInfo:
        return await self.operate(lambda operations: operations.limits.set(name, key, **fields))

    async def limits(self) -> dict[str, LimitInfo]:
        return {info.name: info for info in await self.operate(lambda operations: operations.limits.list())}

    async def busy(self, number: int) -> None:
        await until(lambda: len(self.running) == number)
        await every_chance()
        assert len(self.running) == number


@pytest.fixture(params=["memory", "sqlite"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    return Shop("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/shop.db")


async def test_raised_limit_starts_pending_tasks(shop: Shop) -> None:
    work = shop.task(concurrency=1)
    async with shop.app.running():
        handles = await work.enqueue_many([{}] * 6)
        await shop.busy(1)
        await shop.set("work", cap=4)
        await shop.busy(4)
        await shop.set("work", cap=None)  # the limit of the code again; running tasks go on
        await shop.busy(4)
        shop.gate.set()
        await asyncio.gather(*handles)


async def test_limit_can_be_set_for_one_key_each_key_or_a_shared_lane(shop: Shop) -> None:
    work = shop.task(limits=[AtMost(1, by="key")])
    shared = shop.task(name="shared", limits=[AtMost(1, name="bank")])
    async with shop.app.running():
        handles = await work.enqueue_many([{"key": key} for key in "aaabbb"])
        handles += await shared.enqueue_many([{"key": "c"}] * 3)
        await shop.busy(3)
        assert (await shop.set("work", "a", cap=2)).name == "work/a"
        await shop.busy(4)
        assert sorted(shop.running) == ["a", "a", "b", "c"]
        await shop.set("work/*", cap=3)
        await shop.busy(6)
        assert sorted(shop.running) == ["a", "a", "b", "b", "b", "c"]
        await shop.set("@bank", cap=3)
        await shop.busy(8)
        shop.gate.set()
        await asyncio.gather(*handles)


async def test_rate_of_the_operator_is_in_force_until_it_is_removed(shop: Shop) -> None:
    work = shop.task()
    async with shop.app.running():
        await shop.set("work", rate="1/h", burst=2)
        handles = await work.enqueue_many([{}] * 5)
        await shop.busy(2)
        await shop.set("work", rate=None)
        await shop.busy(5)
        shop.gate.set()
        await asyncio.gather(*handles)


async def test_limits_of_the_operator_override_code_field_by_field(shop: Shop) -> None:
    shop.task(concurrency=3, rate_limit="10/s")
    async with shop.app.running():
        assert await shop.limits() == {"work": LimitInfo("work", 3, 10.0, 10.0)}
        assert await shop.set("work", cap=5) == LimitInfo("work", 5, 10.0, 10.0, changed=("cap",))
        assert await shop.set("work", rate="120/m") == LimitInfo("work", 5, 2.0, 2.0, changed=("cap", "rate"))
        assert await shop.set("work", burst=7) == LimitInfo("work", 5, 2.0, 7.0, changed=("cap", "rate"))
        await shop.app.pause("work", reason="the bank is down")
        paused = LimitInfo(
            "work", 5, 2.0, 7.0, paused=True, reason="the bank is down", changed=("cap", "rate", "paused")
        )
        assert await shop.limits() == {"work": paused}
        await shop.app.resume("work")
        assert await shop.set("work", cap=None) == LimitInfo("work", 3, 2.0, 7.0, changed=("rate",))
        assert await shop.set("work", rate=None) == LimitInfo("work", 3, 10.0, 10.0)
        assert await shop.limits() == {"work": LimitInfo("work", 3, 10.0, 10.0)}


async def test_burst_alone_changes_the_rate_of_the_code(shop: Shop) -> None:
    shop.task(rate_limit="10/s")
    async with shop.app.running():
        assert await shop.set("work", burst=3) == LimitInfo("work", None, 10.0, 3.0, changed=("rate",))
        with pytest.raises(BadLimit, match="other has no rate, and a burst is one of a rate"):
            await shop.set("other", burst=3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"cap": 0}, "to stop a source, pause it"),
        ({"cap": "5"}, "whole number"),
        ({"rate": "often"}, "cannot be read"),
        ({"rate": "0/s"}, "lets nothing through"),
        ({"rate": "5/s", "burst": 0.5}, "more than burst"),
        ({"rate": "5/s", "burst": -1}, "burst"),
    ],
)
async def test_invalid_limits_are_refused(shop: Shop, fields: dict[str, Any], message: str) -> None:
    async with shop.app:
        with pytest.raises(BadLimit, match=message):
            await shop.set("work", **fields)
        assert await shop.limits() == {}


async def test_limit_of_an_unknown_lane_is_refused(shop: Shop) -> None:
    shop.task(concurrency=2)
    shop.task(name="other")
    shop.task(name="keyed", limits=[Rate("9/s", by="key", name="bank")])
    async with shop.app.running():
        for name, key, stored in (
            ("work", "acme", "work has no limits by key"),
            ("work/*", None, "work has no limits by key"),
            ("@nobody", None, "@nobody is no lane that tasks share"),
            ("@nobody", "acme", "@nobody is no lane that tasks share"),
            ("keyed", "acme", "the tasks of keyed go by the shared lane @bank: name that one instead"),
            ("a/b/c", None, "names no limit"),
            ("", None, "names no limit"),
            ("work/*", "acme", "names no limit"),
        ):
            with pytest.raises(ArgumentError, match=stored):
                await shop.set(name, key, cap=1)
            with pytest.raises(ArgumentError, match=stored):
                await shop.operate(lambda operations, name=name, key=key: operations.pause(name, key))
        assert (await shop.set("@bank", cap=1)).name == "@bank/*"
        assert (await shop.set("@bank", "a/b", cap=1)).name == "@bank/a%2Fb"


async def test_limits_of_the_own_code_are_known_before_a_worker_has_run(shop: Shop) -> None:
    work = shop.task(limits=[AtMost(1, by="key")])
    async with shop.app:
        await shop.app.pause("work", key="a", reason="asked to")
        handles = await work.enqueue_many([{"key": "a"}, {"key": "b"}])
        async with shop.app.running():
            await shop.busy(1)
            assert shop.running == ["b"]
            assert (await shop.limits())["work/a"].reason == "asked to"
            await shop.app.resume("work", key="a")
            await shop.busy(2)
            shop.gate.set()
            await asyncio.gather(*handles)


async def test_paused_shared_lane_stops_all_its_sources(shop: Shop) -> None:
    work = shop.task(limits=[AtMost(5, by="key", name="bank")])
    async with shop.app.running():
        await shop.operate(lambda operations: operations.pause("@bank", reason="closed"))
        handles = await work.enqueue_many([{"key": key} for key in "aab"])
        await every_chance()
        assert shop.running == []
        await shop.operate(lambda operations: operations.resume("@bank"))
        await shop.busy(3)
        shop.gate.set()
        await asyncio.gather(*handles)
