"""Events from publish to the code that handles them: ``./dev bench events``. On SQLite, in one process, in one run."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.report import Figure
from onthedot import App, current_task
from onthedot.events import Event, Events
from tests.support.services.kafka_server import Broker

HANDLED = 3000
HANDLED_TYPE = "Shop.Order.Placed"
ANSWER = "Shop.Order.Answered"
IDLE = 4.0  # seconds
SINGLE = 40  # events, one at a time


class Shop:
    """An app with a task and an agent that do nothing, and a task that waits for an event."""

    def __init__(self, folder: Path, bus: str | None = None) -> None:
        self.app = App("bench", store=f"sqlite:///{folder}/bench.db", events=Events(bus=bus, results=(ANSWER,)))
        self.app.on_event(ANSWER, signal="answer:{n}")
        self.handled = 0
        self.all_handled = asyncio.Event()
        self.resumed: asyncio.Queue[float] = asyncio.Queue()
        self.wanted = HANDLED
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


def _p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]


async def _drained(add: Callable[[Shop, int], Awaitable[object]], number: int) -> float:
    """Seconds of CPU per task. Published events are not counted, but all that follows is; added tasks are."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        shop = Shop(Path(folder))
        shop.wanted = number
        began = time.process_time()
        async with shop.app:
            await add(shop, number)
        if add is _publish:
            began = time.process_time()
        async with shop.app.running():
            await shop.all_handled.wait()
        return (time.process_time() - began) / number


async def _publish(shop: Shop, number: int) -> None:
    for first in range(0, number, 500):
        events = [Event(HANDLED_TYPE, {"n": n}, aggregate_id=str(n)) for n in range(first, min(first + 500, number))]
        await shop.app.publish(*events)


async def _enqueue(shop: Shop, number: int) -> None:
    await shop.task.enqueue_many([(n,) for n in range(number)])


def agents_sqlite(scale: float) -> list[Figure]:
    """Relay, subscription, task and end, beside tasks that were added directly."""
    number = max(100, int(HANDLED * scale))
    ours = asyncio.run(_drained(_publish, number))
    plain = asyncio.run(_drained(_enqueue, number))
    against = "events relayed and handled by an agent beside enqueue_many and drain"
    return [Figure(1 / ours, 1 / plain, "/s of CPU", against, 0.5, least=True)]


async def _answers(times: int) -> tuple[float, float]:
    """ms from the publish of an answer to the resumed run, p95; and the share of CPU while nothing happens, in %."""
    took: list[float] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        shop = Shop(Path(folder))
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
    return _p95(took), idle


def waits_sqlite(scale: float) -> list[Figure]:
    delay, idle = asyncio.run(_answers(max(5, int(SINGLE * scale))))
    return [
        Figure(delay, 0, "ms", "result event → waiting task runs, p95", 100, least=False, difference=True),
        Figure(idle, 0, "% CPU", "idle relay, subscription and callback service", 1, least=False, difference=True),
    ]


async def _acknowledged(address: str, times: int) -> float:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        shop = Shop(Path(folder), f"kafka://{address}?create_topics=true")
        async with shop.app.running():
            for number in range(times + 1):
                shop.wanted = number + 1
                shop.all_handled.clear()
                await shop.app.publish(Event(HANDLED_TYPE, {"n": number}, aggregate_id="1"))
                await shop.all_handled.wait()
                await asyncio.sleep(0.05)  # single events on an idle relay
            events = await shop.app.operations.outbox.events(limit=1000)
    took = [(each.sent_at - each.occurred_at).total_seconds() * 1000 for each in events if each.sent_at is not None]
    assert len(took) == times + 1
    return _p95(took[1:])  # the first one creates the topic


def acknowledged_kafka(scale: float) -> list[Figure]:
    broker = Broker()
    try:
        broker.start()
        delay = asyncio.run(_acknowledged(broker.address, max(5, int(SINGLE * scale))))
    finally:
        broker.close()
    return [Figure(delay, 0, "ms", "event made → marked as sent to Kafka, idle, p95", 20, least=False, difference=True)]


MEASURES = [agents_sqlite, waits_sqlite, acknowledged_kafka]
