"""The HTTP API of the example, and its page."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any
from uuid import uuid4

from fastapi import FastAPI, Header, HTTPException, Request, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field

from examples.genesis.app import app, detail_part
from examples.genesis.policy import TYPES
from onthedot import SourceFrozen, StoreFull
from onthedot.integrations.fastapi import lifespan, sse

_PAGE = Path(__file__).with_name("page.html")
_FIRST_WITHIN = 5  # seconds: a degraded batch answers with its first items

_RUNS_TASKS = "GENESIS_WORKERS" not in os.environ  # else other processes do

api = FastAPI(title="Genesis", lifespan=lifespan(app, run=_RUNS_TASKS))


class BatchRequest(BaseModel):
    """The request of a user."""

    type: str
    count: int = Field(ge=1, le=200)
    style: dict[str, Any] = {}
    priority: int = Field(default=5, ge=1, le=10)


@api.get("/")
async def page() -> FileResponse:
    return FileResponse(_PAGE)


@api.post("/sessions/{session_id}/detail-batches", status_code=202)
async def create(
    session_id: str,
    body: BatchRequest,
    idempotency_key: Annotated[str | None, Header()] = None,
) -> dict[str, Any]:
    """Accepts a batch. The same ``Idempotency-Key`` is the same batch."""
    if body.type not in TYPES:
        raise HTTPException(422, f"unknown type {body.type!r}; known are {', '.join(TYPES)}")
    command_id = idempotency_key or str(uuid4())
    try:
        batch = await app.batch(
            detail_part,
            count=body.count,
            type=body.type,
            args={"session_id": session_id, "style": body.style, "priority": body.priority},
            key=command_id,
            priority=body.priority,
            metadata={"command_id": command_id},
        )
    except SourceFrozen as error:
        raise HTTPException(503, str(error), {"Retry-After": f"{error.retry_after:g}"}) from error
    except StoreFull as error:
        raise HTTPException(429, str(error), {"Retry-After": "1"}) from error
    answer: dict[str, Any] = {
        "command_id": command_id,
        "batch_id": batch.id,
        "status_url": f"/detail-batches/{batch.id}",
        "events_url": f"/detail-batches/{batch.id}/events",
    }
    if await app.batches.mode(detail_part.name) == "degraded":
        first = await batch.first(timeout=_FIRST_WITHIN)
        answer["items"] = first.items
    return answer


@api.get("/detail-batches/{batch_id}")
async def status(batch_id: str) -> dict[str, Any]:
    progress = await app.batch_handle(batch_id).progress()
    return {"batch_id": batch_id, "progress": progress}


@api.get("/detail-batches/{batch_id}/events")
async def events(batch_id: str, request: Request) -> Response:
    return sse(app.batch_handle(batch_id), request)


@api.post("/operations/{action}")
async def operate(action: str) -> dict[str, str]:
    """Freeze, thaw, degrade and restore, for the buttons of the page."""
    verbs = {
        "freeze": app.batches.freeze,
        "thaw": app.batches.thaw,
        "degrade": app.batches.degrade,
        "restore": app.batches.restore,
    }
    if action not in verbs:
        raise HTTPException(404, f"unknown action {action!r}; known are {', '.join(verbs)}")
    await verbs[action](detail_part.name)
    return {"mode": action}
