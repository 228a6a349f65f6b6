"""Runs with the same timeout share a timer, and each is ended at its own time."""

from __future__ import annotations

import asyncio

from onthedot import App
from onthedot.clock.manual import ManualClock
from tests.support.waits import every_chance, until


class Hanging:
    """An app on a manual clock with tasks that run until they time out, or are released."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.app = App("hanging", store="memory://")
        self.began: list[str] = []
        self.ended: list[str] = []  # by their timeout
        self.gates: dict[str, asyncio.Event] = {}
        self.short = self.app.task(name="short", timeout=30, max_retries=0)(self._hang)
        self.long = self.app.task(name="long", timeout=60, max_retries=0)(self._hang)

    async def _hang(self, name: str) -> None:
        self.began.append(name)
        gate = self.gates[name] = asyncio.Event()
        try:
            await gate.wait()
        except asyncio.CancelledError:
            self.ended.append(name)
            raise

    async def begin(self, name: str, *, long: bool = False) -> None:
        await (self.long if long else self.short).enqueue(name)
        await until(lambda: name in self.began)

    async def advance(self, seconds: float) -> list[str]:
        """The runs that have timed out so far."""
        self.clock.advance(seconds * 1000)
        await every_chance()
        return self.ended


async def test_each_run_ends_at_its_own_time(clock: ManualClock) -> None:
    tasks = Hanging(clock)
    with tasks.app.override(clock=clock):
        async with tasks.app.running():
            await tasks.begin("a")
            await tasks.begin("slow", long=True)
            await tasks.advance(10)
            await tasks.begin("b")
            assert await tasks.advance(19.999) == []
            assert await tasks.advance(0.001) == ["a"]
            assert await tasks.advance(9.999) == ["a"]
            assert await tasks.advance(0.001) == ["a", "b"]
            await tasks.begin("c")
            assert await tasks.advance(19.999) == ["a", "b"]
            assert await tasks.advance(0.001) == ["a", "b", "slow"]
            assert await tasks.advance(10) == ["a", "b", "slow", "c"]


async def test_runs_after_one_that_has_ended_keep_their_times(clock: ManualClock) -> None:
    tasks = Hanging(clock)
    with tasks.app.override(clock=clock):
        async with tasks.app.running():
            await tasks.begin("first")
            await tasks.advance(10)
            await tasks.begin("second")
            tasks.gates["first"].set()
            await tasks.advance(10)
            await tasks.begin("third")
            assert await tasks.advance(19.999) == []
            assert await tasks.advance(0.001) == ["second"]
            assert await tasks.advance(9.999) == ["second"]
            assert await tasks.advance(0.001) == ["second", "third"]
