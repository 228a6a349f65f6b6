"""Agents: order per key, duplicates, routing and throttling, on the store as bus and on Kafka."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from onthedot import App, Rate, current_task
from onthedot.clock.system import SystemClock
from onthedot.events import BaseAgent, Event
from onthedot.events.cloudevents import to_message
from onthedot.events.outbox_rows import raw_event
from onthedot.model.uuid7 import new_uuid
from tests.acceptance.row_e.event_systems import CREATED, REQUESTED, EventSystem
from tests.faults import scaled
from tests.support.waits import until


class Request(msgspec.Struct):
    session_id: str
    task_id: str
    number: int = 0
    type: str = "item"


# -- show 7 [T10]


@pytest.mark.timed
async def test_parts_of_one_session_run_side_by_side(system: EventSystem) -> None:
    app = system.app()
    ended: list[float] = []

    @app.agent("worldbuilder", consumes=(REQUESTED,), concurrency=5)
    async def worldbuilder(event: Event[Request]) -> None:
        await asyncio.sleep(0.5)
        ended.append(time.monotonic())

    async with app.running():
        await app.publish(system.request(99))  # the group has its partitions after this
        await until(lambda: len(ended) == 1)
        began = time.monotonic()
        await app.publish(*(system.request(number) for number in range(5)))
        await until(lambda: len(ended) == 6)
    assert ended[-1] - began < 1.5


async def test_events_of_a_key_run_strictly_one_after_another(system: EventSystem) -> None:
    app = system.app()
    log: list[tuple[str, int, str]] = []

    @app.agent("worldbuilder", consumes=(REQUESTED,), backoff=[0.3])
    async def worldbuilder(event: Event[Request]) -> None:
        log.append((event.key, event.payload.number, "begin"))
        await asyncio.sleep(0.02)
        if event.payload.number == 0 and current_task().attempt <= 3:
            raise ConnectionError("the first is retried three times")
        log.append((event.key, event.payload.number, "end"))

    def ended(key: str) -> list[int]:
        return [number for each, number, what in log if (each, what) == (key, "end")]

    async with app.running():
        await app.publish(*(system.request(number, key="a") for number in range(5)))
        await app.publish(*(system.request(number, key="b") for number in range(5, 10)))
        await until(lambda: len(ended("b")) == 5)
        assert ended("a") == [], "another key is not delayed"
        await until(lambda: len(ended("a")) == 5)
        await system.committed(app, "worldbuilder")
    own = [(number, what) for key, number, what in log if key == "a"]
    assert own[:3] == [(0, "begin")] * 3
    assert own[3:] == [(number, what) for number in range(5) for what in ("begin", "end")]
    assert ended("b") == [5, 6, 7, 8, 9]


# -- show 11 [T13]


class Throttled(Exception):
    def __init__(self, seconds: float) -> None:
        super().__init__("too many requests")
        self.status_code = 429
        self.headers = {"Retry-After": str(seconds)}


@pytest.mark.long
@pytest.mark.timed
@pytest.mark.parametrize("concurrency", [1, 5])
async def test_throttled_calls_wait_as_announced_and_none_is_lost(system: EventSystem, concurrency: int) -> None:
    """With several at once, others are in flight when the first 429 comes."""
    app = system.app()
    count = scaled(40, 100)
    seeded = random.Random(7)
    calls: list[float] = []
    announced: list[float] = []
    retried: Counter[str] = Counter()
    running: set[str] = set()
    beside: list[int] = []  # per 429: other calls in flight
    done: set[str] = set()

    @app.agent("worldbuilder", consumes=(REQUESTED,), ordered=False, concurrency=concurrency)
    async def worldbuilder(event: Event[Request]) -> None:
        calls.append(time.monotonic())
        is_throttled = seeded.random() < 0.05
        running.add(event.id)
        try:
            await asyncio.sleep(0.01)
            if is_throttled:
                if concurrency > 1 and not announced:
                    await until(lambda: len(running) > 1)
                retried[event.id] += 1
                beside.append(len(running) - 1)
                announced.append(time.monotonic())
                raise Throttled(1)
            done.add(event.id)
        finally:
            running.remove(event.id)

    async with app.running():
        await app.publish(*(system.request(number) for number in range(count)))
        await until(lambda: len(done) == count)
        await system.committed(app, "worldbuilder")
        assert await app.operations.failures() == []
    assert announced, "the seed has some"
    assert (max(beside) > 0) == (concurrency > 1)
    for moment in announced:
        assert not [call for call in calls if moment < call < moment + 1], "no call in the announced second"
    assert len(retried.keys() & done) / len(retried) > 0.95


async def test_event_that_is_throttled_without_end_is_a_dead_letter(system: EventSystem) -> None:
    system.create_dead_letter_topic()
    app = system.app()

    @app.agent("worldbuilder", consumes=(REQUESTED,), give_up=2)
    async def worldbuilder(event: Event[Request]) -> None:
        raise Throttled(1)

    async with app.running():
        await app.publish(system.request(1))

        async def is_dead() -> bool:
            return len(await system.read_dead_letters(app)) == 1

        await until(is_dead)
        (letter,) = await system.read_dead_letters(app)
    assert (letter.event_id, letter.error_message) == (system.request(1).id, "too many requests")
    assert letter.attempts == 1, "it has used no retry"


# -- show 12


async def test_same_event_three_times_is_one_task_also_after_a_restart(system: EventSystem) -> None:
    runs: list[str] = []

    def new_app() -> App:
        app = system.app(stop_timeout=1)

        @app.agent("worldbuilder", consumes=(REQUESTED,))
        async def worldbuilder(event: Event[Request]) -> None:
            runs.append(event.id)

        return app

    app = new_app()
    other = Event("Genesis.Session.Opened", {}, aggregate_id="s1", topic=system.requests)
    async with app.running():
        for _ in range(3):
            await _send_copies(system, app, system.request(1))
        await app.publish(other)
        await until(lambda: len(runs) == 1)
        await system.committed(app, "worldbuilder")
    again = app if system.kind == "memory" else new_app()
    async with again.running():
        await _send_copies(system, again, system.request(1))
        await again.publish(system.request(2))
        await until(lambda: len(runs) >= 2)
        await system.committed(again, "worldbuilder")
    assert runs == [system.request(1).id, system.request(2).id]


DAY = 86_400_000.0  # ms


class LaterClock(SystemClock):
    """Ahead of the machine's time; stores take it from their callers."""

    is_system = False

    def __init__(self, ms: float) -> None:
        super().__init__()
        self._ms = ms

    def now(self) -> float:
        return super().now() + self._ms

    def wall_clock_jump(self) -> float:
        return 0.0


