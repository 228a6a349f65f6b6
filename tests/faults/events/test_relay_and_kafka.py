"""The relay while Kafka is away, refuses an event, or lacks a topic."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

import pytest

from onthedot import App
from onthedot.events import Event, Events
from tests.faults import LONG, scaled
from tests.faults.events.relay_processes import APP, RelayProcess, RelayProcesses, RelayReport, read_topic
from tests.support.services import kafka as kafka_service, kafka_protocol
from tests.support.services.kafka import KafkaService
from tests.support.services.kafka_server import Broker
from tests.support.waits import until

pytestmark = [pytest.mark.fault, pytest.mark.timed, pytest.mark.timeout(600 if LONG else 180)]

KEYS = 40
DOWN = scaled(6, 30)  # seconds; a relay reports a silence of 5
FAULTS = ["stop", "kill", "kill"] if LONG else ["kill"]
GROWTH = 20_000  # kB that a relay may use more while Kafka is away: it holds 2,000 events
STORES = ["postgres", "sqlite"] if LONG else ["postgres"]
ORDERS, STOCK, NOWHERE = (f"{kind}-{os.getpid()}" for kind in ("orders", "stock", "nowhere"))
TOPICS = {"Shop.Order.*": ORDERS, "Shop.Stock.*": STOCK, "Shop.Invoice.*": NOWHERE}


def create_topics(address: str) -> None:
    kafka_protocol.create_topic(address, ORDERS, 2, {"max.message.bytes": "50000"})
    kafka_protocol.create_topic(address, STOCK, 2)


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker that the test may stop."""
    with kafka_service.broker() as broker:
        create_topics(broker.address)
        yield broker


@pytest.fixture
def address(kafka: KafkaService) -> Iterator[str]:
    """Of the broker that other tests use, too."""
    before = kafka_protocol.topics(kafka.address)
    create_topics(kafka.address)
    yield kafka.address
    kafka.delete_others(before)


@pytest.fixture(params=STORES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App[Any]]:
    if request.param == "sqlite":
        yield App(APP, store=f"sqlite:///{tmp_path}/shop.db", events=Events(topics=TOPICS))
        return
    with request.getfixturevalue("postgres").database() as database:
        yield App(APP, store=database, events=Events(topics=TOPICS))


@asynccontextmanager
async def relaying(app: App[Any], address: str, folder: Path) -> AsyncIterator[tuple[RelayProcesses, RelayProcess]]:
    async with app:
        await app.publish(Event("Shop.Stock.Changed", 0, aggregate_id="first"))
        with RelayProcesses(folder, app.runtime.url, f"kafka://{address}") as relays:
            yield relays, await asyncio.to_thread(relays.start)


async def is_sent(app: App[Any]) -> bool:
    return (await app.operations.outbox.status()).pending == 0


class Publisher:
    """Publishes 100 events per second, and notes how long each publish takes."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self.published = {f"k{number}": 0 for number in range(KEYS)}
        self.times: list[float] = []
        self._is_running = True

    async def run(self) -> None:
        while self._is_running:
            key = f"k{sum(self.published.values()) % KEYS}"
            began = time.perf_counter()
            await self._app.publish(Event("Shop.Order.Placed", self.published[key], aggregate_id=key))
            self.times.append(time.perf_counter() - began)
            self.published[key] += 1
            await asyncio.sleep(0.01)

    def stop(self) -> None:
        self._is_running = False

    async def p95(self, seconds: float) -> float:
        """Of the publishes of the next seconds."""
        self.times.clear()
        await asyncio.sleep(seconds)
        return quantiles(self.times, n=20)[-1]


def memory(pid: int) -> int:
    """In kB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


