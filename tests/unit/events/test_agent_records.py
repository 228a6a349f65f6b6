"""Records that an agent cannot decode, and replays of dead letters."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from onthedot import Reject
from onthedot.events.agent_tasks import AgentTasks
from onthedot.events.bus import BusMessage, BusRecord
from onthedot.events.cloudevents import to_message
from onthedot.events.dead_letters import replayed
from onthedot.events.event import Event
from onthedot.events.outbox_rows import bus_message
from onthedot.stores.contract import OutboxEvent
from tests.unit.events.agent_steps import FAILED, REQUESTED, Bench, Request, request


async def deliver_record(bench: Bench, message: BusMessage) -> str:
    """As the subscription does with a record of another program."""
    source = bench.app.runtime.agents.sources["worldbuilder"]
    task = AgentTasks(source, "client").task_of(BusRecord("genesis.session.events", 3, 17, message), 0)
    assert task is not None
    await bench.app.runtime.store.add([task])
    await bench.test.run_until_idle()
    return task.uuid


async def test_payload_that_does_not_fit_is_dead_without_a_run(bench: Bench) -> None:
    @bench.agent()
    async def worldbuilder(event: Event[Request]) -> None:
        bench.seen.append(event)

    bench.test.deliver(Event(REQUESTED, {"session_id": 7}, aggregate_id="s1", id="e1"))
    await bench.test.run_until_idle()
    (letter,) = bench.test.dead_letters("worldbuilder")
    assert letter.event_id == "e1"
    assert "session_id" in letter.error_message
    assert bench.seen == []


async def test_record_that_is_no_event_is_dead_with_its_bytes(bench: Bench) -> None:
    @bench.agent(accepts=lambda event: True, fails_as=FAILED)
    async def worldbuilder(event: Event[Request]) -> None: ...

    message = BusMessage(b"\xff", b"\x00\xfenot json", (("ce_type", REQUESTED.encode()), ("x", b"\xff")), 5)
    await deliver_record(bench, message)
    (raw,) = await bench.published(raw=True)
    sent = bus_message(OutboxEvent(1, raw), "")
    assert (sent.key, sent.value) == (message.key, message.value)
    assert set(message.headers) <= set(sent.headers)
    (letter,) = bench.test.dead_letters("worldbuilder")
    assert (letter.topic, letter.partition, letter.offset, letter.timestamp) == ("genesis.session.events", 3, 17, 5)
    (failure,) = await bench.published()
    assert failure.causation_id == "genesis.session.events/3/17"


async def test_event_in_structured_mode_keeps_its_id_if_accepts_raises(bench: Bench) -> None:
    @bench.agent(accepts=lambda event: event.payload.colour == "red")
    async def worldbuilder(event: Event[Request]) -> None: ...

    body = {"specversion": "1.0", "id": "e7", "source": "/shop", "type": REQUESTED, "data": {"session_id": "s"}}
    headers = (("content-type", b"application/cloudevents+json"),)
    await deliver_record(bench, BusMessage(b"k", json.dumps(body).encode(), headers, 5))
    (letter,) = bench.test.dead_letters("worldbuilder")
    assert letter.event_id == "e7"


class Picky(msgspec.Struct):
    session_id: str

    def __post_init__(self) -> None:
        {"s1": 1}[self.session_id]


async def test_payload_class_that_raises_is_a_dead_letter(bench: Bench) -> None:
    @bench.agent(accepts=lambda event: True)
    async def worldbuilder(event: Event[Picky]) -> None:
        bench.seen.append(event.id)

    for number, session in enumerate(("s1", "s2", "s1")):
        bench.test.deliver(Event(REQUESTED, {"session_id": session}, aggregate_id="k", id=f"e{number}"))
    await bench.test.run_until_idle()
    assert bench.seen == ["e0", "e2"]
    (letter,) = bench.test.dead_letters("worldbuilder")
    assert (letter.event_id, letter.error_message) == (
        "e1", "the payload of agent 'worldbuilder' raised KeyError: 's2'"
    )  # fmt: skip


async def test_accepts_that_raises_is_a_dead_letter(bench: Bench) -> None:
    @bench.agent(accepts=lambda event: event.payload.colour == "red")
    async def worldbuilder(event: Event[Request]) -> None:
        bench.seen.append(event)

    info = await bench.run(request())
    assert info.state == "failed"
    assert info.error.message.startswith("accepts of agent 'worldbuilder' raised AttributeError")
    assert len(bench.test.dead_letters("worldbuilder")) == 1
    assert bench.seen == []


async def test_plain_json_is_for_agents_that_consume_everything(bench: Bench) -> None:
    @bench.app.agent("worldbuilder", consumes="*", topics=("genesis.session.events",))
    async def worldbuilder(event: Event[Any]) -> None:
        bench.seen.append((event.id, event.type, event.payload))

    await deliver_record(bench, BusMessage(b"k", b"[1]", (), None))
    assert bench.seen == [("genesis.session.events/3/17", "", [1])]


# -- replays


async def test_replay_runs_the_event_again_for_the_agent_that_failed(bench: Bench) -> None:
    @bench.agent()
    async def worldbuilder(event: Event[Request]) -> None:
        bench.seen.append(event.id)
        if len(bench.seen) == 1:
            raise Reject("not today")

    @bench.app.agent("critic", consumes=REQUESTED)
    async def critic(event: Event[Request]) -> None:
        bench.seen.append("critic")

    bench.test.deliver(request())
    await bench.test.run_until_idle()
    (raw,) = await bench.published(raw=True)
    again = BusRecord("genesis.session.events", 3, 18, replayed(bus_message(OutboxEvent(1, raw), ""), 1))
    sources = bench.app.runtime.agents.sources
    tasks = [AgentTasks(source, "client").task_of(again, 0) for source in sources.values()]
    assert [task is None for task in tasks] == [False, True]
    await bench.app.runtime.store.add([task for task in tasks if task is not None])
    await bench.test.run_until_idle()
    assert sorted(bench.seen) == ["critic", "e-t1", "e-t1"]
    copy = BusRecord("genesis.session.events", 3, 19, to_message(request(), "/genesis"))
    assert (task := AgentTasks(sources["worldbuilder"], "client").task_of(copy, 0)) is not None
    assert not (await bench.app.runtime.store.add([task]))[0].fresh
