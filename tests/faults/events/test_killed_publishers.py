"""A committed event is one message of the bus, also if its publisher dies at once; nothing else is sent."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path
from subprocess import run

import pytest

from onthedot import App
from onthedot.events import Event, Events
from tests.faults import scaled
from tests.faults.events.conftest import Place
from tests.faults.events.relay_processes import APP, RelayProcesses, Sent
from tests.support.sync_callers import by_driver
from tests.support.waits import SOON, until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[3]
PROGRAM = "tests.support.programs.killed_publisher"
HELD_OPEN = scaled(1, 10)  # seconds
in_order = pytest.mark.parametrize("place", [("sqlite", "kafka"), ("postgres", "kafka")], indirect=True, ids="-".join)
late = pytest.mark.parametrize("place", [("postgres", "kafka"), ("postgres", "store")], indirect=True, ids="-".join)


def order(number: int, key: str = "k") -> Event[int]:
    return Event("Shop.Order.Placed", number, aggregate_id=key, id=f"e{number}")


def new_app(place: Place) -> App[None]:
    return App(APP, store=place.store, events=Events(topics={"Shop.Order.*": place.topic}))


async def statuses(app: App[None]) -> dict[str, str]:
    return {row.id: row.status for row in await app.operations.outbox.events()}


def publish_and_die(place: Place, number: int, point: str) -> None:
    arguments = [place.store, place.database, place.topic, str(number), point]
    killed = run([sys.executable, "-m", PROGRAM, *arguments], cwd=ROOT, check=False, timeout=SOON)
    assert killed.returncode == -signal.SIGKILL


def create_table(place: Place) -> None:
    with by_driver(place.database) as caller:
        caller.run("CREATE TABLE sale (number int)")
        caller.commit()


def sales(place: Place) -> list[int]:
    with by_driver(place.database) as caller:
        return [number for (number,) in caller.run("SELECT number FROM sale ORDER BY number")]


def publish_and_end(app: App[None], place: Place, number: int, end: str) -> None:
    with by_driver(place.database) as caller:
        caller.run(f"INSERT INTO sale VALUES ({number})")
        app.sync.publish(order(number), connection=caller.connection)
        getattr(caller, end)()


@in_order
async def test_committed_event_of_a_killed_publisher_is_one_message(place: Place, tmp_path: Path) -> None:
    """A relay is at work meanwhile. There are as many messages as rows of the user: a rollback and a death before the
    commit leave neither."""
    await asyncio.to_thread(create_table, place)
    async with new_app(place) as app:
        await app.publish(order(0))
        with RelayProcesses(tmp_path, place.store, place.bus) as relays:
            await asyncio.to_thread(relays.start)
            await asyncio.to_thread(publish_and_end, app, place, 1, "rollback")
            await asyncio.to_thread(publish_and_end, app, place, 2, "commit")
            await asyncio.to_thread(publish_and_die, place, 3, "before")
            await asyncio.to_thread(publish_and_die, place, 4, "after")

            async def are_sent() -> bool:
                return await statuses(app) == dict.fromkeys(["e0", "e2", "e4"], "sent")

            await until(are_sent)
        assert await asyncio.to_thread(sales, place) == [2, 4]
        assert await place.read(app) == [Sent("k", number, f"e{number}") for number in (0, 2, 4)]


@late
@pytest.mark.long
async def test_event_that_commits_long_after_later_ones_is_sent(place: Place, tmp_path: Path) -> None:
    """The row was numbered first. The later ones are not delayed by it, whether or not they have its key."""
    import asyncpg

    later = [order(1), order(2, "other"), order(3)]
    async with new_app(place) as app:
        await app.publish(order(9, "first"))  # it creates the schema
        connection = await asyncpg.connect(place.database)
        try:
            with RelayProcesses(tmp_path, place.store, place.bus) as relays:
                await asyncio.to_thread(relays.start)
                transaction = connection.transaction()
                await transaction.start()
                await app.publish(order(0), connection=connection)
                opened_at = time.monotonic()
                await app.publish(*later)

                async def are_sent(count: int) -> bool:
                    found = await statuses(app)
                    return len(found) == count and set(found.values()) == {"sent"}

                await until(lambda: are_sent(1 + len(later)))
                await asyncio.sleep(max(0.0, opened_at + HELD_OPEN - time.monotonic()))
                assert await are_sent(1 + len(later)), "it is not visible before its commit"
                await transaction.commit()
                await until(lambda: are_sent(2 + len(later)))
        finally:
            await connection.close()
        found = await place.read(app)
        numbers = {row.id: row.number for row in await app.operations.outbox.events()}
    assert numbers["e0"] < numbers["e1"], "it was numbered early"
    assert [sent.number for sent in found if sent.key == "k"] == [1, 3, 0]
    assert sorted(sent.number for sent in found) == [0, 1, 2, 3, 9]
