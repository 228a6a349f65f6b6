"""Server-sent events over a real web server, on every store: a browser that is cut off continues where it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onthedot import App, BatchPolicy, current_task
from onthedot.integrations.fastapi import lifespan, sse
from tests.support.app_stores import AppStore
from tests.support.sse_client import read_over_disconnects
from tests.support.web_server import serving

PARTS = 40
ITEMS = 60
CUTS = 20


def web(app: App) -> Starlette:
    async def batch(request: Request) -> Response:
        return sse(app.batch_handle(request.path_params["id"]), request)

    async def task(request: Request) -> Response:
        return sse(app.ahandle(request.path_params["id"]), request)

    routes = [Route("/batches/{id}", batch), Route("/tasks/{id}", task)]
    return Starlette(routes=routes, lifespan=lifespan(app, run=True))


async def test_every_part_comes_once_over_twenty_disconnects(flow_store: AppStore) -> None:
    app = App(flow_store.name, store=flow_store.url, stop_timeout=0)

    @app.task(batch=BatchPolicy(split=lambda kind, count: [1] * count, at_once=4))
    async def numbers(count: int) -> list[int]:
        await asyncio.sleep(0.01)
        return [int(current_task().metadata["subtask_id"].rpartition(":")[2])]

    async with serving(web(app)) as server:
        batch = await app.batch(numbers, count=PARTS)
        events = await read_over_disconnects(server.port, f"/batches/{batch.id}", CUTS, "part")
    parts = [event.data for event in events if event.kind == "part"]
    assert [part["number"] for part in parts] == list(range(1, PARTS + 1))
    assert sorted(item for part in parts for item in part["items"]) == list(range(PARTS))
    assert events[-1].data == "succeeded"
    progress = [event.data for event in events if event.kind == "progress"]
    assert progress[-1] == {"done": PARTS, "failed": 0, "total": PARTS, "items": PARTS, "count": PARTS}


async def test_every_item_comes_once_over_twenty_disconnects(flow_store: AppStore) -> None:
    app = App(flow_store.name, store=flow_store.url, stop_timeout=0)

    @app.task
    async def count_up() -> AsyncIterator[int]:
        for number in range(ITEMS):
            await asyncio.sleep(0.005)
            yield number

    async with serving(web(app)) as server:
        handle = await count_up.enqueue()
        events = await read_over_disconnects(server.port, f"/tasks/{handle.uuid}", CUTS, "item")
    assert [event.data for event in events if event.kind == "item"] == list(range(ITEMS))
    assert events[-1].data == "succeeded"
