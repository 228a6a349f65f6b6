"""The app: a batch is split into parts; a part asks for its items over the bus and waits for the answer of an agent."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from examples.genesis import llm
from examples.genesis.policy import Item, policy
from onthedot import App, Rate, Reject, current_task
from onthedot.events import BaseAgent, Event, Events, event_id

REQUESTED = "Genesis.Session.DetailBatchGenerationRequested"
CREATED = "Genesis.Session.DetailBatchCreated"
FAILED = "Genesis.Session.DetailBatchFailed"
ANSWER_WITHIN = 120  # seconds that a part waits for an agent: longer than the leases of processes that are killed

# Requests of the model, of both agents together. The calls are limited and not the parts: a part starts twice, to ask
# and to take its answer, and answers would wait behind requests that have not been sent.
QUOTA = Rate("50/s", burst=50, name="model")

model = llm.from_environment()
generator = llm.with_quota(model)

app = App(
    "genesis",
    store=os.environ.get("ONTHEDOT_STORE", "sqlite:///genesis.db"),
    events=Events(
        topics={
            "Genesis.Session.*Requested": "genesis.requests",
            "Genesis.Session.*": "genesis.results",
        },
        results=(CREATED, FAILED),
        source="/genesis",
    ),
)
app.on_event(CREATED, signal="event:{task_id}")
app.on_event(FAILED, signal="event:{task_id}")


class Request(msgspec.Struct):
    """The payload of a request."""

    session_id: str
    task_id: str
    type: str
    count: int
    style: dict[str, Any]
    priority: int = 5
    batch_id: str = ""
    batch_index: int = 0


@app.task(name="genesis.one_call")
async def one_call(session_id: str, type: str, count: int, style: dict[str, Any], priority: int = 5) -> list[Item]:  # noqa: A002, ARG001
    """The degraded form: one large call of the model, without bus and agents."""
    ctx = current_task()
    items = await generator.generate(ctx.uuid, ctx.attempt, type, count, style)
    return msgspec.convert(items, list[Item])


@app.task(
    name="genesis.detail_batch",
    batch=policy(fallback=one_call),
    max_retries=2,
)
async def detail_part(session_id: str, type: str, count: int, style: dict[str, Any], priority: int = 5) -> list[Item]:  # noqa: A002
    """One part of a batch. Request and wait are one step; a run that is repeated asks with the same event id."""
    ctx = current_task()
    request = Request(
        session_id=session_id,
        task_id=ctx.uuid,
        type=type,
        count=count,
        style=style,
        priority=priority,
        batch_id=ctx.metadata["batch"],
        batch_index=int(ctx.metadata["subtask_id"].rpartition(":")[2]),
    )
    ctx.publish(
        Event(
            REQUESTED,
            request,
            aggregate_id=session_id,
            key=ctx.uuid,
            correlation_id=ctx.metadata.get("command_id"),
            priority=priority,
            id=event_id(ctx.uuid, "request"),  # one request per part, whatever is killed
        )
    )
    answer = await ctx.wait_for(f"event:{ctx.uuid}", timeout=ANSWER_WITHIN)
    if answer["type"] == FAILED:
        raise Reject(answer["payload"]["error"])  # the agent has retried already
    return msgspec.convert(answer["payload"]["items"], list[Item])


class DetailAgent(BaseAgent):
    """Makes the items of a request and publishes them."""

    consumes = (REQUESTED,)
    fails_as = FAILED
    max_retries = 3
    backoff = (0.5, 1, 2)
    timeout = 20
    limits = (QUOTA,)
    handles: tuple[str, ...] = ()

    def accepts(self, event: Event[Request]) -> bool:
        return event.payload.type in self.handles

    async def process(self, event: Event[Request]) -> Event[dict[str, Any]]:
        request = event.payload
        ctx = current_task()
        items = await generator.generate(request.task_id, ctx.attempt, request.type, request.count, request.style)
        return event.reply(
            CREATED,
            {
                "session_id": request.session_id,
                "task_id": request.task_id,
                "items": items,
                "batch_id": request.batch_id,
            },
        )


class Worldbuilder(DetailAgent):
    id = "worldbuilder"
    aliases = ("world_builder",)
    handles = ("location_name", "item", "organization", "skill")


class CharacterExpert(DetailAgent):
    id = "characterexpert"
    aliases = ("character_expert",)
    handles = ("character_name",)


app.agents.register(Worldbuilder())
app.agents.register(CharacterExpert())
