"""Delays of events, and the cost of waiting for them: ``./dev bench events``. On SQLite, in one process."""

from __future__ import annotations

import asyncio
import tempfile
import time
from typing import Any

from benchmarks.report import Figure
from onthedot import App, current_task
from onthedot.events import Event, Events

HANDLED_TYPE = "Shop.Order.Placed"
ANSWER = "Shop.Order.Answered"
IDLE = 4.0  # seconds
SINGLE = 40  # events, one at a time


class Shop:
    """An app with a task and an agent that do nothing, and a task that waits for an event."""

    def __init__(self, folder: str, bus: str | None = None) -> None:
        self.app = App("bench", store=f"sqlite:///{folder}/bench.db", events=Events(bus=bus, results=(ANSWER,)))
        self.app.on_event(ANSWER, signal="answer:{n}")
        self.handled = 0
        self.all_handled = asyncio.Event()
        self.resumed: asyncio.Queue[float] = asyncio.Queue()
        self.wanted = 0
        self.task: Any = self.app.task(name="plain")(self._plain)
        self.waits: Any = self.app.task(name="waits")(self._waits)
        self.app.agent("shop", consumes=(HANDLED_TYPE,))(self._handle)

    def _count(self) -> None:
        self.handled += 1
        if self.handled == self.wanted:
            self.all_handled.set()

    async def _plain(self, number: int) -> None:  # noqa: ARG002
        self._count()

    async def _handle(self, event: Event) -> None:  # noqa: ARG002
        self._count()

    async def _waits(self, number: int) -> None:
        await current_task().wait_for(f"answer:{number}", timeout=60)
        await self.resumed.put(time.perf_counter())


def p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]


async def _answers(times: int) -> tuple[float, float]:
    """ms from the publish of an answer to the resumed run, p95; and the share of CPU while nothing happens, in %."""
    took: list[float] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        shop = Shop(folder)
        async with shop.app.running():
            handles = await shop.waits.enqueue_many([(n,) for n in range(times)])
            for handle in handles:
                while (await handle.info()).state != "waiting":  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            for number in range(times):
                began = time.perf_counter()
                await shop.app.publish(Event(ANSWER, {"n": number}, aggregate_id="1"))
                took.append((await shop.resumed.get() - began) * 1000)
            cpu = time.process_time()
            await asyncio.sleep(IDLE)
            idle = (time.process_time() - cpu) / IDLE * 100
    return p95(took), idle


def waits_sqlite(scale: float) -> list[Figure]:
    delay, idle = asyncio.run(_answers(max(5, int(SINGLE * scale))))
    return [
        Figure(delay, 0, "ms", "result event → waiting task runs, p95", 100, least=False, difference=True),
        Figure(idle, 0, "% CPU", "idle relay, subscription and callback service", 1, least=False, difference=True),
    ]


MEASURES = [waits_sqlite]
