"""A store and a bus for one test: the store as its own bus, or Kafka beside Postgres. Nothing is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from onthedot import App
from onthedot.events import Event, Events
from onthedot.events.bus import BusRecord
from onthedot.events.dead_letters import DeadLetter, read_dead_letter
from onthedot.runtime.components import ComponentFactory
from tests.support.services.kafka import KafkaService, new_name
from tests.support.waits import until

REQUESTED = "Genesis.Session.DetailBatchGenerationRequested"
CREATED = "Genesis.Session.DetailBatchCreated"
FAILED = "Genesis.Session.DetailBatchFailed"
PARTITIONS = 8

_ONCE = pytest.mark.once
SYSTEMS = ["memory", "sqlite", pytest.param("postgres", marks=_ONCE), pytest.param("kafka", marks=_ONCE)]
SHARED = SYSTEMS[1:]  # by several processes


class EventSystem:
    """Where the tasks and the events of a test are."""

    def __init__(self, kind: str, name: str, store: str, kafka: KafkaService | None) -> None:
        self.kind = kind
        self.name = name
        self.store = store
        self.kafka = kafka
        self.requests = "genesis.requests"
        self.results = "genesis.results"
        self.bus = "store"
        if kafka is not None:
            self.bus = f"kafka://{kafka.address}?session_timeout=6"
            self.requests = kafka.topic(PARTITIONS)
            self.results = kafka.topic(PARTITIONS)

    def create_dead_letter_topic(self) -> None:
        """Kafka creates no topics by itself."""
        if self.kafka is not None:
            self.kafka.topic(1, name=self.dead_letters)

    @property
    def dead_letters(self) -> str:
        return f"{self.requests}.DLT"

    def events(self, **settings: Any) -> Events:
        topics = {"Genesis.Session.*Requested": self.requests, "Genesis.Session.*": self.results}
        return Events(bus=self.bus, topics=topics, **settings)

    def app(self, **options: Any) -> App:
        """Another process would make the same one."""
        return App(self.name, store=self.store, events=self.events(), **{"stop_timeout": 5, **options})

    def request(self, number: int, **fields: Any) -> Event[Any]:
        payload = {"session_id": "s1", "task_id": f"t{number}", "number": number}
        given = {"aggregate_id": "s1", "key": f"t{number}", "id": f"{self.name}-e{number}", "correlation_id": "cmd-7"}
        return Event(REQUESTED, payload, **{**given, **fields})

    def number(self, event_id: str) -> int:
        return int(event_id.removeprefix(f"{self.name}-e"))

    async def read(self, app: App, topic: str) -> list[BusRecord]:
        """All that is on the bus now."""
        outbox = app.runtime.find_outbox()
        assert outbox is not None
        factory = ComponentFactory(app.runtime.config, app.runtime.store, outbox, app.runtime.new_observer())
        bus = await factory.connection.open()
        try:
            return [record async for record in bus.peek(topic)]
        finally:
            await factory.connection.close()

    async def read_dead_letters(self, app: App) -> list[DeadLetter]:
        return [read_dead_letter(record.message) for record in await self.read(app, self.dead_letters)]

    async def lag(self, app: App, agent: str) -> int:
        """Events that the agent of this process has not committed."""
        (component,) = [each for each in app.runtime.components.all if each.name == f"agent {agent}"]
        return sum((await component.lag()).values())  # type: ignore[attr-defined]

    async def committed(self, app: App, agent: str) -> None:
        """Until all events of the agent are committed."""

        async def is_committed() -> bool:
            return not await self.lag(app, agent)

        await until(is_committed)


def open_system(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EventSystem]:
    if kind in ("memory", "sqlite"):
        store = "memory://" if kind == "memory" else f"sqlite:///{tmp_path}/genesis.db"
        yield EventSystem(kind, "genesis", store, None)
        return
    postgres = request.getfixturevalue("postgres")
    kafka = request.getfixturevalue("kafka") if kind == "kafka" else None
    name = new_name() if kind == "kafka" else postgres.new_app()
    yield EventSystem(kind, name, postgres.url, kafka)
    postgres.clean(name)


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EventSystem]:
    yield from open_system(request.param, request, tmp_path)


@pytest.fixture(params=SHARED)
def shared_system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EventSystem]:
    yield from open_system(request.param, request, tmp_path)
