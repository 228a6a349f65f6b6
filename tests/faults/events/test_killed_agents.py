"""Workers die while agents handle events: each event ends once, and an event that kills its worker fails alone."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from onthedot import App
from onthedot.events import Event
from onthedot.events.received_records import task_uuid
from tests.acceptance.row_e.event_systems import EventSystem, open_system
from tests.faults import LONG, scaled
from tests.faults.run_log import RunLog, extra_runs
from tests.faults.worker_processes import forked_workers
from tests.support.services.postgres import Service
from tests.support.waits import until

pytestmark = [pytest.mark.fault, pytest.mark.timeout(600 if LONG else 180)]

LEASE = 2  # seconds
ROUNDS = scaled(1, 10)
NEIGHBOURS = 99
PROGRAM = "tests.faults.events.agent_app"
POINTS = {"mailer": ["process", "effect"], "seller": ["process", "effect", "complete", "commit"]}
ENDS = {"succeeded", "failed", "cancelled"}


@pytest.fixture(params=["sqlite", "kafka"])
def system(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventSystem]:
    """Also for the program of the workers, by the environment."""
    for system in open_system(request.param, request, tmp_path):
        if system.kafka is not None:
            system.store += f"?lease={LEASE}"
            system.bus = f"kafka://{system.kafka.address}?session_timeout=2"
        monkeypatch.setenv("APP", system.name)
        monkeypatch.setenv("BUS", system.bus)
        monkeypatch.setenv("TOPIC", system.requests)
        yield system


@pytest.fixture
def sales(system: EventSystem, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The table of the effects that are in the transaction of the end; the answer reads it."""
    table = "CREATE TABLE agent_sale (number integer)"
    if system.kafka is None:
        monkeypatch.setenv("DATABASE", system.store)
        with closing(sqlite3.connect(system.store.removeprefix("sqlite:///"))) as db:
            db.execute(table)
            db.commit()
            yield lambda: sorted(number for (number,) in db.execute("SELECT number FROM agent_sale"))
        return
    postgres: Service = request.getfixturevalue("postgres")
    monkeypatch.setenv("DATABASE", postgres.url)
    postgres.ask(table)
    yield lambda: sorted(number for (number,) in postgres.ask("SELECT number FROM agent_sale"))
    postgres.ask("DROP TABLE agent_sale")


class Ends:
    """How often each task has ended since the begin, and how, by the change feed."""

    def __init__(self, app: App[Any]) -> None:
        self._store = app.runtime.store
        self._cursor = ""
        self.found: Counter[tuple[str, str]] = Counter()

    async def begin(self) -> None:
        self._cursor = (await self._store.changes("", 1)).cursor

    async def count(self) -> int:
        page = await self._store.changes(self._cursor, 1_000, resolve=1_000_000)
        self._cursor = page.cursor
        transitions = [each for entry in page.entries for each in entry.transitions]
        self.found.update((each.uuid, each.state) for each in transitions if each.state in ENDS)
        return len(self.found)


def events_to_handle(system: EventSystem) -> list[Event[Any]]:
    """Of two with one key, the second kills a worker right after the end of the first, which is not committed yet."""
    points = sorted({point for some in POINTS.values() for point in some}) * ROUNDS
    events: list[Event[Any]] = []
    for number, point in enumerate(points):
        key = f"k{number}"
        events.append(system.request(2 * number, key=key, headers={"stops": point}))
        if LONG or not number:
            events.append(system.request(2 * number + 1, key=key, headers={"stops": "process"}))
    return events


def kills_of(events: Sequence[Event[Any]]) -> int:
    return sum(event.headers["stops"] in points for event in events for points in POINTS.values())


async def test_each_event_ends_once_although_workers_are_killed(
    system: EventSystem, sales: Any, run_log: RunLog, run_log_path: Path
) -> None:
    """In `process`, after the effect, and after the end. A worker runs one task at a time."""
    events = events_to_handle(system)
    uuids = [task_uuid(agent, event.id) for agent in POINTS for event in events]
    app = system.app()
    async with app:
        ends = Ends(app)
        await ends.begin()
        await app.publish(*events)
        with forked_workers(system.store, run_log_path, 2, PROGRAM):

            async def have_ended() -> bool:
                return await ends.count() == len(uuids)

            await until(have_ended, 60 * ROUNDS)
        await ends.count()  # none may come later
        assert ends.found == Counter({(uuid, "succeeded"): 1 for uuid in uuids})
    kills = kills_of(events)
    extra = extra_runs(run_log.entries())
    print(f"\n{system.kind}: {len(uuids)} tasks, {kills} kills, {extra} extra runs")
    assert extra <= kills
    assert sales() == sorted(event.payload["number"] for event in events)


async def test_event_that_kills_its_worker_is_a_dead_letter_and_its_neighbours_succeed(
    system: EventSystem, run_log: RunLog, run_log_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system.create_dead_letter_topic()
    monkeypatch.setenv("SLOTS", "8")
    events = [system.request(number) for number in range(NEIGHBOURS + 1)]
    bad = events[50] = system.request(50, headers={"stops": "always"})
    expected = {(task_uuid("mailer", event.id), "succeeded"): 1 for event in events}
    del expected[task_uuid("mailer", bad.id), "succeeded"]
    expected[task_uuid("mailer", bad.id), "failed"] = 1
    app = system.app()
    async with app:
        ends = Ends(app)
        await ends.begin()
        await app.publish(*events)
        with forked_workers(system.store, run_log_path, 2, PROGRAM):

            async def have_ended() -> bool:
                return await ends.count() == len(events) and len(await system.read_dead_letters(app)) > 0

            await until(have_ended, 120)
        await ends.count()  # none may come later
        assert ends.found == Counter(expected)
        (letter,) = await system.read_dead_letters(app)
    assert letter.event_id == bad.id
    begun = [entry.uuid for entry in run_log.entries() if entry.event == "begin"]
    assert begun.count(task_uuid("mailer", bad.id)) == 3
