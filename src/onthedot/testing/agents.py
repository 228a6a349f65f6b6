"""Events that an agent under test receives, and those that it could not handle."""

from __future__ import annotations

from typing import Any

from onthedot.client.client import StoreClient
from onthedot.clock.epoch import to_ms
from onthedot.events.agent_tasks import AgentTasks
from onthedot.events.bus import BusRecord
from onthedot.events.cloudevents import to_message
from onthedot.events.dead_letters import DeadLetter, read_dead_letter
from onthedot.events.event import Event
from onthedot.events.outbox_rows import bucket_of, bus_message
from onthedot.runtime.runtime import Runtime
from onthedot.stores.capabilities import Outbox, capability
from onthedot.stores.contract import NewTask, OutboxEvent

_PAGE = 500


def deliver(runtime: Runtime, event: Event[Any]) -> list[str]:
    """Adds a task for each agent that handles the event; returns their uuids."""
    settings = runtime.config.events
    message = to_message(event, settings.source_of(runtime.name))
    record = BusRecord(settings.routes.topic_for(event), bucket_of(event.key), to_ms(event.occurred_at), message)
    tasks: list[NewTask] = []
    for source in runtime.agents.sources.values():
        task = AgentTasks(source, runtime.registry.owner.client).task_of(record, runtime.clock.now())
        if task is not None:
            tasks.append(task)
    runtime.portal.run_sync(lambda client: client.import_tasks(tasks))
    return [task.uuid for task in tasks]


def dead_letters(runtime: Runtime, agent: str) -> list[DeadLetter]:
    """The dead letters of an agent, oldest first, sent or not."""
    suffix = runtime.config.events.dlt_suffix
    rows = [row for row in runtime.portal.run_sync(_raw_events) if row.event.topic.endswith(suffix)]
    letters = [read_dead_letter(bus_message(row, "")) for row in rows]
    return [letter for letter in letters if letter.agent == agent]


async def _raw_events(client: StoreClient) -> list[OutboxEvent]:
    outbox = capability(client.store, Outbox, "dead_letters()")
    rows: list[OutboxEvent] = []
    after = 0
    while page := await outbox.find_events({}, after, _PAGE):
        after = page[-1].seq
        rows += [row for row in page if row.event.raw is not None]
    return rows
