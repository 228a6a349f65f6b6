"""Agents, from the bus to the ends of their tasks, beside tasks that are added directly: ``./dev bench events``.

Costs are the CPU time of this process and of the database, without Kafka's.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.cpu_times import children_cpu
from benchmarks.event_paths import HANDLED_TYPE, Shop
from benchmarks.postgres import execute, server
from benchmarks.report import Figure
from onthedot import App
from onthedot.events import Event, Events
from tests.support.services import kafka_protocol
from tests.support.services.kafka_server import Broker

EVENTS = 10_000  # so many that the start of an app does not count
PARTITIONS = 8
TOPIC = "shop.order.events"
Cost = Callable[[], float]
"""Seconds of CPU so far."""


class Handling:
    """A store and a bus, with an app that publishes, one that handles, or one that adds tasks."""

    def __init__(self, store: str, bus: str | None, number: int, cost: Cost = time.process_time) -> None:
        self._store = store
        self._bus = bus
        self._number = number
        self._cost = cost
        self._handled = 0
        self._all_handled = asyncio.Event()

    def _app(self) -> App:
        return App("bench", store=self._store, events=Events(bus=self._bus))

    async def _handle(self, event: Event) -> None:  # noqa: ARG002
        self._count()

    async def _plain(self, number: int) -> None:  # noqa: ARG002
        self._count()

    def _count(self) -> None:
        self._handled += 1
        if self._handled == self._number:
            self._all_handled.set()

    async def cost_of_events(self) -> float:
        """From the first read of the bus until all tasks have ended: seconds per event, which are on the bus before."""
        await self._relay_all()
        if self._store.startswith("postgresql"):
            await execute(self._store, "VACUUM ANALYZE")  # what publishing has left would be cleaned up meanwhile
        return await self._cost_of(self._handle_all)

    async def cost_of_tasks(self) -> float:
        """Added and drained: seconds per task."""
        return await self._cost_of(self._add_and_drain)

    async def _cost_of(self, work: Callable[[], Awaitable[None]]) -> float:
        """Seconds per event or task."""
        self._handled = 0
        self._all_handled.clear()
        gc.collect()
        began = self._cost()
        await work()
        return (self._cost() - began) / self._number

    async def _relay_all(self) -> None:
        """Before the measure: all events, of distinct keys, are on the bus."""
        app = self._app()
        async with app.running():
            for first in range(0, self._number, 500):
                numbers = range(first, min(first + 500, self._number))
                await app.publish(*[Event(HANDLED_TYPE, {"n": n}, aggregate_id=str(n)) for n in numbers])
            while await app.operations.outbox.events(limit=1, status="pending"):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def _handle_all(self) -> None:
        app = self._app()
        app.agent("shop", consumes=(HANDLED_TYPE,))(self._handle)
        async with app.running():
            await self._all_handled.wait()

    async def _add_and_drain(self) -> None:
        app = self._app()
        task: Any = app.task(name="plain")(self._plain)
        async with app:
            await task.enqueue_many([(n,) for n in range(self._number)])
        async with app.running():
            await self._all_handled.wait()


def _beside_tasks(ours: float, plain: float, against: str, target: float | None) -> Figure:
    return Figure(1 / ours, 1 / plain, "/s of CPU", against, target, least=True)


def _on_sqlite(bus: str | None, number: int) -> tuple[float, float]:
    """Of events and of tasks, each on its own file."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        ours = asyncio.run(Handling(f"sqlite:///{folder}/events.db", bus, number).cost_of_events())
        plain = asyncio.run(Handling(f"sqlite:///{folder}/tasks.db", None, number).cost_of_tasks())
    return ours, plain


def agents_sqlite(scale: float) -> list[Figure]:
    number = max(100, int(EVENTS * scale))
    ours, plain = _on_sqlite(None, number)
    relayed = asyncio.run(_drained(_publish, number))
    added = asyncio.run(_drained(_enqueue, number))
    return [
        _beside_tasks(ours, plain, "subscription to end, distinct keys, beside enqueue_many and drain", 0.5),
        _beside_tasks(relayed, added, "events relayed and handled by an agent beside enqueue_many and drain", None),
    ]


def agents_kafka(scale: float) -> list[Figure]:
    """Events come from Kafka; their tasks are in SQLite."""
    broker = Broker()
    try:
        broker.start()
        kafka_protocol.create_topic(broker.address, TOPIC, PARTITIONS)
        ours, plain = _on_sqlite(f"kafka://{broker.address}", max(100, int(EVENTS * scale)))
    finally:
        broker.close()
    against = "subscription to end from Kafka, beside enqueue_many and drain without Kafka"
    return [_beside_tasks(ours, plain, against, 0.5)]


def agents_postgres(scale: float) -> list[Figure]:
    """Each on its own server."""
    number = max(100, int(EVENTS * scale))
    with server() as url:
        ours = asyncio.run(Handling(url, None, number, _with_children).cost_of_events())
    with server() as url:
        plain = asyncio.run(Handling(url, None, number, _with_children).cost_of_tasks())
    return [_beside_tasks(ours, plain, "subscription to end, distinct keys, beside enqueue_many and drain", 0.5)]


def _with_children() -> float:
    return time.process_time() + children_cpu(besides=0)


async def _drained(add: Callable[[Shop, int], Awaitable[object]], number: int) -> float:
    """Seconds of CPU per task. Published events are not counted, but all that follows is; added tasks are."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        shop = Shop(folder)
        shop.wanted = number
        gc.collect()
        began = time.process_time()
        async with shop.app:
            await add(shop, number)
        if add is _publish:
            gc.collect()
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


MEASURES = [agents_sqlite, agents_kafka, agents_postgres]
