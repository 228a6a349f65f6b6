"""Relays are killed and stopped while events are written, also by transactions that commit late.

No event is lost, the first copies of a key are in order, and every copy has the id of the first.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from onthedot import App
from onthedot.events import Event, Events
from tests.faults import LONG, scaled
from tests.faults.events.conftest import LEASE, Place
from tests.faults.events.relay_processes import APP, RelayProcess, RelayProcesses, RelayReport
from tests.support.waits import until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(900 if LONG else 240)]

EVENTS = scaled(300, 5_000)
KEYS = scaled(20, 200)
KILLS = scaled(2, 20)
WRITERS = scaled(5, 20)
PACE = 0.1  # seconds between two events of a writer, at most
LATE = 0.3  # seconds for which a transaction stays open, at most
SEEDS = range(scaled(1, 3))
PLACES = [("sqlite", "store"), ("postgres", "kafka")]
if LONG:
    PLACES += [("postgres", "store"), ("sqlite", "kafka")]


class Writers:
    """Publish numbers per key, each after the one before it was committed; some transactions commit late.

    They go on until `stop`, and until there are enough events.
    """

    def __init__(self, app: App[Any], database: str, seed: int) -> None:
        self._app = app
        self._database = database
        self._random = random.Random(seed)
        self.published = {f"k{number}": 0 for number in range(KEYS)}
        self.late = 0
        self._is_stopped = False

    def stop(self) -> None:
        self._is_stopped = True

    async def run(self) -> None:
        keys = list(self.published)
        async with asyncio.TaskGroup() as tasks:
            for number in range(WRITERS):
                tasks.create_task(self._write(keys[number::WRITERS]))

    async def _write(self, keys: list[str]) -> None:
        async with self._connection() as publish:
            while not self._is_stopped or sum(self.published.values()) < EVENTS:
                key = self._random.choice(keys)
                number = self.published[key]
                event = Event("Shop.Order.Placed", number, aggregate_id=key)
                is_late = self._random.random() < 0.1
                await publish(event, self._random.random() * LATE if is_late else None)
                self.late += is_late
                self.published[key] += 1
                await asyncio.sleep(self._random.random() * PACE)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Callable[[Event[int], float | None], Any]]:
        if self._database.startswith("sqlite"):
            yield self._publish_to_file
            return
        import asyncpg

        connection = await asyncpg.connect(self._database)

        async def publish(event: Event[int], late: float | None) -> None:
            async with connection.transaction():
                await self._app.publish(event, connection=connection)
                if late is not None:
                    await asyncio.sleep(late)

        try:
            yield publish
        finally:
            await connection.close()

    async def _publish_to_file(self, event: Event[int], late: float | None) -> None:
        """SQLite has one writer at a time: a late commit delays all others, so it is less late here."""
        if late is None:
            await self._app.publish(event)
            return
        path = self._database.removeprefix("sqlite:///")

        def work() -> None:
            with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                self._app.sync.publish(event, connection=connection)
                time.sleep(late / 10)
                connection.execute("COMMIT")

        await asyncio.to_thread(work)


class Load(NamedTuple):
    relays: RelayProcesses
    running: list[RelayProcess]
    have_buckets: Callable[[], Awaitable[bool]]  # both relays


@asynccontextmanager
async def load(place: Place, folder: Path, seed: int) -> AsyncIterator[Load]:
    """Writers and two relays at work. At the end all events are sent."""
    app = App(APP, store=place.store, events=Events(topics={"Shop.Order.*": place.topic}))
    async with app:
        writers = Writers(app, place.database, seed)
        await app.publish(Event("Shop.Order.Placed", 0, aggregate_id="k0"))
        writers.published["k0"] = 1
        with RelayProcesses(folder, place.store, place.bus) as relays:
            running = list(await asyncio.gather(*[asyncio.to_thread(relays.start) for _ in range(2)]))
            writing = asyncio.create_task(writers.run())

            async def have_buckets() -> bool:
                found = (await app.operations.outbox.status()).relays
                return len(found) == 2 and all(relay.buckets for relay in found)

            await until(have_buckets)
            yield Load(relays, running, have_buckets)
            assert not writing.done()
            writers.stop()
            await writing

            async def is_sent() -> bool:
                return (await app.operations.outbox.status()).pending == 0

            await until(is_sent, 60)
        report = RelayReport(place.name, writers.published).read(await place.read(app))
        report.notes = [f"{len(relays.all)} relays", f"{writers.late} late commits"]
        report.check()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("place", PLACES, indirect=True, ids="-".join)
async def test_events_survive_killed_relays_in_order(place: Place, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with load(place, tmp_path, seed) as (relays, running, _):
        for _ in range(KILLS):
            await asyncio.sleep(chance.random())
            await asyncio.to_thread(running.pop(chance.randrange(2)).end, signal.SIGKILL)
            running.append(await asyncio.to_thread(relays.start))


@pytest.mark.parametrize("place", [("postgres", "kafka")], indirect=True, ids="-".join)
async def test_stopped_relay_that_continues_sends_copies_at_most(place: Place, tmp_path: Path) -> None:
    """Others have its buckets meanwhile. On SQLite a stopped process keeps its lock, so its events wait for it."""
    async with load(place, tmp_path, 7) as (_, (first, _), have_buckets):
        for number in range(scaled(1, 3)):
            first.send_signal(signal.SIGSTOP)
            await asyncio.sleep(3 * LEASE)
            first.send_signal(signal.SIGCONT)
            await until(lambda count=number + 1: first.log.read_text().count("is lost") >= count)  # its session
            await until(have_buckets)
