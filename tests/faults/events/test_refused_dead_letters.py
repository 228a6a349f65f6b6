"""Show 10: a dead-letter topic of Kafka refuses what the relay sends, and the system restarts meanwhile.

The dead letter waits in the outbox, where an operator sees it. It is delivered once, and the agent runs nothing again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from onthedot import App
from onthedot.events import Event
from onthedot.events.bus import BusMessage, TopicUnavailable
from onthedot.events.dead_letter_queue import LetterFilter
from onthedot.events.kafka import KafkaBus
from onthedot.events.settings import Kafka
from onthedot.operations.outbox_health import check_outbox
from onthedot.runtime.dead_letters import open_dead_letters
from tests.acceptance.row_e.event_systems import REQUESTED, EventSystem, open_system
from tests.faults import LONG
from tests.support.services import kafka_protocol
from tests.support.waits import until

pytestmark = [pytest.mark.fault, pytest.mark.once, pytest.mark.timeout(180)]

AGENT = "worldbuilder"
REFUSAL = 10.0 if LONG else 1.0  # seconds before, and again after the restart
SMALL = "2000"
LARGE = "200000"  # bytes that the dead-letter topic takes
PROBE = b"probe"


@pytest.fixture
def system(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EventSystem]:
    yield from open_system("kafka", request, tmp_path)


class NotFound(Exception):
    status_code = 404


class Agent:
    """Its runs, over all apps of a test."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.fails = True

    def app(self, system: EventSystem) -> App[Any]:
        app = system.app()

        @app.agent(AGENT, consumes=(REQUESTED,))
        async def worldbuilder(event: Event[Any]) -> None:
            self.runs.append(event.id)
            if self.fails and event.payload["number"] == 1:
                raise NotFound("no such world")

        return app


async def letters_of(system: EventSystem, app: App[Any]) -> list[str]:
    """The events of the dead letters that the topic has."""
    headers = [record.message.headers for record in await system.read(app, system.dead_letters)]
    return [dict(each)["ce_id"].decode() for each in headers if each]


async def unsent(app: App[Any], status: str) -> list[str]:
    return [each.topic for each in await app.operations.outbox.events(status=status)]


async def handle_another(system: EventSystem, app: App[Any], agent: Agent, number: int) -> None:
    """Other topics go on."""
    event = system.request(number)
    await app.publish(event)
    await until(lambda: event.id in agent.runs)
    await system.committed(app, AGENT)


async def replay_twice(system: EventSystem, app: App[Any], agent: Agent, event_id: str) -> None:
    agent.fails = False
    before = len(agent.runs)
    async with open_dead_letters(app.runtime.store, system.name, system.events()) as letters:
        first = await letters.replay(LetterFilter(ids=[event_id]))
        await until(lambda: len(agent.runs) == before + 1)
        second = await letters.replay(LetterFilter(ids=[event_id]))
    await system.committed(app, AGENT)
    assert (first.replayed, second.replayed, second.unchanged) == ([event_id], [], [event_id])
    assert agent.runs[before:] == [event_id]


async def writes_are_denied(system: EventSystem) -> None:
    """Until the broker applies the rule that it has stored."""
    assert system.kafka is not None
    bus = KafkaBus(Kafka(system.kafka.address))

    async def is_denied() -> bool:
        try:
            await bus.send(system.dead_letters, 0, [BusMessage(PROBE, PROBE)])
        except TopicUnavailable as error:
            return "TopicAuthorizationFailed" in str(error)
        return False

    await until(is_denied)
    await bus.close()


async def test_dead_letter_waits_while_nobody_may_write_to_its_topic(
    system: EventSystem, caplog: pytest.LogCaptureFixture
) -> None:
    assert system.kafka is not None
    if system.kafka.is_given:
        pytest.skip("rules about writers are set up on the tests' own broker only")
    system.create_dead_letter_topic()
    agent = Agent()
    bad = system.request(1)
    with ExitStack() as rules:
        rules.enter_context(kafka_protocol.writes_denied(system.kafka.address, system.dead_letters))
        await writes_are_denied(system)
        app = agent.app(system)
        async with app.running():
            await app.publish(bad)
            await until(lambda: f"[topic] {system.dead_letters} not available, next try in" in caplog.text)
            await system.committed(app, AGENT)
            await handle_another(system, app, agent, 2)
            await asyncio.sleep(REFUSAL)
            assert await unsent(app, "pending") == [system.dead_letters]
        app = agent.app(system)
        async with app.running():
            await handle_another(system, app, agent, 3)
            await asyncio.sleep(REFUSAL)
            assert await unsent(app, "pending") == [system.dead_letters]
            assert await letters_of(system, app) == []
            rules.close()
            seconds = await until(lambda: _has_letters(system, app))
            print(f"\ndelivered {seconds:.1f} s after the topic took writes again")
            await until(lambda: _is_sent(app))
            assert await letters_of(system, app) == [bad.id]
            assert agent.runs.count(bad.id) == 1, "nothing is retried against the agent"
            await replay_twice(system, app, agent, bad.id)
            assert await letters_of(system, app) == [bad.id]


async def test_dead_letter_that_is_too_large_for_its_topic_is_visible_and_delivered_once(system: EventSystem) -> None:
    assert system.kafka is not None
    system.kafka.topic(1, {"max.message.bytes": SMALL}, name=system.dead_letters)
    agent = Agent()
    bad = system.request(1, headers={"note": "x" * int(SMALL)})
    app = agent.app(system)
    async with app.running():
        await app.publish(bad)
        await until(lambda: _has_failed(app))
        await system.committed(app, AGENT)
        await handle_another(system, app, agent, 2)
    app = agent.app(system)
    async with app.running():
        await handle_another(system, app, agent, 3)
        (failed,) = await app.operations.outbox.events(status="failed")
        assert (failed.topic, "large" in failed.error.lower()) == (system.dead_letters, True)
        (finding,) = check_outbox(await app.operations.outbox.status())
        assert system.dead_letters in finding.text
        assert "onthedot outbox retry or discard" in finding.remedy
        await allow_large(system)
        assert await app.operations.outbox.retry(failed.id) == [failed.id]
        await until(lambda: _has_letters(system, app))
        await until(lambda: _is_sent(app))
        assert await letters_of(system, app) == [bad.id]
        assert agent.runs.count(bad.id) == 1
        await replay_twice(system, app, agent, bad.id)


async def _has_letters(system: EventSystem, app: App[Any]) -> bool:
    return bool(await letters_of(system, app))


async def _has_failed(app: App[Any]) -> bool:
    return bool(await unsent(app, "failed"))


async def _is_sent(app: App[Any]) -> bool:
    return not await unsent(app, "pending")


async def allow_large(system: EventSystem) -> None:
    assert system.kafka is not None
    admin = AIOKafkaAdminClient(bootstrap_servers=system.kafka.address)
    await admin.start()
    try:
        wanted = ConfigResource(ConfigResourceType.TOPIC, system.dead_letters, {"max.message.bytes": LARGE})
        await admin.alter_configs([wanted])

        async def is_known() -> bool:
            wanted = ConfigResource(ConfigResourceType.TOPIC, system.dead_letters, {"max.message.bytes": None})
            (answer,) = await admin.describe_configs([wanted])
            return str(answer.resources[0][4][0][1]) == LARGE

        await until(is_known)
    finally:
        await admin.close()