@contextmanager
def restarted_later(app: App, days: float) -> Iterator[None]:
    """As a process that starts so much later: the app has another store, and another session."""
    with app.runtime.override(replace(app.runtime.config, clock=LaterClock(days * DAY))):
        yield


async def test_copy_is_not_run_a_day_later_but_after_its_task_is_purged(shared_system: EventSystem) -> None:
    system = shared_system
    app = system.app(stop_timeout=1)
    runs: list[str] = []

    @app.agent("worldbuilder", consumes=(REQUESTED,), keep=timedelta(days=8))
    async def worldbuilder(event: Event[Request]) -> None:
        runs.append(event.id)

    async def run_copy(beside: int) -> None:
        async with app.running():
            await app.purge()
            await _send_copies(system, app, system.request(1))
            await app.publish(system.request(beside))
            await until(lambda: system.request(beside).id in runs)
            await system.committed(app, "worldbuilder")

    await run_copy(2)
    with restarted_later(app, 1):
        await run_copy(3)
    assert runs.count(system.request(1).id) == 1
    with restarted_later(app, 9):
        await run_copy(4)
    assert runs.count(system.request(1).id) == 2, "`keep` is over"


async def test_many_copies_in_one_read_do_not_stop_the_partition(system: EventSystem) -> None:
    app = system.app()
    async with app.running():
        await _send_copies(system, app, *(system.request(number % 250, key="one") for number in range(500)))
    runs: Counter[str] = Counter()

    @app.agent("worldbuilder", consumes=(REQUESTED,), ordered=False)
    async def worldbuilder(event: Event[Request]) -> None:
        runs[event.id] += 1

    async with app.running():
        await app.publish(system.request(1000, key="one"))
        await until(lambda: len(runs) == 251)
        await system.committed(app, "worldbuilder")
    assert set(runs.values()) == {1}


async def _send_copies(system: EventSystem, app: App, *events: Event[Any]) -> None:
    """A copy has the same id; the outbox would keep only the first, so it is sent as a producer repeats it."""
    rows = [raw_event(new_uuid(), system.requests, to_message(event, "/genesis"), 0) for event in events]
    await app.runtime.portal.run(lambda client: client.publish(rows, "test"))


# -- show 15 [T15]

TYPES = ("character_name", "location_name", "item", "organization", "skill")


class Worldbuilder(BaseAgent):
    id = "worldbuilder"
    aliases = ("world_builder",)
    consumes = (REQUESTED,)
    limits = (Rate("1000/s", name="llm"),)

    def __init__(self) -> None:
        self.seen: list[str] = []

    def accepts(self, event: Event[Request]) -> bool:
        return event.payload.type != "character_name"

    async def process(self, event: Event[Request]) -> Event[Any]:
        self.seen.append(event.payload.type)
        return event.reply(CREATED, {"task_id": event.payload.task_id})


async def test_types_go_to_the_right_agents_by_any_of_their_names(system: EventSystem) -> None:
    app = system.app()
    worldbuilder = Worldbuilder()
    app.agents.register(worldbuilder)
    names: list[str] = []

    @app.agent(
        "characterexpert",
        aliases=("character_expert",),
        consumes=(REQUESTED,),
        accepts=lambda event: event.payload.type == "character_name",
    )
    def character_expert(event: Event[Request]) -> None:
        names.append(event.payload.type)

    for name in ("character_expert", "characterexpert", "Character-Expert"):
        assert app.agents.canonical(name) == "characterexpert"
    assert app.agents.find("world-builder") is worldbuilder
    async with app.running():
        for number, kind in enumerate(TYPES):
            payload = {"session_id": "s1", "task_id": f"t{number}", "type": kind}
            await app.publish(Event(REQUESTED, payload, aggregate_id="s1", key=f"t{number}"))
        await until(lambda: len(names) + len(worldbuilder.seen) == 5)
        for agent in app.agents.ids:
            await system.committed(app, agent)
        found = await app.operations.find()
        counts = defaultdict(int, Counter(task.source for task in found.tasks))
        assert await app.operations.failures() == []
    assert names == ["character_name"]
    assert sorted(worldbuilder.seen) == sorted(TYPES[1:])
    assert (counts["agent.worldbuilder"], counts["agent.characterexpert"]) == (4, 1), "a skipped event has no task"
