"""Each marked line is an error for mypy --strict and for pyright (test_typing.py compares the lines)."""

from __future__ import annotations

from fastapi import FastAPI, Request, Response

from onthedot import App
from onthedot.integrations.fastapi import User, accepted, dashboard, lifespan, sse, status

app = App("shop")


@app.task
async def send(to: str) -> str:
    return to


FastAPI(lifespan=lifespan(app, True))  # E by name only
FastAPI(lifespan=lifespan(app, inner=app))  # E no function
FastAPI(lifespan=lifespan(send))  # E no app


async def answers(uuid: str, request: Request) -> Response:
    accepted(await send.enqueue("ann"))  # E without a url
    accepted(send.enqueue("ann"), url="/mails/{uuid}")  # E not awaited
    sse(app.handle(uuid), request)  # E a handle for sync code
    sse(app.sync.batch_handle(uuid), request)  # E a batch for sync code
    sse(uuid, request)  # E an id
    sse(app.ahandle(uuid))  # E without the request
    return status(app, uuid)  # E not awaited


def admin(request: Request) -> bool:
    return True


dashboard(app, admin)  # E by name only
dashboard(app, user=admin)  # E no user
dashboard(app, user=User("ana", "operator"))  # E no function
User("ana", "admin")  # E no role
