"""The last member of a flow that settles in a transaction on Postgres, which others do not wait for."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator

import asyncpg
import pytest

from onthedot import App, AsyncFlowHandle, current_task, group
from tests.faults import scaled
from tests.support.services.postgres import Service
from tests.support.waits import until

pytestmark = pytest.mark.once

AT_ONCE = 0.1  # seconds that an add or a turn of others may take


class Shop:
    def __init__(self, url: str) -> None:
        self.app = App("shop", store=url, stop_timeout=0)
        self.totals: list[int] = []
        self.settled = asyncio.Event()
        self.may_end = asyncio.Event()

        @self.app.task
        async def hold(number: int, fail: bool) -> int:
            connection = await asyncpg.connect(url)
            try:
                async with connection.transaction():
                    await current_task().complete(number, connection=connection)
                    self.settled.set()
                    await self.may_end.wait()
                    if fail:
                        raise ValueError("rolled back")
            finally:
                await connection.close()
            return number

        @self.app.task
        async def double(number: int) -> int:
            return number * 2

        @self.app.task
        async def total(numbers: list[int]) -> int:
            self.totals.append(sum(numbers))
            return sum(numbers)

        self.hold = hold
        self.double = double
        self.total = total

    async def held(self, fail: bool = False) -> AsyncFlowHandle[int]:
        """A flow whose last member has settled in a transaction that is open."""
        handle = await (group([self.hold.s(7, fail), self.double.s(1)]) | self.total).enqueue()
        await self.settled.wait()
        return handle


@pytest.fixture
def shop(postgres: Service) -> Iterator[Shop]:
    with postgres.database() as url:
        yield Shop(url)


@pytest.mark.parametrize("fail", [False, True])
async def test_last_task_starts_after_the_commit_and_not_before(shop: Shop, fail: bool) -> None:
    async with shop.app.running():
        handle = await shop.held(fail)
        for number in range(5):  # each makes the worker take turns, in which it would find the wait to be over
            assert await (await shop.double.enqueue(number)) == number * 2
        assert await handle.state() == "waiting"
        assert (await handle.progress()).done == 1
        assert shop.totals == []
        shop.may_end.set()
        await until(handle.done)
        assert await handle.state() == ("cancelled" if fail else "succeeded")
    assert shop.totals == ([] if fail else [9])


@pytest.mark.long
@pytest.mark.timed
async def test_others_do_not_wait_for_the_open_transaction(shop: Shop) -> None:
    """A busy machine may delay single calls, but a lock would delay all of them; therefore the medians are tested."""
    held_open = scaled(500, 5_000) / 1000
    adds: list[float] = []
    turns: list[float] = []
    async with shop.app.running():
        handle = await shop.held()
        began = time.perf_counter()
        while time.perf_counter() - began < held_open or len(adds) < 5:
            start = time.perf_counter()
            other = await (group([shop.double.s(1), shop.double.s(2)]) | shop.total).enqueue()
            added = time.perf_counter()
            assert await other == 6
            adds.append(added - start)
            turns.append((time.perf_counter() - added) / 2)  # one for the members and one for what follows them
        assert await handle.state() == "waiting"
        shop.may_end.set()
        assert await handle == 9
    for name, seconds in {"add": adds, "turn": turns}.items():
        print(f"{name}: median {statistics.median(seconds) * 1e3:.1f} ms, worst {max(seconds) * 1e3:.1f} ms")
        assert statistics.median(seconds) < AT_ONCE, name