async def test_kafka_away_under_load(app: App[Any], broker: Broker, tmp_path: Path) -> None:
    """Publishing goes on as before, and nothing piles up in the relay, which ends soon if it must.

    All is sent soon after Kafka is back.
    """
    async with relaying(app, broker.address, tmp_path) as (relays, relay):
        publisher = Publisher(app)
        publishing = asyncio.create_task(publisher.run())
        usual = await publisher.p95(scaled(2, 10))
        notes = [f"publish p95 {usual * 1000:.1f} ms"]
        for fault in FAULTS:
            before = memory(relay.process.pid)
            await asyncio.to_thread(broker.stop if fault == "stop" else broker.kill)
            away = await publisher.p95(DOWN)
            grown = memory(relay.process.pid) - before
            assert grown < GROWTH, f"{grown} kB"
            assert away < max(1.5 * usual, usual + 0.02)
            assert "the bus does not answer" in relay.log.read_text()
            restarted = asyncio.create_task(asyncio.to_thread(broker.start))
            if fault is FAULTS[0]:
                notes.append(f"relay ended in {await end(relay):.1f} s")
                relay = await asyncio.to_thread(relays.start)
            await restarted
            seconds = await caught_up(app)
            notes.append(f"{fault}: {away * 1000:.1f} ms, + {grown} kB, all sent {seconds:.1f} s after the start")
            assert seconds < 5
        publisher.stop()
        await publishing
        await until(lambda: is_sent(app))
        report = RelayReport(f"{app.runtime.url.partition(':')[0]}, Kafka away", publisher.published, notes=notes)
        report.read(await read_topic(broker.address, ORDERS)).check()


async def end(relay: RelayProcess) -> float:
    """By SIGTERM; the seconds that it takes."""
    began = time.monotonic()
    assert await asyncio.to_thread(relay.end, signal.SIGTERM) == 0
    seconds = time.monotonic() - began
    assert seconds < 3
    return seconds


async def caught_up(app: App[Any]) -> float:
    """The seconds until few events wait; 100 per second are published meanwhile."""

    async def has_caught_up() -> bool:
        return (await app.operations.outbox.status()).pending < 50

    return await until(has_caught_up)


async def test_event_that_is_too_large_fails_alone(app: App[Any], address: str, tmp_path: Path) -> None:
    """Its key is blocked until it is discarded; other keys of its partition go on."""
    async with relaying(app, address, tmp_path):
        large = Event("Shop.Order.Placed", ["x" * 60_000], aggregate_id="k0", id="large")
        await app.publish(*[Event("Shop.Order.Placed", 0, aggregate_id=f"k{number}") for number in range(KEYS)])
        await app.publish(large)
        began = time.monotonic()
        await app.publish(*[Event("Shop.Order.Placed", 1, aggregate_id=f"k{number}") for number in range(KEYS)])

        async def others_are_sent() -> bool:
            status = await app.operations.outbox.status()
            return (status.pending, status.failed) == (1, 1)

        await until(others_are_sent)
        seconds = time.monotonic() - began
        print(f"\nothers sent {seconds:.2f} s after the refusal")
        (failed,) = await app.operations.outbox.events(status="failed")
        assert failed.id == "large"
        assert "large" in failed.error.lower()
        assert await app.operations.outbox.discard("large", reason="in a test") == ["large"]
        await until(lambda: is_sent(app))
        report = RelayReport("too large", {f"k{number}": 2 for number in range(KEYS)})
        report.read(await read_topic(address, ORDERS)).check()
        assert seconds < scaled(3, 1)


async def test_missing_topic_delays_no_other(app: App[Any], address: str, tmp_path: Path) -> None:
    async with relaying(app, address, tmp_path) as (_, relay):

        async def p95() -> float:
            times = []
            for number in range(scaled(40, 200)):
                (event_id,) = await app.publish(Event("Shop.Stock.Changed", number, aggregate_id="s"))
                began = time.monotonic()
                await until(partial(is_marked, app, event_id), 10)
                times.append(time.monotonic() - began)
            return quantiles(times, n=20)[-1]

        usual = await p95()
        await app.publish(*[Event("Shop.Invoice.Sent", number, aggregate_id=f"i{number}") for number in range(500)])
        await until(lambda: f"[topic] {NOWHERE} not available, next try in" in relay.log.read_text())
        beside = await p95()
        print(f"\ncommit → marked p95 {usual * 1000:.1f} ms, beside a missing topic {beside * 1000:.1f} ms")
        assert beside < 2 * usual + 0.02
        kafka_protocol.create_topic(address, NOWHERE, 1)
        await until(lambda: is_sent(app))


async def is_marked(app: App[Any], event_id: str) -> bool:
    return not [each for each in await app.operations.outbox.events(status="pending") if each.id == event_id]
