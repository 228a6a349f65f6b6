"""Dead letters have original bytes and Spring's headers, are delivered once, and replayed."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from onthedot import App
from onthedot.events import Event
from onthedot.events.dead_letter_queue import LetterFilter
from onthedot.runtime.dead_letters import open_dead_letters
from tests.acceptance.row_e.event_systems import FAILED, REQUESTED, SYSTEMS, EventSystem
from tests.support.waits import until


class NotFound(Exception):
    status_code = 404


class Attempts:
    """The events that the agent has seen, over all apps of a test."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.fails = True

    def app(self, system: EventSystem) -> App:
        app = system.app()

        @app.agent("worldbuilder", consumes=(REQUESTED,), fails_as=FAILED)
        async def worldbuilder(event: Event[Any]) -> None:
            self.runs.append(event.id)
            if self.fails:
                raise NotFound("no such world")

        return app


async def pending(app: App) -> list[str]:
    """Topics of events that are not sent."""
    outbox = app.runtime.find_outbox()
    assert outbox is not None
    return [row.event.topic for row in await outbox.find_events({"status": "pending"}, 0, 100)]


async def test_permanent_error_is_one_dead_letter_with_original_bytes(system: EventSystem) -> None:
    system.create_dead_letter_topic()
    seen = Attempts()
    app = seen.app(system)
    async with app.running():
        await app.publish(system.request(1, headers={"tenant": "acme"}))
        await until(lambda: _count(system, app, 1))
        await system.committed(app, "worldbuilder")
        (original,) = await system.read(app, system.requests)
        (record,) = await system.read(app, system.dead_letters)
        (failure,) = await system.read(app, system.results)
    assert (record.message.key, record.message.value) == (original.message.key, original.message.value)
    headers = dict(record.message.headers)
    kept = {name: value for name, value in original.message.headers if name != "ce_sequence"}
    assert kept.items() <= headers.items()
    assert headers["kafka_dlt-original-topic"].decode() == system.requests
    assert headers["kafka_dlt-original-consumer-group"].decode() == f"{system.name}.worldbuilder"
    assert struct.unpack(">i", headers["kafka_dlt-original-partition"]) == (original.partition,)
    assert struct.unpack(">q", headers["kafka_dlt-original-offset"]) == (original.offset,)
    assert struct.unpack(">q", headers["kafka_dlt-original-timestamp"]) == (original.message.timestamp,)
    assert headers["kafka_dlt-exception-fqcn"].decode().endswith("NotFound")
    assert headers["kafka_dlt-exception-message"] == b"no such world"
    assert (headers["onthedot-agent"], headers["onthedot-attempts"]) == (b"worldbuilder", b"1")
    failure_headers = dict(failure.message.headers)
    assert failure_headers["ce_type"].decode() == FAILED
    assert failure_headers["ce_causationid"].decode() == system.request(1).id
    assert failure_headers["ce_correlationid"] == headers["ce_correlationid"] == b"cmd-7"
    assert seen.runs == [system.request(1).id]


async def _count(system: EventSystem, app: App, count: int) -> bool:
    return len(await system.read_dead_letters(app)) == count


async def test_replay_runs_the_event_again_and_a_second_replay_does_nothing(system: EventSystem) -> None:
    system.create_dead_letter_topic()
    seen = Attempts()
    app = seen.app(system)
    event_id = system.request(1).id
    async with app.running():
        await app.publish(system.request(1))
        await until(lambda: _count(system, app, 1))
        seen.fails = False
        async with open_dead_letters(app.runtime.store, system.name, system.events()) as letters:
            first = await letters.replay(LetterFilter(ids=[event_id]))
            await until(lambda: len(seen.runs) == 2)
            second = await letters.replay(LetterFilter(ids=[event_id]))
        await system.committed(app, "worldbuilder")
    assert (first.replayed, first.unchanged) == ([event_id], [])
    assert (second.replayed, second.unchanged) == ([], [event_id])
    assert seen.runs == [event_id, event_id]


@pytest.mark.parametrize("system", SYSTEMS[3:], indirect=True)
async def test_dead_letter_waits_for_its_topic_over_a_restart_and_is_delivered_once(system: EventSystem) -> None:
    """Kafka refuses the topic, since it does not exist. The offset has passed the event, and nothing is lost."""
    seen = Attempts()
    app = seen.app(system)
    async with app.running():
        await app.publish(system.request(1))
        await until(lambda: len(seen.runs) == 1)
        await system.committed(app, "worldbuilder")
        assert await pending(app) == [system.dead_letters], "it was in the outbox before the offset moved"
    again = seen.app(system)
    async with again.running():
        seen.fails = False
        await again.publish(system.request(2))
        await until(lambda: len(seen.runs) == 2)
        assert await pending(again) == [system.dead_letters]
        system.create_dead_letter_topic()
        await until(lambda: _count(system, again, 1))

        async def is_sent() -> bool:
            return not await pending(again)

        await until(is_sent)
        letters = await system.read_dead_letters(again)
    assert [letter.event_id for letter in letters] == [system.request(1).id]
    assert seen.runs == [system.request(1).id, system.request(2).id], "nothing is retried against the agent"
