"""An agent handles events as tasks: payloads, results and the events that it accepts. The test drives the clock."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from onthedot import App, current_task
from onthedot.events.agents import BaseAgent
from onthedot.events.event import Event
from tests.support.waits import until
from tests.unit.events.agent_steps import CREATED, REQUESTED, Bench, Request, request


async def test_payload_is_decoded_by_the_annotation_of_process(bench: Bench) -> None:
    @bench.agent()
    async def worldbuilder(event: Event[Request]) -> None:
        bench.seen.append((event.payload, event.key, event.correlation_id, event.occurred_at))

    moment = datetime(2026, 1, 31, 12, tzinfo=UTC)
    info = await bench.run(request(correlation_id="cmd-7", occurred_at=moment))
    assert info.state == "succeeded"
    assert info.source == "agent.worldbuilder"
    assert bench.seen == [(Request("s1", "t1", 2), "t1", "cmd-7", moment)]


async def test_payload_without_annotation_is_plain_json(bench: Bench) -> None:
    @bench.agent()
    async def worldbuilder(event) -> None:  # type: ignore[no-untyped-def]
        bench.seen.append(event.payload)

    await bench.run(request())
    assert bench.seen == [{"session_id": "s1", "task_id": "t1", "count": 2}]


async def test_returned_events_are_stored_with_the_end_and_know_their_cause(bench: Bench) -> None:
    @bench.agent()
    async def worldbuilder(event: Event[Request]) -> list[Event[Any]]:
        return [
            event.reply(CREATED, {"task_id": event.payload.task_id, "items": []}),
            Event("Genesis.World.Built", {}, aggregate_id="w1"),
        ]

    await bench.run(request(correlation_id="cmd-7"))
    reply, built = await bench.published()
    for event in (reply, built):
        assert (event.correlation_id, event.causation_id, event.retries) == ("cmd-7", "e-t1", 0)
    assert (reply.type, reply.aggregate_id, reply.key, reply.topic) == (CREATED, "s1", "t1", "genesis.session.events")
    assert (built.key, built.topic) == ("w1", "genesis.world.events")
    assert reply.id != built.id


async def test_event_that_was_made_outside_of_the_task_gets_its_cause(bench: Bench) -> None:
    made_before = Event(CREATED, {}, aggregate_id="s1")
    with_own_correlation = Event(CREATED, {}, aggregate_id="s1", correlation_id="mine", retries=9)

    @bench.agent()
    async def worldbuilder(event: Event[Request]) -> tuple[Event[Any], ...]:
        return made_before, with_own_correlation

    await bench.run(request(correlation_id="cmd-7"))
    first, second = await bench.published()
    assert (first.id, first.correlation_id, first.causation_id, first.retries) == (made_before.id, "cmd-7", "e-t1", 0)
    assert (second.correlation_id, second.causation_id, second.retries) == ("mine", "e-t1", 9)


async def test_ids_of_results_are_the_same_in_each_retry_and_count_retries(bench: Bench) -> None:
    ids: list[str] = []

    @bench.agent()
    async def worldbuilder(event: Event[Request]) -> Event[Any]:
        result = event.reply(CREATED, {})
        ids.append(result.id)
        if len(ids) < 3:
            raise ConnectionError("no answer")
        return result

    bench.test.deliver(request())
    await bench.test.drain()
    assert len(ids) == 3
    assert len(set(ids)) == 1
    (event,) = await bench.published()
    assert (event.id, event.retries) == (ids[0], 2)


async def test_operators_retry_makes_new_ids(bench: Bench) -> None:
    ids: list[str] = []

    @bench.agent(max_retries=0)
    async def worldbuilder(event: Event[Request]) -> Event[Any]:
        result = event.reply(CREATED, {})
        ids.append(result.id)
        if len(ids) == 1:
            raise ConnectionError("no answer")
        return result

    info = await bench.run(request())
    assert info.state == "failed"
    await bench.app.operations.retry(info.uuid)
    await bench.test.run_until_idle()
    assert len(set(ids)) == 2
    assert [event.id for event in await bench.published()] == [ids[1]]


async def test_failed_run_publishes_nothing(bench: Bench) -> None:
    @bench.agent(max_retries=0)
    async def worldbuilder(event: Event[Request]) -> None:
        current_task().publish(event.reply(CREATED, {}))
        raise ValueError("no")

    await bench.run(request())
    assert await bench.published() == []


async def test_other_results_are_errors(bench: Bench) -> None:
    @bench.agent(max_retries=0)
    async def worldbuilder(event: Event[Request]) -> Any:
        return {"items": []}

    info = await bench.run(request())
    assert info.error.type == "TypeError"
    assert (
        info.error.message == "process of agent 'worldbuilder' returned dict; return an Event, a list of them, or None"
    )


async def test_sync_function_runs_in_a_thread_with_its_context(bench: Bench) -> None:
    @bench.agent()
    def worldbuilder(event: Event[Request]) -> Event[Any]:
        task = current_task()
        bench.seen.append((threading.current_thread() is threading.main_thread(), task.uuid, task.idempotency_key))
        return event.reply(CREATED, {})

    info = await bench.run(request(correlation_id="cmd-7"))
    assert bench.seen == [(False, info.uuid, info.uuid)]
    (event,) = await bench.published()
    assert (event.correlation_id, event.causation_id) == ("cmd-7", "e-t1")


async def test_class_is_an_agent(bench: Bench) -> None:
    class Worldbuilder(BaseAgent):
        id = "worldbuilder"
        consumes = (REQUESTED,)
        concurrency = None

        async def process(self, event: Event[Request]) -> Event[Any] | None:
            return event.reply(CREATED, {"count": event.payload.count})

    bench.app.agents.register(Worldbuilder())
    await bench.run(request())
    (event,) = await bench.published()
    assert event.payload == b'{"count":2}'


# -- which events


async def test_copy_of_an_event_is_handled_once_and_other_agents_have_their_own_task(bench: Bench) -> None:
    @bench.agent()
    async def worldbuilder(event: Event[Request]) -> None:
        bench.seen.append("worldbuilder")

    @bench.app.agent("critic", consumes="Genesis.Session.*")
    async def critic(event: Event[Request]) -> None:
        bench.seen.append("critic")

    first = bench.test.deliver(request())
    await bench.test.run_until_idle()
    assert bench.test.deliver(request()) == first
    await bench.test.run_until_idle()
    assert sorted(bench.seen) == ["critic", "worldbuilder"]


async def test_events_that_are_not_consumed_or_not_accepted_have_no_task(bench: Bench) -> None:
    @bench.agent(accepts=lambda event: event.payload.count > 5)
    async def worldbuilder(event: Event[Request]) -> None: ...

    assert bench.test.deliver(request()) == []
    assert bench.test.deliver(Event("Genesis.Session.Opened", {}, aggregate_id="s1")) == []
    assert bench.test.dead_letters("worldbuilder") == []


async def test_priority_of_an_event_is_that_of_its_task(bench: Bench) -> None:
    @bench.agent(priority="low")
    async def worldbuilder(event: Event[Request]) -> None: ...

    assert (await bench.run(request())).priority == 1
    assert (await bench.run(request("t2", priority=9))).priority == 9


async def test_worker_of_other_sources_runs_no_agent(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    app = App("shop", store="memory://")
    app.runtime.use(replace(app.runtime.config, only_sources=frozenset({"agent.early"})))

    @app.agent("early", consumes=REQUESTED)
    async def early(event: Event[Any]) -> None: ...

    @app.agent("other", consumes=REQUESTED)
    async def other(event: Event[Any]) -> None: ...

    async with app.running():
        await until(lambda: "Agent started: early" in caplog.text)
        app.agents.unregister("other")
        app.agent("later", consumes=REQUESTED)(other)
        app.agents.unregister("early")
        await app.publish(Event(REQUESTED, {}, aggregate_id="s1"))
        await until(lambda: len(app.runtime.components.all) == 1)
    assert "Agent started: later" not in caplog.text
    assert "Agent started: other" not in caplog.text
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
