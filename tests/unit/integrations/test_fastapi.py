"""``lifespan``, ``accepted`` and ``status`` in a real web server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import FastAPI, Request, Response

from onthedot import App, ArgumentError, BadEvent, Cancel, StoreFull, StoreUnavailable, current_task
from onthedot.events import Event
from onthedot.integrations.fastapi import accepted, lifespan, refused, status
from tests.support.http_client import fetch
from tests.support.waits import until
from tests.support.web_server import serving


def web(app: App, **options: Any) -> FastAPI:
    api = FastAPI(lifespan=lifespan(app, **options))

    @api.get("/tasks/{uuid}")
    async def read(uuid: str) -> Response:
        return await status(app, uuid)

    return api


async def test_lifespan_connects_and_runs_no_tasks(app: App, send: Any, ran: list[Any]) -> None:
    async with serving(web(app)) as server:
        assert app.status()["status"] == "stopped"
        handle = await send.enqueue("ann")
        answer = await fetch(server.port, "GET", f"/tasks/{handle.uuid}")
        assert answer.json()["state"] == "ready"
    assert ran == []


async def test_lifespan_runs_tasks_while_the_server_runs(app: App, send: Any) -> None:
    async with serving(web(app, run=True)):
        assert app.status()["status"] == "running"
        assert await (await send.enqueue("ann")) == "hello, ann"
    assert app.status()["status"] == "stopped"


async def test_own_lifespan_runs_inside_and_gives_the_state_of_requests(app: App, send: Any) -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def mine(api: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
        seen.append(await (await send.enqueue(api.title)))
        yield {"greeting": "hi"}
        seen.append(await (await send.enqueue("the end")))

    api = FastAPI(title="shop", lifespan=lifespan(app, run=True, inner=mine))

    @api.get("/greeting")
    async def greeting(request: Request) -> str:
        return str(request.state.greeting)

    async with serving(api) as server:
        assert (await fetch(server.port, "GET", "/greeting")).json() == "hi"
    assert seen == ["hello, shop", "hello, the end"]


async def test_store_that_cannot_be_reached_is_an_error_of_the_start() -> None:
    app = App("shop", store="redis://127.0.0.1:1")
    with pytest.raises(StoreUnavailable):
        async with lifespan(app)(FastAPI()):
            pass


async def test_accepted_names_the_task_and_where_its_state_is(app: App) -> None:
    @app.task(unique=True)
    async def build(day: str) -> None: ...

    api = web(app)

    @api.post("/reports")
    async def create(day: str) -> Response:
        return accepted(await build.enqueue(day), url="/tasks/{uuid}")

    async with serving(api) as server:
        first = await fetch(server.port, "POST", "/reports?day=monday")
        second = await fetch(server.port, "POST", "/reports?day=monday")
        place = first.headers["location"]
        assert (await fetch(server.port, "GET", place)).json()["state"] == "ready"
    assert first.status == 202
    uuid = first.json()["uuid"]
    assert first.json() == {"uuid": uuid, "added": True, "url": place}
    assert place == f"/tasks/{uuid}"
    assert second.json() == {"uuid": uuid, "added": False, "url": place}


async def test_status_has_state_progress_and_result(app: App) -> None:
    may_end = asyncio.Event()

    @app.task
    async def resize(path: str) -> dict[str, Any]:
        current_task().progress(1, 4)
        await may_end.wait()
        return {"path": path, "size": (80, 60)}

    async with serving(web(app, run=True)) as server:
        handle = await resize.enqueue("a.png")
        path = f"/tasks/{handle.uuid}"

        async def has_progress() -> bool:
            return (await fetch(server.port, "GET", path)).json()["progress"] is not None

        await until(has_progress)
        running = await fetch(server.port, "GET", path)
        may_end.set()
        await handle
        ended = await fetch(server.port, "GET", path)
    assert running.json() == {
        "uuid": handle.uuid, "state": "running", "progress": {"done": 1, "total": 4}, "result": None,
        "result_status": "pending", "error": None, "reason": "",
    }  # fmt: skip
    assert running.headers["retry-after"] == "1"
    assert ended.json()["result"] == {"path": "a.png", "size": [80, 60]}
    assert ended.json()["state"] == "succeeded"
    assert "retry-after" not in ended.headers
    assert running.headers["cache-control"] == ended.headers["cache-control"] == "no-store"


async def test_status_of_a_failed_task_has_its_error_but_no_traceback(app: App) -> None:
    @app.task
    async def broken(token: str) -> None:
        raise ValueError("no paper")

    @app.task
    async def dropped() -> None:
        raise Cancel("not needed")

    async with serving(web(app, run=True)) as server:
        failed = await broken.enqueue("k-17")
        await failed.exception()
        failed_answer = await fetch(server.port, "GET", f"/tasks/{failed.uuid}")
        cancelled = await dropped.enqueue()
        await cancelled.exception()
        cancelled_answer = await fetch(server.port, "GET", f"/tasks/{cancelled.uuid}")
    assert failed_answer.json()["error"] == {"type": "ValueError", "message": "no paper"}
    assert b"Traceback" not in failed_answer.body
    assert b"k-17" not in failed_answer.body
    assert cancelled_answer.json()["state"] == "cancelled"
    assert cancelled_answer.json()["reason"] == "not needed"


async def test_status_takes_whole_ids_only(app: App, send: Any) -> None:
    async with serving(web(app)) as server:
        handle = await send.enqueue("ann")
        answer = await fetch(server.port, "GET", f"/tasks/{handle.uuid[:-1]}")
    assert answer.status == 404
    assert handle.uuid[:-1] in answer.json()["detail"]


async def test_add_to_a_frozen_source_is_503_with_the_time_to_wait(app: App, send: Any) -> None:
    api = web(app)

    @api.post("/mails")
    async def add() -> Response:
        try:
            return accepted(await send.enqueue("ann"), url="/tasks/{uuid}")
        except StoreFull as error:
            return refused(error)

    async with serving(api) as server:
        await app.operations.freeze("send")
        answer = await fetch(server.port, "POST", "/mails")
        assert (answer.status, answer.headers["retry-after"]) == (503, "30")
        assert "send is frozen" in answer.json()["error"]
        await app.operations.thaw("send")
        assert (await fetch(server.port, "POST", "/mails")).status == 202


async def test_event_that_can_never_be_stored_is_422_and_says_why(app: App) -> None:
    api = web(app)

    @api.post("/events/{event_type}/{key}")
    async def publish(event_type: str, key: str) -> Response:
        payload = {"size": float("nan")} if key == "nan" else {"size": "x" * 1_000_000 if key == "large" else ""}
        try:
            await app.publish(Event(event_type, payload, aggregate_id=key.strip()))
        except (StoreFull, BadEvent, ArgumentError) as error:
            return refused(error)
        return Response(status_code=202)

    problems = {
        "Shop.Order/1": "has 2 segments, not 3 or 4",
        "Shop.Order.Placed/%20": "aggregate_id",
        "Shop.Order.Placed/nan": "$.size",
        "Shop.Order.Placed/large": "900,000",
    }
    async with serving(api) as server:
        for path, problem in problems.items():
            answer = await fetch(server.port, "POST", f"/events/{path}")
            assert answer.status == 422, path
            assert problem in answer.json()["error"]
            assert "retry-after" not in answer.headers
        assert (await fetch(server.port, "POST", "/events/Shop.Order.Placed/1")).status == 202
