"""FastAPI and Starlette: the app in a web server, answers about tasks, server-sent events, and the page.

Starlette is enough: ``pip install 'onthedot[fastapi]'``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from math import ceil
from typing import Any, TypeAlias, overload

from onthedot.api.app import App
from onthedot.api.handles import AsyncTaskHandle, TaskHandle
from onthedot.codec.plain_json import json_value
from onthedot.errors import ArgumentError, BadEvent, SourceFrozen, StoreFull, TaskNotFound
from onthedot.integrations.event_stream import EventStream, Streamable
from onthedot.integrations.live_values import progress_of
from onthedot.model.task import TaskInfo

try:
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import JSONResponse, StreamingResponse
    from starlette.types import Receive, Scope, Send

    from onthedot.integrations.dashboard import dashboard
    from onthedot.web.auth import anyone
    from onthedot.web.server_events import HEADERS
    from onthedot.web.settings import User
except ImportError as _error:
    raise ImportError("onthedot.integrations.fastapi needs starlette: pip install 'onthedot[fastapi]'") from _error

__all__ = ["User", "accepted", "anyone", "dashboard", "lifespan", "refused", "sse", "status"]

StatelessLifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[None]]
StatefulLifespan: TypeAlias = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]

_NO_CACHE = {"Cache-Control": "no-store"}
_ASK_AGAIN = {**_NO_CACHE, "Retry-After": "1"}


@overload
def lifespan(app: App[Any], *, run: bool = False, inner: StatelessLifespan | None = None) -> StatelessLifespan: ...


@overload
def lifespan(app: App[Any], *, run: bool = False, inner: StatefulLifespan) -> StatefulLifespan: ...


def lifespan(
    app: App[Any], *, run: bool = False, inner: StatelessLifespan | StatefulLifespan | None = None
) -> Callable[[Any], AbstractAsyncContextManager[Any]]:
    """Returns the lifespan of a web application: ``FastAPI(lifespan=lifespan(app))``.

    The app is connected to its store while the server runs, so a store that cannot be reached is an error of the start.

    Args:
        app: The app whose tasks are added.
        run: Whether this process also runs tasks, as ``app.running()`` does.
        inner: A lifespan of your own, which begins after the app is connected and ends before it is closed. What it
            yields is the state of requests.

    >>> from onthedot import App
    >>> tasks = App("shop", store="memory://")
    >>> from starlette.applications import Starlette
    >>> api = Starlette(lifespan=lifespan(tasks, run=True))
    """

    @asynccontextmanager
    async def connected(api: Any) -> AsyncGenerator[Mapping[str, Any] | None, None]:
        async with app.running() if run else app:
            if inner is None:
                yield None
                return
            async with inner(api) as state:
                yield state

    return connected


def accepted(handle: AsyncTaskHandle[Any] | TaskHandle[Any], *, url: str) -> JSONResponse:
    """Returns the answer to a request that has added a task: 202, with ``uuid``, ``added`` and ``url`` as JSON.

    ``added`` is False if the add found an existing task, such as one of the same unique key.

    Args:
        handle: Of the task: ``accepted(await send.enqueue("ann"), url="/mails/{uuid}")``.
        url: Where its state can be read, also the header ``Location``. ``{uuid}`` stands for the id of the task.

    >>> from onthedot import App
    >>> app = App("shop", store="memory://")
    >>> accepted(app.handle("0193"), url="/orders/{uuid}").body
    b'{"uuid":"0193","added":false,"url":"/orders/0193"}'
    """
    place = url.replace("{uuid}", handle.uuid)
    body = {"uuid": handle.uuid, "added": handle.added, "url": place}
    return JSONResponse(body, status_code=202, headers={"Location": place})


def refused(error: StoreFull | BadEvent | ArgumentError) -> JSONResponse:
    """Returns the answer to a request whose task or event was not stored.

    503 for a frozen source and 429 for a full one, with the header ``Retry-After``: the seconds after which the caller
    may try again. 422 for an event or arguments that can never be stored as they are.

    Args:
        error: Of the add or the publish: ``except (StoreFull, BadEvent, ArgumentError) as error: return
            refused(error)``. `SourceFrozen` is a `StoreFull`.

    >>> from onthedot import SourceFrozen
    >>> answer = refused(SourceFrozen("send", 30))
    >>> answer.status_code, answer.headers["retry-after"]
    (503, '30')
    """
    if not isinstance(error, StoreFull):
        return JSONResponse({"error": str(error)}, status_code=422, headers=_NO_CACHE)
    code = 429
    seconds = 1.0
    if isinstance(error, SourceFrozen):
        code = 503
        seconds = error.retry_after
    headers = {**_NO_CACHE, "Retry-After": str(ceil(seconds))}  # HTTP knows whole seconds only
    return JSONResponse({"error": str(error)}, status_code=code, headers=headers)


async def status(app: App[Any], uuid: str) -> JSONResponse:
    """Returns the state of a task as JSON, with its result, its progress or its error; 404: there is no such task.

    Arguments, metadata and tracebacks are left out. While the task has not ended, the header ``Retry-After`` is set.

    Args:
        app: The app that knows the task.
        uuid: The whole id of the task.
    """
    try:
        info = await app.get(uuid)
    except TaskNotFound as error:
        raise HTTPException(404, str(error)) from error
    return JSONResponse(_public_fields(info), headers=_NO_CACHE if info.state.ended else _ASK_AGAIN)


def _public_fields(info: TaskInfo) -> dict[str, Any]:
    error = None
    if info.error is not None:
        error = {"type": info.error.type, "message": info.error.message}
    return {
        "uuid": info.uuid,
        "state": str(info.state),
        "progress": progress_of(info),
        "result": json_value(info.result),
        "result_status": info.result_status,
        "error": error,
        "reason": info.reason,
    }


def sse(handle: Streamable, request: Request) -> StreamingResponse:
    """Returns a task, a flow, a stream or a batch as server-sent events, for the ``EventSource`` of a browser.

    A browser that was cut off continues after the last event that it got: it sends the header ``Last-Event-ID``, which
    goes before ``?after=`` in the address. 404: there is no such task; 400: the text is no cursor.

    Args:
        handle: ``app.ahandle(uuid)``, ``app.aflow(uuid)``, ``app.batch_handle(id)``, or any object whose
            ``stream(after)`` yields `StreamEntry`.
        request: The request that this answers.
    """
    after = request.headers.get("last-event-id") or request.query_params.get("after", "")
    try:
        stream = EventStream(handle, after)
    except ArgumentError as error:
        raise HTTPException(400, str(error)) from error
    return EventStreamResponse(stream)


class EventStreamResponse(StreamingResponse):
    """A response that reads its stream while it is sent, and no longer."""

    media_type = "text/event-stream"

    def __init__(self, stream: EventStream) -> None:
        super().__init__(stream, headers=HEADERS)
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._open()
            await super().__call__(scope, receive, send)
        finally:
            await self._stream.close()

    async def _open(self) -> None:
        try:
            await self._stream.open()
        except TaskNotFound as error:
            raise HTTPException(404, str(error)) from error
