"""The FastAPI integration, as mypy --strict and pyright accept it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, assert_type

from fastapi import FastAPI, Request, Response
from starlette.applications import Starlette
from starlette.responses import JSONResponse, StreamingResponse

from onthedot import App, StreamEntry
from onthedot.integrations.fastapi import User, accepted, anyone, dashboard, lifespan, sse, status

app = App("shop")


@app.task
async def send(to: str) -> str:
    return to


@app.task
async def words(text: str) -> AsyncIterator[str]:
    yield text


@asynccontextmanager
async def mine(api: FastAPI) -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def with_state(api: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
    yield {"greeting": "hi"}


api = FastAPI(lifespan=lifespan(app))
FastAPI(lifespan=lifespan(app, run=True))
FastAPI(lifespan=lifespan(app, inner=mine))
FastAPI(lifespan=lifespan(app, run=True, inner=with_state))
Starlette(lifespan=lifespan(app))


class Numbers:
    async def stream(self, after: str) -> AsyncIterator[StreamEntry]:
        yield StreamEntry("1", 1, "item", after)


@api.post("/mails")
async def create(to: str) -> Response:
    answer = accepted(await send.enqueue(to), url="/mails/{uuid}")
    assert_type(answer, JSONResponse)
    return answer


@api.post("/sync-mails")
def create_sync(to: str) -> Response:
    return accepted(send.delay(to), url="/mails/{uuid}")


@api.get("/mails/{uuid}")
async def read(uuid: str) -> Response:
    answer = await status(app, uuid)
    assert_type(answer, JSONResponse)
    return answer


@api.get("/events/{uuid}")
async def events(uuid: str, request: Request) -> Response:
    assert_type(sse(app.ahandle(uuid), request), StreamingResponse)
    sse(words.ahandle(uuid), request)
    sse(app.aflow(uuid), request)
    sse(app.batch_handle(uuid), request)
    sse(Numbers(), request)
    return sse(await words.enqueue("a"), request)


def current_user(request: Request) -> User | None:
    return User("ana", "operator")


async def current_user_later(request: Request) -> User | None:
    return None


api.mount("/ops/a", dashboard(app))
api.mount("/ops/b", dashboard(app, user=anyone))
api.mount("/ops/c", dashboard(app, user=current_user, read_only=True))
api.mount("/ops/d", dashboard(app, user=current_user_later, redact=lambda path, value: value))
